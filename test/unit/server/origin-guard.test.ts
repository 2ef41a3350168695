import { once } from "node:events";
import http from "node:http";
import os from "node:os";
import { describe, expect, test } from "vitest";
import { SandboxService } from "../../../gen/ts/berth/v1/sandbox_pb.js";
import { GrpcJs, grpcFailure } from "../../support/server/grpc-js.ts";
import { grpcFrame, http2Request } from "../../support/server/http.ts";
import { startTestServer, type TestServer } from "../../support/server/test-server.ts";

const PATH = "/berth.v1.SandboxService/GetStats";
const JSON_TYPE = { "content-type": "application/json" };

async function http1(
  { url }: { url: string },
  headers: http.OutgoingHttpHeaders,
  { method = "POST", path = PATH }: { method?: string; path?: string } = {},
) {
  const request = http.request(url, { method, path, headers: { ...JSON_TYPE, ...headers } });
  request.end(method === "POST" ? "{}" : undefined);
  const [response] = (await once(request, "response")) as [http.IncomingMessage];
  let body = "";
  for await (const chunk of response) body += chunk;
  return { status: response.statusCode, headers: response.headers, body };
}

async function http2Status(server: TestServer, authority: string) {
  const headers = {
    ":path": PATH,
    ":authority": authority,
    "content-type": "application/grpc",
    te: "trailers",
  };
  const { status, body } = await http2Request(server.url, headers, grpcFrame(Buffer.alloc(0)));
  return { status, body };
}

describe("the host name", () => {
  test.each([
    "localhost",
    "LOCALHOST:99",
    "127.0.0.1",
    "127.1.2.3:80",
    "[::1]",
    "[::1]:7070",
    "app.localhost",
  ])("%s is the loopback", async (host) => {
    await using server = await startTestServer();
    expect((await http1(server, { host })).status).toBe(200);
    expect((await http2Status(server, host)).status).toBe(200);
  });

  test.each([
    "evil.example",
    "evil.example:7070",
    "localhost.evil.example",
    "127.0.0.1.evil.example",
    "10.1.2.3",
    "[::2]",
    "0x7f000001",
    "2130706433",
  ])("%j is foreign", async (host) => {
    await using server = await startTestServer();
    // An earlier request with an allowed name must not make it allowed.
    expect((await http1(server, { host: "localhost" }, { method: "GET", path: "/nothing" })).status).toBe(
      404,
    );
    const { status, body } = await http1(server, { host });
    expect(status).toBe(403);
    expect(body).toMatch(/^This server does not answer to the host name ".*"\. .*--allow-host\.\n$/);
    expect((await http2Status(server, host)).status).toBe(403);
    expect(server.record.unary).toBe(0);
  });

  test.each(["localhost@evil.example", " ", "a b", "[::1", "localhost:x"])("%j is none", async (host) => {
    await using server = await startTestServer();
    expect((await http1(server, { host })).status).toBe(403);
  });

  test("of a target in absolute form counts, whatever the header says", async () => {
    await using server = await startTestServer();
    const call = (target: string, host: string) => http1(server, { host }, { path: `${target}${PATH}` });
    expect((await call(server.url, "evil.example")).status).toBe(200);
    expect((await call("HTTP://LocalHost", "evil.example")).status).toBe(200);
    expect(server.record.unary).toBe(2);
    expect((await call("http://evil.example", "localhost")).status).toBe(403);
    expect((await call("http://localhost@evil.example", "localhost")).status).toBe(403);
    expect((await call("http://", "localhost")).status).toBeGreaterThanOrEqual(400);
    const get = (path: string) => http1(server, {}, { method: "GET", path });
    expect((await get(`${server.url}/healthz`)).status).toBe(200);
    expect((await get(`${server.url}/healthz?a=/b`)).status).toBe(200);
    expect((await get(server.url)).status).toBe(404);
    expect((await get("ftp://localhost/healthz")).status).toBeGreaterThanOrEqual(400);
    expect(server.record.unary).toBe(2);
  });

  test("is refused everywhere, also for health and metrics", async () => {
    await using server = await startTestServer();
    for (const path of ["/healthz", "/readyz", "/metrics", "/nothing", "/a.B/C"]) {
      expect((await http1(server, { host: "evil.example" }, { method: "GET", path })).status).toBe(403);
    }
  });

  test("may be one that the operator allows", async () => {
    await using server = await startTestServer({ allowHosts: ["Berth.Example"] });
    expect((await http1(server, { host: "berth.example:7070" })).status).toBe(200);
    expect((await http1(server, { host: "x.berth.example" })).status).toBe(403);
  });

  test("a gRPC client with a foreign authority is refused", async () => {
    await using server = await startTestServer();
    using client = new GrpcJs(server.authority, undefined, { "grpc.default_authority": "evil.example" });
    expect(await grpcFailure(client.unary(SandboxService.method.getStats, {}))).toMatchObject({
      code: "PERMISSION_DENIED",
    });
  });

  test("may be the address that the connection came in on", async () => {
    await using server = await startTestServer({}, "0.0.0.0:0");
    const address = Object.values(os.networkInterfaces())
      .flatMap((entries) => entries ?? [])
      .find(({ family, internal }) => family === "IPv4" && !internal)?.address;
    // A machine without a network has only its loopback address.
    const url = `http://${address ?? "127.0.0.1"}:${server.port}`;
    expect((await http1({ url }, {})).status).toBe(200);
    expect((await http1({ url }, { host: "0.0.0.0" })).status).toBe(200);
    expect((await http1({ url }, { host: "192.0.2.7" })).status).toBe(403);
  });
});

describe("the origin", () => {
  test.each([
    "https://evil.example",
    "null",
    "file://",
    "http://localhost.evil.example",
    "chrome-extension://abc",
    "http://",
  ])("%s is foreign", async (origin) => {
    await using server = await startTestServer();
    const { status, body } = await http1(server, { origin });
    expect(status).toBe(403);
    expect(body).toContain(`Pages of the origin "${origin}" may not call this server.`);
    expect(server.record.unary).toBe(0);
  });

  test("of this machine may call, but its pages may read the answer only if configured", async () => {
    await using server = await startTestServer();
    const { status, headers } = await http1(server, { origin: "http://localhost:3000" });
    expect(status).toBe(200);
    expect(headers["access-control-allow-origin"]).toBeUndefined();
  });

  test("may call and read only if it is configured", async () => {
    await using server = await startTestServer({ corsOrigins: ["https://app.example"] });
    const origin = "https://app.example";
    const preflight = await http1(
      server,
      { origin, "access-control-request-method": "POST", "access-control-request-headers": "content-type" },
      { method: "OPTIONS" },
    );
    expect(preflight.status).toBe(204);
    expect(preflight.headers).toMatchObject({
      "access-control-allow-origin": origin,
      "access-control-allow-methods": "GET, POST",
      "access-control-allow-headers": expect.stringMatching(
        /Content-Type.*Connect-Protocol-Version.*Authorization, berth-tenant, berth-ignore-unknown-fields/,
      ),
      vary: "origin",
    });
    const call = await http1(server, { origin });
    expect(call.status).toBe(200);
    expect(call.headers).toMatchObject({
      "access-control-allow-origin": origin,
      "access-control-expose-headers": expect.stringMatching(/Grpc-Status/i),
    });
    for (const other of [
      "https://app.example:444",
      "http://app.example",
      "https://app.example.evil.example",
    ]) {
      expect((await http1(server, { origin: other })).status).toBe(403);
    }
  });

  test("a preflight that is not configured gets no permission", async () => {
    await using server = await startTestServer();
    const { status, headers } = await http1(
      server,
      { origin: "http://localhost:3000", "access-control-request-method": "POST" },
      { method: "OPTIONS" },
    );
    expect(status).toBe(405);
    expect(headers["access-control-allow-origin"]).toBeUndefined();
  });
});
