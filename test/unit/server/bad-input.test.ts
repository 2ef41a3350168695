import { connect } from "node:net";
import { text } from "node:stream/consumers";
import { gzipSync } from "node:zlib";
import { create, toBinary } from "@bufbuild/protobuf";
import { findTrailerError } from "@connectrpc/connect/protocol-grpc";
import fc from "fast-check";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { ErrorDetailSchema, ErrorReason } from "../../../gen/ts/berth/v1/error_pb.js";
import { GetSandboxRequestSchema, SandboxService } from "../../../gen/ts/berth/v1/sandbox_pb.js";
import { GrpcJs } from "../../support/server/grpc-js.ts";
import { grpcFrame, http2Request, type RawResponse } from "../../support/server/http.ts";
import { startTestServer, type TestServer } from "../../support/server/test-server.ts";

const UNARY = "/berth.v1.SandboxService/GetSandbox";
const STREAM = "/berth.v1.ProcessService/Exec";
const UPLOAD = "/test.UploadService/Upload";
/** Field 1, wire type 7, which does not exist. */
const MALFORMED = Buffer.from([0x0f, 0xff, 0xff]);
const MIB = 1024 * 1024;

let server: TestServer;
beforeAll(async () => {
  server = await startTestServer({
    limits: { readMaxBytesByMethod: { "berth.v1.SandboxService/GetStats": 100 } },
  });
});
afterAll(async () => {
  // The server still works after any input, and logged none as an internal error.
  using client = new GrpcJs(server.authority);
  await client.unary(SandboxService.method.getStats, {});
  expect(server.log.lines.filter(({ level }) => level === "error")).toEqual([]);
  await server[Symbol.asyncDispose]();
});

const grpc = (path: string, body: Buffer, headers: Record<string, string> = {}) =>
  http2Request(
    server.url,
    { ":path": path, "content-type": "application/grpc", te: "trailers", ...headers },
    body,
  );

function grpcStatus({ status, trailers }: RawResponse) {
  const error = findTrailerError(new Headers(trailers));
  return {
    status,
    code: trailers["grpc-status"],
    message: error?.rawMessage,
    reason: error?.findDetails(ErrorDetailSchema)[0]?.reason,
  };
}

const INVALID_ARGUMENT = { status: 200, code: "3", reason: ErrorReason.INVALID_ARGUMENT };
const TOO_LARGE = { status: 200, code: "8", reason: ErrorReason.MESSAGE_TOO_LARGE };
const INTERNAL = { status: 200, code: "13", reason: ErrorReason.INTERNAL };
const UNIMPLEMENTED = { status: 200, code: "12", reason: ErrorReason.UNIMPLEMENTED };

describe.each([
  ["plain gRPC", {}],
  // With any encoding, the library handles the call.
  ["gRPC by the library", { "grpc-encoding": "gzip" }],
] as [string, Record<string, string>][])("%s", (_name, headers) => {
  test.each([UNARY, STREAM])("malformed protobuf is INVALID_ARGUMENT: %s", async (path) => {
    expect(grpcStatus(await grpc(path, grpcFrame(MALFORMED), headers))).toMatchObject(INVALID_ARGUMENT);
  });

  test.each([UNARY, STREAM])("a truncated message is INVALID_ARGUMENT: %s", async (path) => {
    expect(grpcStatus(await grpc(path, grpcFrame(Buffer.alloc(3), 0, 10), headers))).toMatchObject(
      INVALID_ARGUMENT,
    );
    expect(grpcStatus(await grpc(path, Buffer.from([0, 0]), headers))).toMatchObject(INVALID_ARGUMENT);
  });

  test.each([UNARY, STREAM])("no message and a second one are UNIMPLEMENTED: %s", async (path) => {
    expect(grpcStatus(await grpc(path, Buffer.alloc(0), headers))).toMatchObject(UNIMPLEMENTED);
    const twice = Buffer.concat([grpcFrame(Buffer.alloc(0)), grpcFrame(Buffer.alloc(0))]);
    expect(grpcStatus(await grpc(path, twice, headers))).toMatchObject(UNIMPLEMENTED);
  });

  test("an announced size that is too large is refused before the data arrives", async () => {
    const lie = grpcFrame(Buffer.alloc(10), 0, 0xffff_ffff);
    expect(grpcStatus(await grpc(UNARY, lie, headers))).toMatchObject(TOO_LARGE);
  });

  test("a message that is too large is refused, with the limit", async () => {
    const big = toBinary(
      GetSandboxRequestSchema,
      create(GetSandboxRequestSchema, { sandboxId: "x".repeat(5 * MIB) }),
    );
    const status = grpcStatus(await grpc(UNARY, grpcFrame(big), headers));
    expect(status).toMatchObject(TOO_LARGE);
    expect(status.message).toBe(
      "The request message is larger than the 4194304 bytes that this call takes. Send less at once, or use a streaming call.",
    );
  });

  test("a method may have its own limit", async () => {
    const response = await grpc("/berth.v1.SandboxService/GetStats", grpcFrame(Buffer.alloc(200)), headers);
    expect(grpcStatus(response)).toMatchObject({
      ...TOO_LARGE,
      message: expect.stringContaining("the 100 bytes"),
    });
  });

  test("a bad deadline is INVALID_ARGUMENT", async () => {
    for (const timeout of ["soon", "1", "-1S", "123456789S"]) {
      const response = await grpc(UNARY, grpcFrame(Buffer.alloc(0)), { ...headers, "grpc-timeout": timeout });
      expect(grpcStatus(response)).toMatchObject(INVALID_ARGUMENT);
    }
  });

  test("random bytes never end in INTERNAL", async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.constantFrom(UNARY, STREAM),
        fc.oneof(
          fc.uint8Array({ maxLength: 64 }).map((bytes) => Buffer.from(bytes)),
          fc.uint8Array({ maxLength: 64 }).map((bytes) => grpcFrame(bytes)),
        ),
        async (path, body) => {
          const { code } = grpcStatus(await grpc(path, body, headers));
          expect(["0", "3", "8", "12"]).toContain(code);
        },
      ),
      { numRuns: 60 },
    );
  });
});

test.each([
  ["by a path of our own", UNARY, "application/grpc"],
  ["by the library", UNARY, "application/grpc+json"],
  ["in a stream of requests", "/test.UploadService/Upload", "application/grpc"],
])("a compressed message without its encoding is INTERNAL, as gRPC specifies: %s", async (_, path, type) => {
  const response = await grpc(path, grpcFrame(gzipSync(Buffer.alloc(0)), 1), { "content-type": type });
  expect(grpcStatus(response)).toMatchObject({
    ...INTERNAL,
    message: expect.stringContaining("no encoding"),
  });
});

test("an unknown encoding is UNIMPLEMENTED, with the known ones", async () => {
  const response = await grpc(UNARY, grpcFrame(Buffer.alloc(0)), { "grpc-encoding": "snappy" });
  expect(grpcStatus(response)).toMatchObject(UNIMPLEMENTED);
  expect(response.headers["grpc-accept-encoding"]).toBe("gzip");
});

test.each(["application/grpc;charset=utf-8", "application/grpc+proto; charset=UTF-8", "Application/gRPC"])(
  "parameters and case of gRPC's content type have no meaning: %s",
  async (type) => {
    for (const path of [UNARY, STREAM]) {
      const response = await grpc(path, grpcFrame(Buffer.alloc(0)), { "content-type": type });
      expect(response).toMatchObject({ status: 200, trailers: { "grpc-status": "0" } });
    }
  },
);

describe.each([["gRPC"], ["gRPC by the library"]])("%s", (name) => {
  const headers: Record<string, string> = name === "gRPC" ? {} : { "grpc-encoding": "gzip" };

  test.each([
    ["ASCII", "x"],
    ["CJK", "語"],
    ["emoji", "😀"],
    ["percent", "%"],
    ["combining", "e\u0301"],
  ])("trailers stay below the 8 KiB that gRPC's clients take: %s", async (_, text) => {
    const response = await grpc("/berth.v1.SandboxService/GetStats", grpcFrame(Buffer.alloc(0)), {
      ...headers,
      "x-test": `refuse ${Buffer.from(text.repeat(2000)).toString("base64")}`,
    });
    // Counted as in HTTP/2: 32 more bytes for each header (RFC 9113, 6.5.2).
    const size = Object.entries(response.trailers).reduce(
      (sum, [key, value]) => sum + Buffer.byteLength(key) + Buffer.byteLength(value) + 32,
      0,
    );
    expect(size).toBeLessThan(8 * 1024);
    const { message } = grpcStatus(response);
    expect(message).toMatch(/… \(cut\)$/);
    expect(message?.isWellFormed()).toBe(true);
    expect(decodeURIComponent(response.trailers["grpc-message"] ?? "")).toBe(message);
    const detail = findTrailerError(new Headers(response.trailers))?.findDetails(ErrorDetailSchema)[0];
    expect(detail?.metadata.path).toMatch(/… \(cut\)$/);
    expect(detail?.metadata).toMatchObject({ field: "path", limit: "10" });
  });
});

test("a message that does not decompress is INVALID_ARGUMENT", async () => {
  const response = await grpc(UNARY, grpcFrame(Buffer.from("no gzip"), 1), { "grpc-encoding": "gzip" });
  expect(grpcStatus(response)).toMatchObject(INVALID_ARGUMENT);
  const cut = gzipSync(Buffer.alloc(1000)).subarray(0, 15);
  const truncated = await grpc(UNARY, grpcFrame(cut, 1), { "grpc-encoding": "gzip" });
  expect(grpcStatus(truncated)).toMatchObject(INVALID_ARGUMENT);
});

test("a decompression bomb is refused, and costs no memory", async () => {
  const bomb = gzipSync(Buffer.alloc(200 * MIB), { level: 1 });
  expect(bomb.length).toBeLessThan(MIB);
  const before = process.memoryUsage().rss;
  const response = await grpc(UNARY, grpcFrame(bomb, 1), { "grpc-encoding": "gzip" });
  expect(grpcStatus(response)).toMatchObject(TOO_LARGE);
  expect(process.memoryUsage().rss - before).toBeLessThan(50 * MIB);
});

describe("Connect", () => {
  const post = (path: string, body: string | Buffer, headers: Record<string, string> = {}) =>
    fetch(server.url + path, {
      method: "POST",
      body,
      headers: { "content-type": "application/json", ...headers },
    });
  const status = async (response: Response) => {
    const body = (await response.json()) as { code: string; details?: { debug?: { reason: string } }[] };
    return { status: response.status, code: body.code, reason: body.details?.[0]?.debug?.reason };
  };
  const invalid = { status: 400, code: "invalid_argument", reason: "ERROR_REASON_INVALID_ARGUMENT" };

  test.each(['{"', "[]", "null", '{"sandboxId": 5}', "\xff", '{"sandboxId": "\ud800"'])(
    "malformed JSON is INVALID_ARGUMENT: %j",
    async (body) => {
      expect(await status(await post(UNARY, body))).toEqual(invalid);
    },
  );

  test("a message that quotes a huge value is cut", async () => {
    const response = await post(
      UNARY,
      JSON.stringify({ sandboxId: Array.from({ length: 5000 }, () => "long") }),
    );
    expect((await response.text()).length).toBeLessThan(3000);
  });

  test("malformed protobuf is INVALID_ARGUMENT", async () => {
    expect(await status(await post(UNARY, MALFORMED, { "content-type": "application/proto" }))).toEqual(
      invalid,
    );
  });

  test("a message that is too large is refused", async () => {
    const response = await post(UNARY, JSON.stringify({ sandboxId: "x".repeat(5 * MIB) }));
    expect(await status(response)).toEqual({
      status: 429,
      code: "resource_exhausted",
      reason: "ERROR_REASON_MESSAGE_TOO_LARGE",
    });
  });

  test.each([
    "text/plain",
    "text/plain;charset=UTF-8",
    "application/x-www-form-urlencoded",
    "multipart/form-data",
    "",
  ])("what a web page may post to anyone is refused: %j", async (type) => {
    const response = await post(UNARY, Buffer.from("{}"), { "content-type": type });
    expect(response.status).toBe(415);
    expect(await response.text()).toContain('set the header "content-type: application/json"');
  });

  test.each(["application/grpc-web-text", "application/grpc-web-text+proto"])(
    "gRPC-Web as text is refused with what to send, and is no call that succeeded: %s",
    async (type) => {
      const calls = server.log.calls.length;
      const response = await post(UNARY, "AAAAAAA=", { "content-type": type });
      expect(response.status).toBe(415);
      expect(await response.text()).toContain(
        `This method takes gRPC, gRPC-Web or Connect messages, not "${type}".`,
      );
      expect(server.log.calls).toHaveLength(calls);
    },
  );

  test.each([
    ["a message that is too large", UNARY, "application/json", 429],
    ["a compressed message that is too large", UNARY, "application/json\r\ncontent-encoding: gzip", 429],
    ["a message of a stream that is too large", STREAM, "application/json", 429],
    ["an upload that is too large", UPLOAD, "application/connect+proto", 200],
    ["an upload without envelopes", UPLOAD, "application/connect+json", 400],
    ["an unknown method", "/a.B/C", "application/json", 404],
    ["another type", UNARY, "text/plain", 415],
  ])(
    "a client that does not keep its connection reads the refusal after all of its request: %s",
    async (_what, path, type, refusal) => {
      const socket = connect(server.port, "127.0.0.1");
      // More than the buffers of the kernel take.
      const body = Buffer.alloc(16 * MIB, " ");
      socket.write(
        `POST ${path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: ${body.length}\r\ncontent-type: ${type}\r\n\r\n`,
      );
      const failure = await new Promise<unknown>((resolve) =>
        socket.once("error", resolve).write(body, resolve),
      );
      expect(failure ?? undefined).toBeUndefined();
      expect(await text(socket)).toMatch(new RegExp(`^HTTP/1\\.1 ${refusal} `));
    },
  );

  test("a client stream that is called as unary gets an error that says how to call it", async () => {
    const response = await post(UPLOAD, "{}");
    expect(response.status).toBe(415);
    expect(await response.text()).toContain("It takes a stream of them: use a client of gRPC or Connect.");
  });

  test("other HTTP methods are refused", async () => {
    expect((await fetch(server.url + STREAM)).status).toBe(405);
    expect((await fetch(server.url + UNARY, { method: "PUT", body: "{}" })).status).toBe(405);
    expect((await fetch(`${server.url}/healthz`, { method: "POST" })).status).toBe(405);
  });

  test("unknown paths", async () => {
    for (const path of [
      "/",
      "/favicon.ico",
      "/berth.v1.SandboxService",
      "//",
      "/%00",
      "/__proto__",
      "/constructor",
    ]) {
      const response = await fetch(server.url + path);
      expect(response.status).toBe(404);
    }
    for (const path of ["/a.B/C", "/__proto__/constructor", "/berth.v1.SandboxService/constructor"]) {
      expect(await status(await post(path, "{}"))).toMatchObject({ status: 404, code: "unimplemented" });
    }
  });
});
