import { once } from "node:events";
import http2 from "node:http2";
import { setImmediate as nextTurn, setTimeout as sleep } from "node:timers/promises";
import { create, toBinary } from "@bufbuild/protobuf";
import { BytesValueSchema } from "@bufbuild/protobuf/wkt";
import { Code, ConnectError, createClient } from "@connectrpc/connect";
import { describe, expect, test } from "vitest";
import { ErrorReason } from "../../../gen/ts/berth/v1/error_pb.js";
import { ExecRequestSchema, ProcessService } from "../../../gen/ts/berth/v1/process_pb.js";
import { GetSandboxRequestSchema, SandboxService } from "../../../gen/ts/berth/v1/sandbox_pb.js";
import { AuditLog } from "../../../src/server/audit-log.ts";
import { type Authenticator, anonymousAuthenticator } from "../../../src/server/call.ts";
import { ReceiveBudget } from "../../../src/server/limits.ts";
import type { Routes } from "../../../src/server/routes.ts";
import {
  FLAG,
  FRAME,
  field,
  frame,
  opening,
  postFields,
  RawConnection,
  reset,
} from "../../support/attacks/frames.ts";
import { eventually } from "../../support/eventually.ts";
import { keptBytes } from "../../support/kept-bytes.ts";
import { detailOf, GrpcJs } from "../../support/server/grpc-js.ts";
import { grpcFrame } from "../../support/server/http.ts";
import { callsInFlight, startTestServer, type TestServer } from "../../support/server/test-server.ts";
import { TRANSPORTS } from "../../support/server/transports.ts";
import { uploadMethod } from "../../support/server/upload-service.ts";

const shell = (line: string) => ({ command: { case: "shell" as const, value: line } });
const MESSAGE_BYTES = 65_536;

/** Waits until a flood no longer advances, and returns how many messages the handler yielded. */
async function standstill({ record }: TestServer): Promise<number> {
  for (let calm = 0, last = -1; calm < 5; ) {
    await sleep(20);
    calm = record.produced > 0 && record.produced === last ? calm + 1 : 0;
    last = record.produced;
  }
  return record.produced;
}

describe.each(TRANSPORTS)("%s", (_name, transportTo) => {
  test("an answer for which there is no memory is replaced by an error", async () => {
    const routes: Routes = (router) => {
      router.service(SandboxService, { getSandbox: () => ({ sandbox: { sandboxId: "x".repeat(40_000) } }) });
    };
    await using server = await startTestServer({ routes, limits: { maxSendingBytes: 20_000 } });
    using transport = transportTo(server.url);
    const answer = createClient(SandboxService, transport).getSandbox({}, { timeoutMs: 30_000 });
    const error = await answer.catch((error: unknown) => ConnectError.from(error));
    expect(error).toMatchObject({ code: Code.FailedPrecondition });
  });

  test("a reader that stops makes the handler wait, and a cancel then ends it", async () => {
    await using server = await startTestServer();
    using transport = transportTo(server.url);
    const controller = new AbortController();
    const client = createClient(ProcessService, transport);
    const stream = client.exec(shell("flood"), { signal: controller.signal })[Symbol.asyncIterator]();
    await stream.next();
    await stream.next();
    const produced = await standstill(server);
    // What is in transit fits into windows and socket buffers.
    expect(produced * MESSAGE_BYTES).toBeLessThan(32 * 1024 * 1024);
    expect(server.record.open).toBe(1);
    controller.abort();
    await eventually(() => server.record.open === 0);
    // The handler yielded no more than the message at which it was blocked.
    expect(server.record.produced).toBeLessThanOrEqual(produced + 1);
    await stream.next().catch(() => {});
  });

  test("a deadline ends the handler of a reader that stopped", async () => {
    await using server = await startTestServer();
    using transport = transportTo(server.url);
    // Sent as headers of both protocols, so that the client does not enforce them itself.
    const headers = { "grpc-timeout": "300m", "connect-timeout-ms": "300" };
    const stream = createClient(ProcessService, transport)
      .exec(shell("flood"), { headers })
      [Symbol.asyncIterator]();
    // On a busy machine the deadline may come before the first message.
    await stream.next().catch(() => {});
    await eventually(() => server.record.open === 0);
    // And the reader cannot keep the call open.
    await expect.poll(() => callsInFlight(server)).toBe(0);
    await stream.return?.();
  });

  test("a reader that reads again gets the rest", async () => {
    await using server = await startTestServer();
    using transport = transportTo(server.url);
    const controller = new AbortController();
    const client = createClient(ProcessService, transport);
    const stream = client.exec(shell("flood"), { signal: controller.signal })[Symbol.asyncIterator]();
    await stream.next();
    const produced = await standstill(server);
    let received = 0;
    let expected = 0n;
    while (received < produced * MESSAGE_BYTES * 2) {
      const { value } = await stream.next();
      if (value?.event.case !== "output") throw new Error("no output");
      expect(value.event.value.offset).toBe(expected);
      expected += BigInt(value.event.value.data.length);
      received += value.event.value.data.length;
    }
    controller.abort();
    await eventually(() => server.record.open === 0);
    await stream.next().catch(() => {});
  });
});

test("a flood of cancels leaves no handler, no call and no stream", async () => {
  await using server = await startTestServer();
  const floods = 3000;
  for (let done = 0; done < floods; done += 500) {
    // More than 1,000 resets at once, and as many per second, end the client's connection.
    using client = new GrpcJs(server.authority);
    let ended = 0;
    for (let index = 0; index < 500; index++) {
      const stream =
        index % 2 === 0
          ? client.serverStream(SandboxService.method.watchEvents, {})
          : client.serverStream(ProcessService.method.exec, shell("drip 1000"));
      stream.on("error", () => {});
      stream.on("status", () => {
        ended += 1;
      });
      // Some as soon as they are sent (before that, grpc-js does not inform the server), some in the middle of
      // responses.
      if (index % 3 === 0) setImmediate(() => stream.cancel());
      else stream.once("data", () => stream.cancel());
    }
    await eventually(() => server.record.open === 0 && ended === 500);
    // The connection still works.
    await client.unary(SandboxService.method.getStats, {});
  }
  expect(server.record.begun).toBeGreaterThan(floods / 2);
  await eventually(() => server.record.open === 0);
  await expect.poll(() => callsInFlight(server)).toBe(0);
});

test("a connection serves calls, however much the canceled ones had left to send", async () => {
  const data = new Uint8Array(4 << 20);
  const routes: Routes = (router) => {
    router.service(ProcessService, {
      async *exec() {
        yield { event: { case: "output", value: { data } } };
      },
    });
  };
  await using server = await startTestServer({ routes });
  const session = http2.connect(server.url, { maxSessionMemory: 1_000_000 });
  session.on("error", () => {});
  const headers = {
    ":method": "POST",
    ":path": "/berth.v1.ProcessService/Exec",
    "content-type": "application/grpc",
  };
  const begun: unknown[] = [];
  for (let calls = 0; calls < 80; calls++) {
    const stream = session.request(headers);
    stream.end(grpcFrame(Buffer.alloc(0)));
    // Nobody reads the message, so most of it stays with the server.
    begun.push(await once(stream, "response").catch((error: Error) => error.message));
    stream.on("error", () => {}).destroy(new Error("canceled"));
  }
  session.destroy();
  expect(begun.filter((each) => typeof each === "string")).toEqual([]);
});

test("a call is not delayed by streams that always have more, however many", async () => {
  let produced = 0;
  let producedBefore = 0;
  const routes: Routes = (router) => {
    router.service(SandboxService, {
      getStats: () => {
        producedBefore = produced;
        return {};
      },
    });
    router.service(ProcessService, {
      async *exec() {
        for (;;) {
          produced += 1;
          for (const end = performance.now() + 1; performance.now() < end; );
          yield { event: { case: "output", value: { data: new Uint8Array(10) } } };
        }
      },
    });
  };
  await using server = await startTestServer({ routes });
  using client = new GrpcJs(server.authority);
  await client.unary(SandboxService.method.getStats, {});
  using reader = new GrpcJs(server.authority);
  const streams = Array.from({ length: 100 }, () =>
    reader.serverStream(ProcessService.method.exec, shell("")),
  );
  for (const stream of streams) stream.on("error", () => {}).resume();
  await eventually(() => produced > 2 * streams.length);
  const before = produced;
  await client.unary(SandboxService.method.getStats, {});
  const waitedFor = producedBefore - before;
  for (const stream of streams) stream.cancel();
  expect(waitedFor).toBeLessThan(streams.length / 2);
});

test.each([
  ["cancelled", 8],
  ["ended as by an error", 2],
])(
  "calls that are %s right after their headers are not started, except for the first ones",
  async (_how, code) => {
    let begun = 0;
    const authenticator: Authenticator = {
      authenticate: (credentials) => {
        begun += 1;
        for (const end = performance.now() + 0.5; performance.now() < end; );
        return anonymousAuthenticator.authenticate(credentials);
      },
      recheck: () => undefined,
    };
    await using server = await startTestServer({ authenticator });
    const connection = await RawConnection.open(server.authority);
    await connection.send(opening());
    await once(connection.socket, "data");
    connection.ignore();
    const fields = postFields(server.authority, "/berth.v1.SandboxService/GetStats", "application/grpc");
    const calls = Array.from({ length: 300 }, (_, index) => {
      const stream = 2 * index + 1;
      return Buffer.concat([frame(FRAME.headers, FLAG.endHeaders, stream, fields), reset(stream, code)]);
    });
    await connection.send(Buffer.concat(calls));
    using client = new GrpcJs(server.authority);
    await client.unary(SandboxService.method.getStats, {});
    connection.close();
    expect(begun).toBeGreaterThan(1);
    expect(begun).toBeLessThan(calls.length / 3);
  },
);

test("a call whose empty request ends while it is queued is served", async () => {
  const authenticator: Authenticator = {
    authenticate: (credentials) => {
      for (const end = performance.now() + 10; performance.now() < end; );
      return anonymousAuthenticator.authenticate(credentials);
    },
    recheck: () => undefined,
  };
  await using server = await startTestServer({ authenticator });
  const session = http2.connect(server.url);
  await once(session, "remoteSettings");
  const headers = {
    ":method": "POST",
    ":path": "/berth.v1.SandboxService/GetStats",
    "content-type": "application/proto",
  };
  const statuses = Array.from({ length: 5 }, async () => {
    const stream = session.request(headers);
    stream.end();
    const [answer] = (await once(stream, "response")) as [http2.IncomingHttpHeaders];
    stream.resume();
    return answer[":status"];
  });
  expect(await Promise.all(statuses)).toEqual([200, 200, 200, 200, 200]);
  session.close();
});

test.each([0, 1, 2, 5, 7, 8, 11, 99])("a stream reset with code %d ends its handler alone", async (code) => {
  await using server = await startTestServer();
  for (const type of ["application/grpc", "application/grpc-web+proto"]) {
    const session = http2.connect(server.url);
    session.on("error", () => {});
    const headers = {
      ":method": "POST",
      ":path": "/berth.v1.SandboxService/WatchEvents",
      "content-type": type,
    };
    const whole = session.request(headers);
    const half = session.request(headers);
    for (const stream of [whole, half]) stream.on("error", () => {});
    whole.end(grpcFrame(Buffer.alloc(0)));
    half.write(Buffer.from([0, 0]));
    await once(whole, "data");
    expect(server.record.open).toBe(1);
    whole.close(code);
    half.close(code);
    await eventually(() => server.record.open === 0);
    session.destroy();
  }
  await eventually(() => server.log.calls.length === 4);
  using client = new GrpcJs(server.authority);
  await client.unary(SandboxService.method.getStats, {});
});

test("an upload that grpc-js cancels ends with an error in its handler", async () => {
  await using server = await startTestServer();
  using client = new GrpcJs(server.authority);
  const upload = client.clientStream(uploadMethod, () => {});
  upload.on("error", () => {});
  upload.write(create(BytesValueSchema, { value: new Uint8Array(1000) }));
  await eventually(() => server.record.uploaded === 1000);
  upload.cancel();
  await eventually(() => server.record.uploadError !== undefined);
  expect(server.record.uploadError).toMatchObject({ name: "BerthError", reason: "CANCELED" });
});

test.each([
  ["its client halts in between", 500, 0],
  ["the event loop is blocked", 0, 50],
])("an upload that is reset after its end is not whole, also while %s", async (_, haltedMs, blockedMs) => {
  await using server = await startTestServer();
  const pings: Buffer[] = [];
  const connection = (await RawConnection.open(server.authority)).followPings((ping) => pings.push(ping));
  const fields = postFields(server.authority, "/test.UploadService/Upload", "application/grpc");
  const message = grpcFrame(
    toBinary(BytesValueSchema, create(BytesValueSchema, { value: new Uint8Array(1000) })),
  );
  await connection.send(Buffer.concat([opening(), frame(FRAME.headers, FLAG.endHeaders, 1, fields)]));
  await connection.send(frame(FRAME.data, 0, 1, message));
  await eventually(() => server.record.uploaded === 1000);
  await connection.send(frame(FRAME.data, FLAG.endStream, 1));
  await sleep(haltedMs);
  const answers = pings.map((ping) => frame(FRAME.ping, FLAG.ack, 0, ping));
  void connection.send(Buffer.concat([...answers, reset(1)]));
  for (const since = performance.now(); performance.now() - since < blockedMs; );
  await expect.poll(() => server.record.uploadError).toBeDefined();
  expect(server.record.uploadError).toMatchObject({ name: "BerthError", reason: "CANCELED" });
});

test("an upload that ends is whole once its client has answered, also among many", async () => {
  await using server = await startTestServer();
  const session = http2.connect(server.url);
  const headers = {
    ":method": "POST",
    ":path": "/test.UploadService/Upload",
    "content-type": "application/grpc",
  };
  const message = grpcFrame(
    toBinary(BytesValueSchema, create(BytesValueSchema, { value: new Uint8Array(10) })),
  );
  const statuses = Array.from({ length: 100 }, async () => {
    const stream = session.request(headers);
    const trailers = once(stream, "trailers");
    stream.resume().end(message);
    return (await trailers)[0]["grpc-status"];
  });
  expect(new Set(await Promise.all(statuses))).toEqual(new Set(["0"]));
  session.close();
});

test("an upload whose connection breaks ends with an error in its handler", async () => {
  await using server = await startTestServer();
  const session = http2.connect(server.url);
  session.on("error", () => {});
  const stream = session.request({
    ":method": "POST",
    ":path": "/test.UploadService/Upload",
    "content-type": "application/grpc",
  });
  stream.on("error", () => {});
  stream.write(
    grpcFrame(toBinary(BytesValueSchema, create(BytesValueSchema, { value: new Uint8Array(1000) }))),
  );
  await eventually(() => server.record.uploaded === 1000);
  session.destroy();
  await eventually(() => server.record.uploadError !== undefined);
  expect(server.record.uploadError).toMatchObject({ name: "BerthError", reason: "CANCELED" });
});

describe.each(["application/grpc", "application/grpc-web+proto"])("half requests of %s", (type) => {
  test("hold a bounded amount of memory together, and release it", async () => {
    const receiving = new ReceiveBudget(1_000_000);
    await using server = await startTestServer({ receiving });
    const session = http2.connect(server.url);
    session.on("error", () => {});
    const call = () => {
      const headers = {
        ":method": "POST",
        ":path": "/berth.v1.SandboxService/GetSandbox",
        "content-type": type,
      };
      const stream = session.request(headers);
      stream.on("error", () => {});
      return stream;
    };
    const half = Array.from({ length: 9 }, () => {
      const stream = call();
      stream.write(grpcFrame(Buffer.alloc(100_000), 0, 200_000));
      return stream;
    });
    using client = new GrpcJs(server.authority);
    const big = { sandboxId: "x".repeat(200_000) };
    const outcome = () =>
      client.unary(SandboxService.method.getSandbox, big).then(
        () => "taken",
        (error) => detailOf(error.metadata)?.reason,
      );
    // Another call would have the room of those that have not arrived.
    await expect.poll(() => receiving.heldBytes).toBeGreaterThan(9 * 95_000);
    expect(await outcome()).toBe(ErrorReason.TOO_MANY_OPERATIONS);
    // Small calls still work.
    await client.unary(SandboxService.method.getStats, {});
    for (const stream of half) stream.close(8);
    await expect.poll(() => receiving.heldBytes).toBe(0);
    expect(await outcome()).toBe("taken");
    session.destroy();
  });
});

test.each([
  ["an upload that its handler does not read", "/test.UploadService/Upload", "application/grpc"],
  [
    "an upload by the library that its handler does not read",
    "/test.UploadService/Upload",
    "application/grpc-web+proto",
  ],
  ["a call that is not admitted yet", "/berth.v1.SandboxService/GetSandbox", "application/grpc"],
])("%s ends when what arrived of it has no room in memory", async (_what, path, type) => {
  const receiving = new ReceiveBudget(2 << 20);
  const isUpload = path.endsWith("Upload");
  const authenticator: Authenticator = {
    ...anonymousAuthenticator,
    authenticate: () => new Promise(() => {}),
  };
  await using server = await startTestServer({ receiving, ...(!isUpload && { authenticator }) });
  const session = http2.connect(server.url);
  const headers = { ":method": "POST", ":path": path, "content-type": type, "x-test": "ignore" };
  const stream = session.request(headers).resume();
  if (isUpload) {
    stream.write(
      grpcFrame(toBinary(BytesValueSchema, create(BytesValueSchema, { value: new Uint8Array(9) }))),
    );
    await eventually(() => server.record.uploaded === 9);
  }
  stream.write(grpcFrame(Buffer.alloc(3 << 20)));
  await expect
    .poll(() => server.log.calls[0]?.fields)
    .toMatchObject({
      code: "RESOURCE_EXHAUSTED",
      reason: "TOO_MANY_OPERATIONS",
    });
  await expect.poll(() => receiving.heldBytes).toBe(0);
  server.record.letGo.resolve();
  session.destroy();
});

/** Opens an upload whose handler reads only the first message. */
async function openUnread(server: TestServer): Promise<RawConnection> {
  const connection = (await RawConnection.open(server.authority)).ignore();
  const fields = postFields(server.authority, "/test.UploadService/Upload", "application/grpc");
  const message = grpcFrame(
    toBinary(BytesValueSchema, create(BytesValueSchema, { value: new Uint8Array(9) })),
  );
  await connection.send(
    Buffer.concat([
      opening(),
      frame(FRAME.settings, FLAG.ack, 0),
      frame(FRAME.headers, FLAG.endHeaders, 1, Buffer.concat([fields, field("x-test", "ignore")])),
      frame(FRAME.data, 0, 1, message),
    ]),
  );
  await eventually(() => server.record.uploaded === 9);
  return connection;
}

const ONE_BYTE = frame(FRAME.data, 0, 1, Buffer.of(0));
/** As much as one read of the socket, in frames of a type that does not exist and is ignored. */
const FILLER = Buffer.concat(Array.from({ length: 4 }, () => frame(0x42, 0, 0, Buffer.alloc(16_000))));

test.each([
  ["in frames of one byte", Buffer.concat(Array.from({ length: 1000 }, () => ONE_BYTE)), 200],
  ["one byte in each read of the socket", Buffer.concat([ONE_BYTE, FILLER]), 500],
])("what is not read of a request takes little more memory than its bytes: %s", async (_, block, blocks) => {
  await using server = await startTestServer();
  const connection = await openUnread(server);
  const before = await keptBytes();
  for (let sent = 0; sent < blocks; sent++) await connection.send(block);
  // Answered after all that was sent before.
  const { promise: arrived, resolve } = Promise.withResolvers<void>();
  for (const event of ["data", "close"]) connection.socket.once(event, () => resolve());
  await connection.send(frame(FRAME.ping, 0, 0, Buffer.alloc(8)));
  await arrived;
  expect((await keptBytes()) - before).toBeLessThan(5_000_000);
  expect(connection.closed).toBe(false);
  server.record.letGo.resolve();
  connection.socket.destroy();
});

test("pieces of a request that are not read count by the memory that they take", async () => {
  const receiving = new ReceiveBudget(200_000);
  await using server = await startTestServer({ receiving });
  const connection = await openUnread(server);
  connection.socket.setNoDelay();
  // Each in a turn of its own. Their bytes have room.
  for (let sent = 0; sent < 50_000 && server.log.calls.length === 0; sent++) {
    await connection.send(ONE_BYTE);
    await nextTurn();
  }
  await expect.poll(() => server.log.calls[0]?.fields).toMatchObject({ reason: "TOO_MANY_OPERATIONS" });
  server.record.letGo.resolve();
  connection.socket.destroy();
});

/** Makes calls whose client takes one byte of each answer. */
function callUnread(
  server: TestServer,
  count: number,
  { path, message, type = "application/grpc" }: { path: string; message: Uint8Array; type?: string },
): { readonly session: http2.ClientHttp2Session; readonly streams: readonly http2.ClientHttp2Stream[] } {
  // With a window of 0, not even an error would arrive.
  const session = http2.connect(server.url, { settings: { initialWindowSize: 1 } });
  session.on("error", () => {});
  const streams = Array.from({ length: count }, () => {
    const stream = session.request({ ":method": "POST", ":path": path, "content-type": type });
    return stream.on("error", () => {}).end(grpcFrame(message));
  });
  return { session, streams };
}

function execUnread(server: TestServer, count: number): http2.ClientHttp2Session {
  const message = toBinary(ExecRequestSchema, create(ExecRequestSchema, shell("flood")));
  return callUnread(server, count, { path: "/berth.v1.ProcessService/Exec", message }).session;
}

test("small messages that are not read are few, and keep nothing besides", async () => {
  let produced = 0;
  let over = false;
  const routes: Routes = (router) => {
    router.service(ProcessService, {
      async *exec() {
        while (!over) {
          produced += 1;
          yield { event: { case: "output", value: { data: Buffer.of(0) } } };
          await nextTurn();
          // Node puts other small messages next to it.
          for (let count = 0; count < 4; count++) Buffer.allocUnsafe(4000);
        }
      },
    });
  };
  await using server = await startTestServer({ routes });
  const before = await keptBytes();
  const session = execUnread(server, 1);
  for (let calm = 0, last = -1; calm < 5; ) {
    await sleep(20);
    calm = produced > 0 && produced === last ? calm + 1 : 0;
    last = produced;
  }
  expect(produced).toBeLessThan(1_000);
  expect((await keptBytes()) - before).toBeLessThan(3_000_000);
  over = true;
  session.destroy();
});

test("what many streams have unsent has a limit, and another that is read continues", async () => {
  const maxSendingBytes = 1 << 20;
  await using server = await startTestServer({ limits: { maxSendingBytes } });
  const producedUnread = async () => {
    server.record.produced = 0;
    const session = execUnread(server, 16);
    await eventually(() => server.record.open === 16);
    return { session, bytes: (await standstill(server)) * MESSAGE_BYTES };
  };
  const { session, bytes } = await producedUnread();
  // Each stream may have a little, and one message more.
  expect(bytes).toBeLessThan(maxSendingBytes + 16 * (16_384 + MESSAGE_BYTES));
  using client = new GrpcJs(server.authority);
  const read = client.serverStream(ProcessService.method.exec, shell("pour 200"));
  let messages = 0;
  for await (const _ of read) messages += 1;
  expect(messages).toBe(202);
  session.destroy();
  await eventually(() => server.record.open === 0);
  // And the next ones have as much.
  const again = await producedUnread();
  expect(again.bytes).toBeGreaterThan(maxSendingBytes / 2 + 16 * MESSAGE_BYTES);
  again.session.destroy();
});

test.each(["application/grpc", "application/grpc-web+proto"])(
  "answers in %s that are not read have a limit together",
  async (type) => {
    const sandboxId = "x".repeat(200_000);
    let answers = 0;
    const routes: Routes = (router) => {
      router.service(SandboxService, {
        getSandbox: () => {
          answers++;
          return { sandbox: { sandboxId } };
        },
      });
      router.service(ProcessService, {
        async *exec() {
          for (let count = 0; count < 4; count++) {
            yield { event: { case: "output", value: { data: new Uint8Array(sandboxId.length) } } };
          }
        },
      });
    };
    const lines: unknown[] = [];
    const audit = new AuditLog({ append: (line) => lines.push(JSON.parse(line)) }, { reads: true });
    await using server = await startTestServer({ routes, audit, limits: { maxSendingBytes: 1 << 20 } });
    const path = "/berth.v1.SandboxService/GetSandbox";
    const message = toBinary(GetSandboxRequestSchema, create(GetSandboxRequestSchema));
    const { session, streams } = callUnread(server, 8, { path, message, type });
    const statuses: unknown[] = [];
    const note = ({ "grpc-status": status }: http2.IncomingHttpHeaders) => {
      if (status !== undefined) statuses.push(status);
    };
    for (const stream of streams) stream.on("response", note).on("trailers", note);
    await expect.poll(() => answers).toBe(8);
    // For four there is room.
    await expect.poll(() => callsInFlight(server)).toBe(4);
    await expect.poll(() => statuses).toEqual(["9", "9", "9", "9"]);
    // They were carried out.
    const dropped = { decision: "allowed", reason: "ANSWER_DROPPED" };
    expect(lines).toEqual(Array(4).fill(expect.objectContaining(dropped)));
    // A stream that is read continues.
    for (const [, transportTo] of TRANSPORTS) {
      using transport = transportTo(server.url);
      const read = async () => {
        let messages = 0;
        for await (const _ of createClient(ProcessService, transport).exec({})) messages += 1;
        return messages;
      };
      await expect(read()).resolves.toBe(4);
    }
    session.destroy();
    await expect.poll(() => callsInFlight(server)).toBe(0);
    using client = new GrpcJs(server.authority);
    const { message: read } = await client.unary(SandboxService.method.getSandbox, {});
    expect(read.sandbox?.sandboxId).toHaveLength(sandboxId.length);
  },
);

test("a thousand streams at once run on one connection", async () => {
  await using server = await startTestServer();
  using client = new GrpcJs(server.authority);
  const streams = Array.from({ length: 1000 }, () => {
    const stream = client.serverStream(SandboxService.method.watchEvents, {});
    stream.on("error", () => {});
    return stream.resume();
  });
  await eventually(() => server.record.open === 1000);
  for (const stream of streams) stream.cancel();
  await eventually(() => server.record.open === 0);
});
