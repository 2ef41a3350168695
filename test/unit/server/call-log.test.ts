import { once } from "node:events";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import net from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { setImmediate } from "node:timers/promises";
import tls from "node:tls";
import { expect, onTestFinished, test } from "vitest";
import { SandboxService } from "../../../gen/ts/berth/v1/sandbox_pb.js";
import { Health } from "../../../gen/ts/grpc/health/v1/health_pb.js";
import { FLAG, FRAME, frame, opening, postFields } from "../../support/attacks/frames.ts";
import { makeCertificate } from "../../support/certificate.ts";
import { eventually } from "../../support/eventually.ts";
import { GrpcJs, grpcFailure } from "../../support/server/grpc-js.ts";
import { SECRET } from "../../support/server/handlers.ts";
import { grpcFrame } from "../../support/server/http.ts";
import { startTestServer } from "../../support/server/test-server.ts";

const { getStats, getSandbox } = SandboxService.method;

test("every call writes one line", async () => {
  await using server = await startTestServer();
  using client = new GrpcJs(server.authority);
  await client.unary(getStats, {});
  await grpcFailure(client.unary(getStats, {}, { header: { "x-test": "fail SANDBOX_NOT_FOUND" } }));
  await grpcFailure(client.unary(getStats, {}, { header: { "x-test": "crash" } }));
  await grpcFailure(client.unary({ ...getStats, name: "Nope" }, {}));
  await client.unary(Health.method.check, {});
  await eventually(() => server.log.calls.length === 5);
  const common = {
    duration_ms: expect.any(Number),
    peer: expect.stringMatching(/^127\.0\.0\.1:\d+$/),
    protocol: "grpc",
  };
  const method = "berth.v1.SandboxService/GetStats";
  expect(server.log.calls).toMatchObject([
    { level: "info", fields: { ...common, method, code: "OK", owner: "default" } },
    { level: "info", fields: { ...common, method, code: "NOT_FOUND", reason: "SANDBOX_NOT_FOUND" } },
    { level: "error", fields: { ...common, method, code: "INTERNAL", reason: "INTERNAL" } },
    { level: "info", fields: { ...common, method: "unknown", code: "UNIMPLEMENTED" } },
    { level: "debug", fields: { ...common, method: "grpc.health.v1.Health/Check", code: "OK" } },
  ]);
});

async function certificate() {
  const directory = await mkdtemp(path.join(tmpdir(), "berth-log-"));
  onTestFinished(() => rm(directory, { recursive: true }));
  const { cert, key } = await makeCertificate(directory, "berth");
  return { cert: await readFile(cert), key: await readFile(key) };
}

const STATS = "/berth.v1.SandboxService/GetStats";
const HTTP1 = `POST ${STATS} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}`;
const HTTP2 = Buffer.concat([
  opening(),
  frame(FRAME.headers, FLAG.endHeaders, 1, postFields("localhost", STATS, "application/grpc")),
  frame(FRAME.data, FLAG.endStream, 1, grpcFrame(Buffer.alloc(0))),
]);

test.each([
  ["over HTTP/1.1", HTTP1, false],
  ["over HTTP/2", HTTP2, false],
  ["over TLS", HTTP1, true],
])(
  "a client that resets its connection at once is not taken for one of a Unix socket: %s",
  async (...row) => {
    const [, request, isSecure] = row;
    await using server = await startTestServer(isSecure ? { tls: await certificate() } : {});
    // Some of the connections are reset before the server has accepted them.
    for (let turns = 0; turns < 20; turns++) {
      const socket = net.connect(server.port, "127.0.0.1");
      socket.on("error", () => {});
      const client = isSecure ? tls.connect({ socket, rejectUnauthorized: false }) : socket;
      client.on("error", () => {});
      await once(client, isSecure ? "secureConnect" : "connect");
      for (let turn = 0; turn < turns / 4; turn++) await setImmediate();
      client.write(request, () => socket.resetAndDestroy());
      await once(socket, "close");
    }
    await eventually(() => server.log.calls.length > 0);
    const peers = server.log.calls.map(({ fields }) => String(fields.peer).replace(/:\d+$/, ""));
    expect(new Set(peers)).toEqual(new Set(["127.0.0.1"]));
  },
);

test("the cause of an unavailable engine is in the log, and not on the wire", async () => {
  await using server = await startTestServer();
  using client = new GrpcJs(server.authority);
  const failure = await grpcFailure(
    client.unary(getStats, {}, { header: { "x-test": "fail ENGINE_UNAVAILABLE" } }),
  );
  expect(failure).toMatchObject({ code: "UNAVAILABLE", message: "failed: ENGINE_UNAVAILABLE" });
  await eventually(() => server.log.calls.length === 1);
  expect(server.log.calls[0]?.fields.err).toMatchObject({ message: SECRET });
});

test("no payload, header or token reaches the log", async () => {
  await using server = await startTestServer();
  using client = new GrpcJs(server.authority);
  await client.unary(getSandbox, { sandboxId: "payload-1" }, { header: { authorization: "Bearer token-1" } });
  await fetch(`${server.url}/berth.v1.SandboxService/GetSandbox`, {
    method: "POST",
    headers: { "content-type": "application/json", authorization: "Bearer token-1" },
    body: '{"sandboxId": ["payload-1"]}',
  });
  await eventually(() => server.log.calls.length === 2);
  expect(JSON.stringify(server.log.lines)).not.toMatch(/payload-1|token-1/);
});
