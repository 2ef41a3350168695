import { Registry } from "prom-client";
import { describe, expect, test } from "vitest";
import { SandboxService } from "../../../gen/ts/berth/v1/sandbox_pb.js";
import { ProcessMetrics } from "../../../src/server/process-metrics.ts";
import { eventually } from "../../support/eventually.ts";
import { GrpcJs, grpcFailure } from "../../support/server/grpc-js.ts";
import { Switch } from "../../support/server/switch.ts";
import { startTestServer } from "../../support/server/test-server.ts";

const { getStats, watchEvents } = SandboxService.method;

async function get(url: string) {
  const response = await fetch(url);
  return { status: response.status, type: response.headers.get("content-type"), body: await response.text() };
}

test("/healthz is 200 in any state of the engine", async () => {
  const health = new Switch(false);
  await using server = await startTestServer({ health });
  expect(await get(`${server.url}/healthz`)).toEqual({
    status: 200,
    type: "text/plain; charset=utf-8",
    body: "ok\n",
  });
});

test("/readyz says whether it serves, and why not", async () => {
  const health = new Switch(true);
  await using server = await startTestServer({ health });
  expect(await get(`${server.url}/readyz`)).toMatchObject({ status: 200, body: "ok\n" });
  health.set(false);
  expect(await get(`${server.url}/readyz`)).toMatchObject({
    status: 503,
    body: "The engine does not answer.\n",
  });
  health.set(true);
  expect(await get(`${server.url}/readyz`)).toMatchObject({ status: 200 });
});

test("HEAD gives only the headers", async () => {
  await using server = await startTestServer();
  const response = await fetch(`${server.url}/healthz`, { method: "HEAD" });
  expect(response.status).toBe(200);
  expect(response.headers.get("content-length")).toBe("3");
  expect(await response.text()).toBe("");
});

describe("/metrics", () => {
  const sample = (text: string, line: string) => {
    const found = text.split("\n").find((candidate) => candidate.startsWith(`${line} `));
    return found === undefined ? undefined : Number(found.slice(line.length + 1));
  };

  test("counts and times calls by method and code", async () => {
    await using server = await startTestServer();
    using client = new GrpcJs(server.authority);
    for (let index = 0; index < 3; index++) await client.unary(getStats, {});
    await grpcFailure(client.unary(getStats, {}, { header: { "x-test": "fail SANDBOX_LIMIT" } }));
    await grpcFailure(client.unary({ ...getStats, name: "Made" }, {}));
    await grpcFailure(client.unary({ ...getStats, name: "Up" }, {}));
    const stream = client.serverStream(watchEvents, {});
    stream.on("error", () => {});
    await eventually(() => server.record.open === 1);
    const { body } = await get(`${server.url}/metrics`);
    const stats = 'method="berth.v1.SandboxService/GetStats"';
    expect(sample(body, `berth_rpc_total{${stats},code="OK"}`)).toBe(3);
    expect(sample(body, `berth_rpc_total{${stats},code="RESOURCE_EXHAUSTED"}`)).toBe(1);
    expect(sample(body, 'berth_rpc_total{method="unknown",code="UNIMPLEMENTED"}')).toBe(2);
    // Also for methods that nobody has called: an alert on the increase needs a value before the first failure.
    for (const method of ["GetStats", "DeleteSandbox"]) {
      const labels = `method="berth.v1.SandboxService/${method}",code="INTERNAL"`;
      expect(sample(body, `berth_rpc_total{${labels}}`)).toBe(0);
    }
    expect(sample(body, `berth_rpc_duration_seconds_count{${stats}}`)).toBe(4);
    expect(sample(body, `berth_rpc_in_flight{${stats}}`)).toBe(0);
    expect(sample(body, 'berth_rpc_in_flight{method="berth.v1.SandboxService/WatchEvents"}')).toBe(1);
    stream.cancel();
    await eventually(() => server.record.open === 0);
    const after = await get(`${server.url}/metrics`);
    expect(sample(after.body, 'berth_rpc_in_flight{method="berth.v1.SandboxService/WatchEvents"}')).toBe(0);
    expect(body).not.toContain("Made");
  });

  test("shows the metrics of the process, if the registry has them", async () => {
    const metrics = new Registry();
    const process = new ProcessMetrics(metrics);
    await using server = await startTestServer({ metrics });
    const { type, body } = await get(`${server.url}/metrics`);
    process.stop();
    expect(type).toBe("text/plain; version=0.0.4; charset=utf-8");
    for (const name of [
      "process_resident_memory_bytes",
      "process_open_fds",
      "nodejs_eventloop_lag_seconds",
    ]) {
      expect(sample(body, name)).toBeGreaterThanOrEqual(0);
    }
  });

  test("two servers in one process count separately", async () => {
    await using one = await startTestServer();
    await using two = await startTestServer();
    using client = new GrpcJs(one.authority);
    await client.unary(getStats, {});
    expect((await get(`${two.url}/metrics`)).body).not.toContain('code="OK"');
  });
});
