import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { startTestServer, type TestServer } from "../../support/server/test-server.ts";

const run = promisify(execFile);
const BUF = new URL("../../../node_modules/.bin/buf", import.meta.url).pathname;

let server: TestServer;
beforeAll(async () => {
  server = await startTestServer();
});
afterAll(() => server[Symbol.asyncDispose]());

// Everything it knows about the service comes from reflection.
async function buf(method: string, ...more: string[]): Promise<string> {
  const args = ["curl", "--http2-prior-knowledge", ...more, server.url + method];
  return (await run(BUF, args)).stdout;
}

describe.each(["grpc", "grpcweb", "connect"])("buf curl --protocol %s", (protocol) => {
  test.each(["grpc-v1", "grpc-v1alpha"])("lists and calls methods by reflection %s", async (reflection) => {
    const options = ["--protocol", protocol, "--reflect-protocol", reflection];
    const answer = await buf("/berth.v1.SandboxService/GetStats", ...options, "-d", "{}");
    expect(JSON.parse(answer)).toEqual({ totalSandboxes: 3, maxSandboxes: 100 });
  });

  test("reads a stream", async () => {
    const answer = await buf(
      "/berth.v1.ProcessService/Exec",
      "--protocol",
      protocol,
      "-d",
      '{"shell": "count 2"}',
    );
    expect(answer.match(/"(started|output|exited)"/g)).toEqual([
      '"started"',
      '"output"',
      '"output"',
      '"exited"',
    ]);
  });

  test("reads an error and its detail", async () => {
    const failure = await buf(
      "/berth.v1.SandboxService/GetStats",
      ...["--protocol", protocol, "-H", "x-test: fail SANDBOX_LIMIT", "-d", "{}"],
    ).then(
      () => Promise.reject(new Error("the call did not fail")),
      ({ stderr }: { stderr: string }) => JSON.parse(stderr),
    );
    expect(failure).toMatchObject({
      code: "resource_exhausted",
      message: "failed: SANDBOX_LIMIT",
      details: [{ type: "berth.v1.ErrorDetail", value: expect.any(String) }],
    });
  });
});

test("buf curl lists services and methods", async () => {
  const services = await buf("", "--list-services");
  expect(services.trim().split("\n")).toEqual(
    expect.arrayContaining(["berth.v1.ProcessService", "berth.v1.SandboxService", "grpc.health.v1.Health"]),
  );
  expect(await buf("", "--list-methods")).toContain("berth.v1.SandboxService/WatchEvents");
});
