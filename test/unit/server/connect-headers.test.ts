import { gzipSync } from "node:zlib";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { grpcFrame, http2Request } from "../../support/server/http.ts";
import { startTestServer, type TestServer } from "../../support/server/test-server.ts";

const UNARY = "/berth.v1.SandboxService/GetSandbox";
const STREAM = "/berth.v1.ProcessService/Exec";

let server: TestServer;
beforeAll(async () => {
  server = await startTestServer();
});
afterAll(() => server[Symbol.asyncDispose]());

async function post(path: string, body: Uint8Array<ArrayBuffer> | string, headers: Record<string, string>) {
  const response = await fetch(server.url + path, { method: "POST", body, headers });
  return { status: response.status, body: await response.text() };
}

const envelope = (json: string, flags = 0) =>
  new Uint8Array(grpcFrame(flags === 0 ? Buffer.from(json) : gzipSync(json), flags));

describe("the name of a compression may have capitals (RFC 9110)", () => {
  test.each(["GZIP", "Gzip"])("%s", async (encoding) => {
    const unary = await post(UNARY, gzipSync('{"sandboxId": "abc"}'), {
      "content-type": "application/json",
      "content-encoding": encoding,
    });
    expect(unary).toEqual({ status: 200, body: expect.stringContaining('"sandboxId":"3"') });
    const lines = await post(STREAM, gzipSync('{"shell": "count 1"}'), {
      "content-type": "application/json",
      "content-encoding": encoding,
    });
    expect(lines).toEqual({ status: 200, body: expect.stringContaining('"exitCode":7') });
    const stream = await post(STREAM, envelope('{"shell": "count 1"}', 1), {
      "content-type": "application/connect+json",
      "connect-content-encoding": encoding,
    });
    expect(stream).toEqual({ status: 200, body: expect.stringContaining('"exitCode":7') });
    const headers = { ":path": UNARY, "content-type": "application/grpc", te: "trailers" };
    const grpc = await http2Request(
      server.url,
      { ...headers, "grpc-encoding": encoding },
      grpcFrame(gzipSync(""), 1),
    );
    expect(grpc.trailers).toMatchObject({ "grpc-status": "0" });
  });

  test("in a GET as well", async () => {
    const message = gzipSync('{"sandboxId": "abc"}').toString("base64url");
    const query = `encoding=json&base64=1&compression=GZIP&message=${message}`;
    const response = await fetch(`${server.url}${UNARY}?${query}`);
    expect({ status: response.status, body: await response.text() }).toEqual({
      status: 200,
      body: expect.stringContaining('"sandboxId":"3"'),
    });
  });

  test("Identity", async () => {
    const headers = { "content-type": "application/json", "content-encoding": "Identity" };
    expect(await post(UNARY, '{"sandboxId": "abc"}', headers)).toMatchObject({ status: 200 });
  });
});

describe("a version of the Connect protocol other than 1 is refused", () => {
  const refused = { code: "invalid_argument", message: expect.stringContaining('must be "1"') };

  test.each([
    ["unary", UNARY, '{"sandboxId": "abc"}'],
    ["lines of JSON", STREAM, '{"shell": "count 1"}'],
  ])("%s", async (_, path, body) => {
    const headers = { "content-type": "application/json", "connect-protocol-version": "2" };
    const answer = await post(path, body, headers);
    expect({ ...answer, body: JSON.parse(answer.body) }).toMatchObject({ status: 400, body: refused });
    expect(await post(path, body, { ...headers, "connect-protocol-version": "1" })).toMatchObject({
      status: 200,
    });
  });

  test("a stream", async () => {
    const headers = { "content-type": "application/connect+json", "connect-protocol-version": "2" };
    const { status, body } = await post(STREAM, envelope('{"shell": "count 1"}'), headers);
    expect({ status, ...JSON.parse(body.slice(5)) }).toMatchObject({ status: 200, error: refused });
  });

  test("a GET", async () => {
    const get = async (version: string) => {
      const query = `connect=${version}&encoding=json&message=${encodeURIComponent('{"sandboxId": "abc"}')}`;
      const response = await fetch(`${server.url}${UNARY}?${query}`);
      return { status: response.status, body: await response.text() };
    };
    expect(await get("v2")).toEqual({ status: 400, body: expect.stringContaining("invalid_argument") });
    expect(await get("v1")).toMatchObject({ status: 200 });
  });

  test("not in gRPC, which has no such header", async () => {
    const headers = { ":path": UNARY, "content-type": "application/grpc", te: "trailers" };
    const answer = await http2Request(
      server.url,
      { ...headers, "connect-protocol-version": "2" },
      grpcFrame(Buffer.alloc(0)),
    );
    expect(answer.trailers).toMatchObject({ "grpc-status": "0" });
  });
});
