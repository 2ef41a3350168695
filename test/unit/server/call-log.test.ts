import { expect, test } from "vitest";
import { SandboxService } from "../../../gen/ts/berth/v1/sandbox_pb.js";
import { Health } from "../../../gen/ts/grpc/health/v1/health_pb.js";
import { eventually } from "../../support/eventually.ts";
import { GrpcJs, grpcFailure } from "../../support/server/grpc-js.ts";
import { SECRET } from "../../support/server/handlers.ts";
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
