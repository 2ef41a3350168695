import { once } from "node:events";
import { expect, test } from "vitest";
import {
  Health,
  HealthCheckResponse_ServingStatus as Status,
} from "../../../gen/ts/grpc/health/v1/health_pb.js";
import { eventually } from "../../support/eventually.ts";
import { GrpcJs, grpcFailure } from "../../support/server/grpc-js.ts";
import { Switch } from "../../support/server/switch.ts";
import { startTestServer } from "../../support/server/test-server.ts";

const { check, list, watch } = Health.method;
const SERVICES = ["", "berth.v1.SandboxService", "berth.v1.ProcessService"];

test("checks the server and each of its services", async () => {
  const health = new Switch(true);
  await using server = await startTestServer({ health });
  using client = new GrpcJs(server.authority);
  for (const service of SERVICES) {
    expect((await client.unary(check, { service })).message.status).toBe(Status.SERVING);
  }
  health.set(false);
  for (const service of SERVICES) {
    expect((await client.unary(check, { service })).message.status).toBe(Status.NOT_SERVING);
  }
  const { statuses } = (await client.unary(list, {})).message;
  expect(Object.keys(statuses)).toEqual(expect.arrayContaining(SERVICES));
  expect(Object.values(statuses).every(({ status }) => status === Status.NOT_SERVING)).toBe(true);
});

test("an unknown service is NOT_FOUND", async () => {
  await using server = await startTestServer();
  using client = new GrpcJs(server.authority);
  expect(await grpcFailure(client.unary(check, { service: "no.Such" }))).toMatchObject({
    code: "NOT_FOUND",
    message: 'no service "no.Such"',
  });
});

test("an unknown name of any length is NOT_FOUND, and quoted only in part", async () => {
  await using server = await startTestServer();
  using client = new GrpcJs(server.authority);
  const failure = await grpcFailure(client.unary(check, { service: "\u8a9e".repeat(1_000_000) }));
  expect(failure).toMatchObject({
    code: "NOT_FOUND",
    message: expect.stringMatching(/^no service "\u8a9e{100,400}… \(cut\)$/),
  });
});

test("a watch reports the status and every change of it, and nothing else", async () => {
  const health = new Switch(true);
  await using server = await startTestServer({ health });
  using client = new GrpcJs(server.authority);
  const statuses: Status[] = [];
  const stream = client.serverStream(watch, { service: "berth.v1.SandboxService" });
  stream.on("error", () => {});
  stream.on("data", ({ status }) => statuses.push(status));
  await eventually(() => statuses.length === 1);
  health.set(true);
  health.set(false);
  await eventually(() => statuses.length === 2);
  health.set(true);
  await eventually(() => statuses.length === 3);
  expect(statuses).toEqual([Status.SERVING, Status.NOT_SERVING, Status.SERVING]);
  stream.cancel();
  await eventually(() => health.listeners.size === 0);
});

test("a watch of an unknown service continues", async () => {
  await using server = await startTestServer();
  using client = new GrpcJs(server.authority);
  const stream = client.serverStream(watch, { service: "no.Such" });
  stream.on("error", () => {});
  expect((await once(stream, "data"))[0]).toMatchObject({ status: Status.SERVICE_UNKNOWN });
  expect(stream.closed).toBe(false);
  stream.cancel();
});
