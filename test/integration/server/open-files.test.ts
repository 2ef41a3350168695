import { execFileSync } from "node:child_process";
import { afterAll, beforeAll, expect, test } from "vitest";
import { expectNoContainers } from "../../support/app.ts";
import { Client, failureOf } from "../../support/client.ts";
import { ServeProcess } from "../../support/program.ts";

let service: ServeProcess;
let client: Client;

beforeAll(async () => {
  service = await ServeProcess.start();
  client = new Client(service.address);
});

afterAll(async () => {
  client?.close();
  await service?.stop();
  if (service) await expectNoContainers(service.instance);
});

function allowOpenFiles(soft: string): void {
  execFileSync("prlimit", ["--pid", String(service.pid), `--nofile=${soft}:`]);
}

test("calls that may open no more files are refused with what to do, until they may", async () => {
  const { sandbox_id } = await client.createSandbox();
  const refusals = new Map<string, unknown>();
  allowOpenFiles("4");
  try {
    for (const [method, request] of [
      ["WorkspaceService/CreateWorkspace", { workspace_id: "new" }],
      ["WorkspaceService/ListWorkspaces", {}],
      ["SandboxService/CreateSandbox", {}],
      ["SandboxService/PauseSandbox", { sandbox_id }],
    ] as const)
      refusals.set(method, await failureOf(client.call(method, request)));
    expect((await client.getSandbox(sandbox_id)).state).toBe("SANDBOX_STATE_RUNNING");
  } finally {
    allowOpenFiles("1024");
  }
  for (const [method, refusal] of refusals)
    expect([method, refusal]).toMatchObject([
      method,
      {
        code: "RESOURCE_EXHAUSTED",
        reason: "TOO_MANY_OPERATIONS",
        message: expect.stringContaining("LimitNOFILE"),
      },
    ]);
  const made = async () => (await client.createSandbox()).state;
  await expect.poll(() => made().catch(String), { timeout: 30_000 }).toBe("SANDBOX_STATE_RUNNING");
});
