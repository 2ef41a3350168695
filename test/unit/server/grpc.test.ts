import { once } from "node:events";
import { create } from "@bufbuild/protobuf";
import { BytesValueSchema } from "@bufbuild/protobuf/wkt";
import * as grpc from "@grpc/grpc-js";
import { describe, expect, test } from "vitest";
import { ErrorReason } from "../../../gen/ts/berth/v1/error_pb.js";
import { type ExecResponse, ProcessService } from "../../../gen/ts/berth/v1/process_pb.js";
import { SandboxService } from "../../../gen/ts/berth/v1/sandbox_pb.js";
import {
  ServerReflection,
  ServerReflectionRequestSchema,
} from "../../../gen/ts/grpc/reflection/v1/reflection_pb.js";
import { BerthError } from "../../../src/base/errors.ts";
import { eventually } from "../../support/eventually.ts";
import { GrpcJs, grpcFailure } from "../../support/server/grpc-js.ts";
import { SECRET } from "../../support/server/handlers.ts";
import { startTestServer } from "../../support/server/test-server.ts";
import { uploadMethod } from "../../support/server/upload-service.ts";

const { getStats, getSandbox, watchEvents } = SandboxService.method;
const { exec } = ProcessService.method;
const shell = (line: string) => ({ command: { case: "shell" as const, value: line } });

async function connect() {
  const server = await startTestServer();
  const client = new GrpcJs(server.authority);
  return {
    ...server,
    client,
    async [Symbol.asyncDispose]() {
      client[Symbol.dispose]();
      await server[Symbol.asyncDispose]();
    },
  };
}

describe("unary", () => {
  test("answers", async () => {
    await using t = await connect();
    const { message } = await t.client.unary(getStats, {});
    expect(message).toMatchObject({ totalSandboxes: 3, maxSandboxes: 100 });
    expect(t.record.owner).toBe("default");
  });

  test("carries headers and trailers of the handler", async () => {
    await using t = await connect();
    const { metadata, trailer } = await t.client.unary(getStats, {}, { header: { "x-test": "header yes" } });
    expect(metadata.get("x-answer")).toEqual(["yes"]);
    expect(trailer.get("x-last")).toEqual(["yes"]);
  });

  test("fails with the handler's error and its detail", async () => {
    await using t = await connect();
    const failure = await grpcFailure(
      t.client.unary(getStats, {}, { header: { "x-test": "fail SANDBOX_LIMIT" } }),
    );
    expect(failure).toMatchObject({
      code: "RESOURCE_EXHAUSTED",
      message: "failed: SANDBOX_LIMIT",
      detail: {
        reason: ErrorReason.SANDBOX_LIMIT,
        metadata: { sandbox_id: "sbx_1" },
        retryAfter: { seconds: 1n, nanos: 500_000_000 },
      },
    });
  });

  test("hides an unexpected error, and logs it with the same id", async () => {
    await using t = await connect();
    const failure = await grpcFailure(t.client.unary(getStats, {}, { header: { "x-test": "crash" } }));
    expect(failure.code).toBe("INTERNAL");
    expect(JSON.stringify(failure)).not.toContain("secret");
    const id = failure.detail?.metadata.error_id;
    expect(failure.message).toBe(`internal error (id ${id}); the server's log has the details`);
    const [line] = t.log.lines.filter(({ fields }) => fields.error_id === id);
    expect(line).toMatchObject({ level: "error", fields: { err: { message: SECRET } } });
  });

  test("says UNIMPLEMENTED for a method without a handler, and for one that does not exist", async () => {
    await using t = await connect();
    const { pauseSandbox } = SandboxService.method;
    expect(await grpcFailure(t.client.unary(pauseSandbox, {}))).toMatchObject({
      code: "UNIMPLEMENTED",
      detail: { reason: ErrorReason.UNIMPLEMENTED },
    });
    const unknown = { ...getStats, name: "Nope" };
    expect(await grpcFailure(t.client.unary(unknown, {}))).toMatchObject({
      code: "UNIMPLEMENTED",
      message: "This server has no method berth.v1.SandboxService/Nope.",
      detail: { reason: ErrorReason.UNIMPLEMENTED },
    });
  });

  test("a deadline ends the call, also for a handler that does not listen", async () => {
    await using t = await connect();
    for (const order of ["hang", "ignore"]) {
      // Set as a header, so that the client does not enforce it.
      const call = t.client.unary(getStats, {}, { header: { "x-test": order, "grpc-timeout": "150m" } });
      expect(await grpcFailure(call)).toMatchObject({
        code: "DEADLINE_EXCEEDED",
        message: "The deadline of this call passed before it was done.",
        detail: { reason: ErrorReason.DEADLINE_EXCEEDED },
      });
    }
    await eventually(() => t.log.calls.length === 2);
    expect(t.log.calls.map(({ fields }) => fields.code)).toEqual(["DEADLINE_EXCEEDED", "DEADLINE_EXCEEDED"]);
  });

  test("the handler sees a deadline as a BerthError", async () => {
    await using t = await connect();
    // On a busy machine, a short deadline passes before the call has reached its handler.
    for (let ms = 100; t.record.abortReason === undefined && ms < 60_000; ms *= 2) {
      const header = { "x-test": "hang", "grpc-timeout": `${ms}m` };
      expect(await grpcFailure(t.client.unary(getStats, {}, { header }))).toMatchObject({
        code: "DEADLINE_EXCEEDED",
      });
    }
    expect(t.record.abortReason).toBeInstanceOf(BerthError);
  });

  test("accepts any deadline of gRPC, also one that is too long for a timer", async () => {
    await using t = await connect();
    for (const timeout of ["600H", "99999999H", "99999999S"]) {
      const call = t.client.unary(
        getStats,
        {},
        { header: { "x-test": "sleep 20", "grpc-timeout": timeout } },
      );
      const outcome = await call.then(
        () => "answered",
        (error: Error) => error.message,
      );
      expect(outcome, timeout).toBe("answered");
    }
  });

  test("a cancel reaches the handler", async () => {
    await using t = await connect();
    const call = t.client.client.makeUnaryRequest(
      "/berth.v1.SandboxService/GetStats",
      () => Buffer.alloc(0),
      (bytes) => bytes,
      undefined,
      ((): grpc.Metadata => {
        const metadata = new grpc.Metadata();
        metadata.set("x-test", "hang");
        return metadata;
      })(),
      () => {},
    );
    call.on("error", () => {});
    await eventually(() => t.record.unary === 1);
    call.cancel();
    await eventually(() => t.record.abortReason !== undefined);
    expect(t.record.abortReason).toMatchObject({ reason: "CANCELED" });
    await eventually(() => t.log.calls.length === 1);
    expect(t.log.calls[0]?.fields.code).toBe("CANCELLED");
  });
});

describe("server streaming", () => {
  async function collect(stream: grpc.ClientReadableStream<ExecResponse>) {
    const events: ExecResponse["event"][] = [];
    for await (const { event } of stream as AsyncIterable<ExecResponse>) events.push(event);
    return events;
  }

  test("delivers every message in order", async () => {
    await using t = await connect();
    const events = await collect(t.client.serverStream(exec, shell("count 500")));
    expect(events).toHaveLength(502);
    const offsets = events.flatMap((event) => (event.case === "output" ? [event.value.offset] : []));
    expect(offsets).toEqual(Array.from({ length: 500 }, (_, index) => BigInt(index * 10)));
    expect(events.at(-1)).toMatchObject({ case: "exited", value: { exitCode: 7 } });
    expect(t.record.open).toBe(0);
  });

  test.each([
    ["fail SANDBOX_DELETED", "ABORTED", ErrorReason.SANDBOX_DELETED],
    ["crash", "INTERNAL", ErrorReason.INTERNAL],
  ])("ends in the error thrown amid it: %s", async (order, code, reason) => {
    await using t = await connect();
    const stream = t.client.serverStream(exec, shell(order));
    const first = once(stream, "data");
    const failure = await grpcFailure(collect(stream));
    expect((await first)[0]).toMatchObject({ event: { case: "started" } });
    expect(failure).toMatchObject({ code, detail: { reason } });
    expect(JSON.stringify(failure.message)).not.toContain("secret");
    expect(t.record.open).toBe(0);
  });

  test("a cancel ends the handler", async () => {
    await using t = await connect();
    const stream = t.client.serverStream(watchEvents, {});
    stream.on("error", () => {});
    await once(stream, "data");
    expect(t.record.open).toBe(1);
    stream.cancel();
    await eventually(() => t.record.open === 0);
    expect(t.record.abortReason).toMatchObject({ reason: "CANCELED" });
  });

  test("a deadline ends the handler", async () => {
    await using t = await connect();
    // On a busy machine, a short deadline passes before the call has reached its handler.
    for (let ms = 200; t.record.begun === 0 && ms < 60_000; ms *= 2) {
      const stream = t.client.serverStream(exec, shell("hang"), { deadline: Date.now() + ms });
      expect(await grpcFailure(collect(stream))).toMatchObject({ code: "DEADLINE_EXCEEDED" });
    }
    expect(t.record.begun).toBe(1);
    await eventually(() => t.record.open === 0);
  });

  test("a lost connection ends the handler", async () => {
    await using t = await connect();
    const stream = t.client.serverStream(watchEvents, {});
    stream.on("error", () => {});
    await once(stream, "data");
    t.client.client.close();
    stream.cancel();
    await eventually(() => t.record.open === 0);
  });
});

test("client streaming takes any number of messages", async () => {
  await using t = await connect();
  const { promise, resolve, reject } = Promise.withResolvers<bigint | undefined>();
  const upload = t.client.clientStream(uploadMethod, (error, value) =>
    error ? reject(error) : resolve(value?.value),
  );
  for (let index = 0; index < 300; index++) {
    if (!upload.write(create(BytesValueSchema, { value: new Uint8Array(50_000) })))
      await once(upload, "drain");
  }
  upload.end();
  expect(await promise).toBe(15_000_000n);
});

test("bidirectional streaming answers while requests still arrive", async () => {
  await using t = await connect();
  const call = t.client.bidi(ServerReflection.method.serverReflectionInfo);
  for (const name of ["berth.v1.SandboxService", "berth.v1.ProcessService.Exec", "no.such.Thing"]) {
    const answer = once(call, "data");
    call.write(
      create(ServerReflectionRequestSchema, {
        messageRequest: { case: "fileContainingSymbol", value: name },
      }),
    );
    const [{ messageResponse }] = await answer;
    expect(messageResponse.case).toBe(name.startsWith("no") ? "errorResponse" : "fileDescriptorResponse");
  }
  call.end();
  await once(call, "end");
});

test("a request message of any size up to the limit arrives complete", async () => {
  await using t = await connect();
  const sandboxId = "x".repeat(4 * 1024 * 1024 - 100);
  const { message } = await t.client.unary(getSandbox, { sandboxId });
  expect(message.sandbox?.sandboxId).toBe(String(sandboxId.length));
});
