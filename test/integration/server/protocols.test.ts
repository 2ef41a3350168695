import { once } from "node:events";
import { type CallOptions, Code, ConnectError, createClient } from "@connectrpc/connect";
import { compressionBrotli, compressionGzip } from "@connectrpc/connect-node";
import { describe, expect, test } from "vitest";
import { ErrorDetailSchema, ErrorReason } from "../../../gen/ts/berth/v1/error_pb.js";
import { ProcessService } from "../../../gen/ts/berth/v1/process_pb.js";
import { SandboxService } from "../../../gen/ts/berth/v1/sandbox_pb.js";
import { ReceiveBudget } from "../../../src/server/limits.ts";
import { eventually } from "../../support/eventually.ts";
import { startTestServer } from "../../support/server/test-server.ts";
import { TRANSPORTS, type TransportSetup } from "../../support/server/transports.ts";
import { uploadMethod } from "../../support/server/upload-service.ts";

const shell = (line: string) => ({ command: { case: "shell" as const, value: line } });

async function failureOf(call: Promise<unknown>) {
  const error = await call.then(
    () => Promise.reject(new Error("the call did not fail")),
    (reason: unknown) => ConnectError.from(reason),
  );
  return {
    code: Code[error.code],
    message: error.rawMessage,
    detail: error.findDetails(ErrorDetailSchema)[0],
  };
}

async function collect<T>(stream: AsyncIterable<T>): Promise<T[]> {
  const items: T[] = [];
  for await (const item of stream) items.push(item);
  return items;
}

describe.each(TRANSPORTS)("%s", (_name, transportTo) => {
  async function connect(setup: TransportSetup = {}) {
    const receiving = new ReceiveBudget(512 * 1024 * 1024);
    const server = await startTestServer({ receiving });
    const transport = transportTo(server.url, setup);
    return {
      ...server,
      receiving,
      sandboxes: createClient(SandboxService, transport),
      processes: createClient(ProcessService, transport),
      upload: (values: AsyncIterable<{ value: Uint8Array<ArrayBuffer> }>, options: CallOptions = {}) =>
        transport.stream(uploadMethod, options.signal, undefined, options.headers, values),
      async [Symbol.asyncDispose]() {
        transport[Symbol.dispose]();
        await server[Symbol.asyncDispose]();
      },
    };
  }

  test("unary", async () => {
    await using t = await connect();
    expect(await t.sandboxes.getStats({})).toMatchObject({ totalSandboxes: 3, maxSandboxes: 100 });
    expect(t.record.owner).toBe("default");
  });

  test("unary, with headers and trailers of the handler", async () => {
    await using t = await connect();
    let header: Headers | undefined;
    let trailer: Headers | undefined;
    await t.sandboxes.getStats(
      {},
      {
        headers: { "x-test": "header yes" },
        onHeader: (headers) => {
          header = headers;
        },
        onTrailer: (trailers) => {
          trailer = trailers;
        },
      },
    );
    expect(header?.get("x-answer")).toBe("yes");
    expect(trailer?.get("x-last")).toBe("yes");
  });

  test("server streaming", async () => {
    await using t = await connect();
    const events = await collect(t.processes.exec(shell("count 200")));
    expect(events.map(({ event }) => event.case)).toEqual([
      "started",
      ...Array.from({ length: 200 }, () => "output"),
      "exited",
    ]);
    expect(t.record.open).toBe(0);
  });

  test("client streaming", async () => {
    await using t = await connect();
    const response = await t.upload(
      (async function* () {
        for (let index = 0; index < 100; index++) yield { value: new Uint8Array(10_000) };
      })(),
    );
    expect(await collect(response.message)).toMatchObject([{ value: 1_000_000n }]);
  });

  test("errors of a unary handler", async () => {
    await using t = await connect();
    const failure = await failureOf(
      t.sandboxes.getStats({}, { headers: { "x-test": "fail SANDBOX_NOT_FOUND" } }),
    );
    expect(failure).toMatchObject({
      code: "NotFound",
      message: "failed: SANDBOX_NOT_FOUND",
      detail: {
        reason: ErrorReason.SANDBOX_NOT_FOUND,
        metadata: { sandbox_id: "sbx_1" },
        retryAfter: { seconds: 1n, nanos: 500_000_000 },
      },
    });
    const crash = await failureOf(t.sandboxes.getStats({}, { headers: { "x-test": "crash" } }));
    expect(crash).toMatchObject({
      code: "Internal",
      message: expect.stringMatching(/^internal error \(id \w+\)/),
    });
    expect(
      JSON.stringify(crash, (_, value) => (typeof value === "bigint" ? String(value) : value)),
    ).not.toContain("secret");
  });

  test("errors amid a stream", async () => {
    await using t = await connect();
    const failure = await failureOf(collect(t.processes.exec(shell("fail SANDBOX_TERMINATED"))));
    expect(failure).toMatchObject({ code: "Aborted", detail: { reason: ErrorReason.SANDBOX_TERMINATED } });
    const crash = await failureOf(collect(t.processes.exec(shell("crash"))));
    expect(crash).toMatchObject({
      code: "Internal",
      message: expect.stringMatching(/^internal error \(id \w+\)/),
    });
    expect(t.record.open).toBe(0);
  });

  test("a method without a handler, and one that does not exist", async () => {
    await using t = await connect();
    expect(await failureOf(t.sandboxes.deleteSandbox({}))).toMatchObject({
      code: "Unimplemented",
      detail: { reason: ErrorReason.UNIMPLEMENTED },
    });
    const { getStats } = SandboxService.method;
    const transport = transportTo(t.url);
    const unknown = { ...getStats, name: "Nope" };
    const failure = await failureOf(transport.unary(unknown, undefined, undefined, undefined, {}));
    transport[Symbol.dispose]();
    expect(failure).toMatchObject({
      code: "Unimplemented",
      message: "This server has no method berth.v1.SandboxService/Nope.",
      detail: { reason: ErrorReason.UNIMPLEMENTED },
    });
  });

  test("a cancel ends unary and streaming handlers", async () => {
    await using t = await connect();
    const unary = new AbortController();
    const call = failureOf(t.sandboxes.getStats({}, { headers: { "x-test": "hang" }, signal: unary.signal }));
    await eventually(() => t.record.unary === 1);
    unary.abort();
    expect((await call).code).toBe("Canceled");
    await eventually(() => t.record.abortReason !== undefined);
    expect(t.record.abortReason).toMatchObject({ reason: "CANCELED" });

    t.record.abortReason = undefined;
    const streaming = new AbortController();
    const stream = t.sandboxes.watchEvents({}, { signal: streaming.signal })[Symbol.asyncIterator]();
    await stream.next();
    expect(t.record.open).toBe(1);
    const next = failureOf(stream.next());
    streaming.abort();
    expect((await next).code).toBe("Canceled");
    await eventually(() => t.record.open === 0);
    expect(t.record.abortReason).toMatchObject({ reason: "CANCELED" });
    await eventually(() => t.log.calls.length === 2);
    expect(t.log.calls.map(({ fields }) => fields.code)).toEqual(["CANCELLED", "CANCELLED"]);
  });

  test("a deadline ends the call, also if the handler ignores it", async () => {
    await using t = await connect();
    for (const order of ["hang", "ignore"]) {
      // Sent as headers of both protocols, so that the client does not enforce them itself.
      const headers = { "x-test": order, "grpc-timeout": "100m", "connect-timeout-ms": "100" };
      expect(await failureOf(t.sandboxes.getStats({}, { headers }))).toMatchObject({
        code: "DeadlineExceeded",
        detail: { reason: ErrorReason.DEADLINE_EXCEEDED },
      });
    }
    for (const order of ["hang", "ignore"]) {
      const headers = { "grpc-timeout": "100m", "connect-timeout-ms": "100" };
      expect(await failureOf(collect(t.processes.exec(shell(order), { headers })))).toMatchObject({
        code: "DeadlineExceeded",
        detail: { reason: ErrorReason.DEADLINE_EXCEEDED },
      });
    }
    t.record.letGo.resolve();
    await eventually(() => t.record.open === 0);
  });

  test("a deadline of more than 24 days counts as 24 days", async () => {
    await using t = await connect();
    const headers = { "x-test": "sleep 20", "grpc-timeout": "600H", "connect-timeout-ms": "9999999999" };
    expect(await t.sandboxes.getStats({}, { headers })).toMatchObject({ totalSandboxes: 3 });
  });

  test("a message over 4 MiB is refused, plain or compressed", async () => {
    const sandboxId = "x".repeat(5 * 1024 * 1024);
    for (const setup of [{}, { sendCompression: compressionGzip }]) {
      await using t = await connect(setup);
      expect(await failureOf(t.sandboxes.getSandbox({ sandboxId }))).toMatchObject({
        code: "ResourceExhausted",
        message: expect.stringContaining("4194304 bytes"),
        detail: { reason: ErrorReason.MESSAGE_TOO_LARGE, metadata: { limit: "4194304" } },
      });
      // The connection survives it.
      expect(await t.sandboxes.getStats({})).toMatchObject({ totalSandboxes: 3 });
    }
  });

  test("a message over 4 MiB amid a stream of requests is refused", async () => {
    await using t = await connect();
    const values = async function* () {
      yield { value: new Uint8Array(10) };
      yield { value: new Uint8Array(5 * 1024 * 1024) };
    };
    const failure = await failureOf(t.upload(values()).then(({ message }) => collect(message)));
    expect(failure).toMatchObject({
      code: "ResourceExhausted",
      detail: { reason: ErrorReason.MESSAGE_TOO_LARGE },
    });
    expect(t.record.uploadError).toMatchObject({ name: "BerthError", reason: "MESSAGE_TOO_LARGE" });
  });

  test("accepts gzip, and no Brotli", async () => {
    const sandboxId = "x".repeat(100_000);
    await using good = await connect({ sendCompression: compressionGzip });
    expect(await good.sandboxes.getSandbox({ sandboxId })).toMatchObject({
      sandbox: { sandboxId: "100000" },
    });
    await using bad = await connect({ sendCompression: compressionBrotli });
    expect(await failureOf(bad.sandboxes.getSandbox({ sandboxId }))).toMatchObject({
      code: "Unimplemented",
      message: expect.stringContaining("gzip"),
    });
  });

  test.each(["plain", "compressed"])("a %s message counts until its call is over", async (form) => {
    await using t = await connect(form === "plain" ? {} : { sendCompression: compressionGzip });
    const controller = new AbortController();
    const value = `hang ${"x".repeat(100_000)}`;
    const request = { sandboxId: "a", command: { case: "shell", value } } as const;
    const events = t.processes.exec(request, { signal: controller.signal })[Symbol.asyncIterator]();
    await events.next();
    expect(t.receiving.heldBytes).toBeGreaterThan(90_000);
    controller.abort();
    await expect(events.next()).rejects.toThrow();
    await expect.poll(() => t.receiving.heldBytes).toBe(0);
  });

  test("an upload that is refused halfway leaves none of its bytes in memory", async () => {
    await using t = await connect();
    const values = async function* () {
      for (let index = 0; index < 3; index++) yield { value: new Uint8Array(1000) };
    };
    const options = { headers: { "x-test": "fail SANDBOX_NOT_FOUND" } };
    const failure = await failureOf(t.upload(values(), options).then(({ message }) => collect(message)));
    expect(failure).toMatchObject({ code: "NotFound", detail: { reason: ErrorReason.SANDBOX_NOT_FOUND } });
    await eventually(() => t.receiving.heldBytes === 0).catch(() => {});
    expect(t.receiving.heldBytes).toBe(0);
  });

  test("an upload whose client leaves ends with an error in its handler", async () => {
    await using t = await connect();
    const controller = new AbortController();
    const values = async function* () {
      for (;;) {
        yield { value: new Uint8Array(1000) };
        await once(controller.signal, "abort");
      }
    };
    const call = failureOf(
      t.upload(values(), { signal: controller.signal }).then(({ message }) => collect(message)),
    );
    await eventually(() => t.record.uploaded === 1000);
    controller.abort();
    await call;
    await eventually(() => t.record.uploadError !== undefined);
    expect(t.record.uploadError).toMatchObject({ name: "BerthError", reason: "CANCELED" });
  });
});
