import { BinaryReader, BinaryWriter } from "@bufbuild/protobuf/wire";
import { connectStream } from "./connect.ts";
import type { Containers } from "./containers.ts";
import { filling, HttpClient } from "./http.ts";
import { Counter, type Peer, type PeerContext, type PeerSandbox, type Result } from "./peer.ts";

const PORT = 49983;
const START = "/process.Process/Start";

/**
 * E2B's daemon in a container, without E2B's virtual machine around it. Commands go over its Connect endpoint in
 * binary, files over plain HTTP, as with its own clients.
 * @param binary a statically linked `envd`.
 */
export function envd({ image, signal }: PeerContext, containers: Containers, binary: string): Peer {
  return {
    name: "E2B envd",
    pids: [],
    create: async () => {
      const { id, address, remove } = await containers.daemon(
        {
          ...{ image, port: PORT, binds: [`${binary}:/usr/local/bin/envd:ro`] },
          command: ["/usr/local/bin/envd", "-isnotfc", "-no-cgroups", "-port", String(PORT)],
          ready: async (address) => (await fetch(`http://${address}/health`)).ok,
        },
        signal,
      );
      return sandboxOf(id, address, remove);
    },
    close: async () => {},
  };
}

function sandboxOf(container: string, address: string, remove: () => Promise<void>): PeerSandbox {
  const client = new HttpClient(address);
  const fileOf = (path: string) => `/files?username=root&path=${encodeURIComponent(path)}`;
  return {
    containerId: async () => container,
    run: async (line, { timeoutMs } = {}) => {
      const stdout: Buffer[] = [];
      const stderr: Buffer[] = [];
      let exitCode: number | undefined;
      const take = (message: Buffer): void => {
        const { data, ...end } = eventOf(message);
        if (data) (data.stream === "stdout" ? stdout : stderr).push(data.bytes);
        if (end.exitCode !== undefined) exitCode = end.exitCode;
      };
      await connectStream(client, START, requestOf(line), take, timeoutMs);
      return { stdout: Buffer.concat(stdout), stderr: Buffer.concat(stderr), exitCode } satisfies Result;
    },
    upload: (path, bytes) =>
      client.send(fileOf(path), { "content-type": "application/octet-stream" }, filling(bytes), bytes),
    download: async (path, bytes) => {
      const counter = new Counter();
      await client.get(fileOf(path), counter.take);
      counter.expect(bytes);
    },
    remove: async () => {
      client.close();
      await remove();
    },
  };
}

/** A StartRequest: process = 1 { cmd = 1, args = 2 }, stdin = 4. */
function requestOf(line: string): Uint8Array {
  const writer = new BinaryWriter();
  writer.tag(1, 2).fork().tag(1, 2).string("/bin/sh");
  for (const arg of ["-c", line]) writer.tag(2, 2).string(arg);
  return writer.join().tag(4, 0).bool(false).finish();
}

interface StartEvent {
  readonly data?: { readonly stream: "stdout" | "stderr"; readonly bytes: Buffer };
  readonly exitCode?: number;
}

/** The content of a StartResponse: event = 1 { data = 2 { stdout = 1, stderr = 2 }, end = 3 { exit_code = 1 } }. */
function eventOf(frame: Buffer): StartEvent {
  const event = field(frame, 1);
  const data = event && field(event, 2);
  if (data) {
    const out = field(data, 1);
    const bytes = out ?? field(data, 2) ?? Buffer.alloc(0);
    return { data: { stream: out ? "stdout" : "stderr", bytes } };
  }
  const end = event && field(event, 3);
  if (end === undefined) return {};
  const reader = new BinaryReader(end);
  while (reader.pos < reader.len) {
    const [number, type] = reader.tag();
    if (number === 1) return { exitCode: reader.sint32() };
    reader.skip(type);
  }
  return { exitCode: 0 };
}

/** A bytes field. Undefined if it is not set. */
function field(message: Buffer, wanted: number): Buffer | undefined {
  const reader = new BinaryReader(message);
  while (reader.pos < reader.len) {
    const [number, type] = reader.tag();
    if (number === wanted && type === 2) {
      const { buffer, byteOffset, length } = reader.bytes();
      return Buffer.from(buffer as ArrayBuffer, byteOffset, length);
    }
    reader.skip(type);
  }
  return undefined;
}
