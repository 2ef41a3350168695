import { execFileSync } from "node:child_process";
import { afterEach, expect, test } from "vitest";
import { expectNoContainers } from "../../support/app.ts";
import { Client, failureOf } from "../../support/client.ts";
import { ServeProcess } from "../../support/program.ts";

const services: ServeProcess[] = [];
const clients: Client[] = [];

afterEach(async () => {
  for (const client of clients.splice(0)) client.close();
  for (const service of services.splice(0)) {
    await service.stop();
    await expectNoContainers(service.instance);
  }
});

async function serve(
  ...args: string[]
): Promise<{ readonly service: ServeProcess; readonly client: Client }> {
  const service = await ServeProcess.start(args);
  services.push(service);
  const client = new Client(service.address);
  clients.push(client);
  return { service, client };
}

function allowOpenFiles(service: ServeProcess, soft: string): void {
  execFileSync("prlimit", ["--pid", String(service.pid), `--nofile=${soft}:`]);
}

test("calls that may open no more files are refused with what to do, until they may", async () => {
  const { service, client } = await serve("--engine", "docker");
  const { sandbox_id } = await client.createSandbox();
  const refusals = new Map<string, unknown>();
  allowOpenFiles(service, "4");
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
    allowOpenFiles(service, "1024");
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
  await expect.poll(() => made().catch(String)).toBe("SANDBOX_STATE_RUNNING");
});

test("a bubblewrap sandbox that is deleted while no more files may be open is gone once they may", async () => {
  const { service, client } = await serve("--engine", "bubblewrap");
  const { sandbox_id } = await client.createSandbox();
  const workspace_id = "made";
  await client.call("WorkspaceService/CreateWorkspace", { workspace_id });
  allowOpenFiles(service, "4");
  let outcome = "";
  let unmounted: unknown;
  try {
    unmounted = await failureOf(client.call("WorkspaceService/EnsureWorkspaceSandbox", { workspace_id }));
    client.deleteSandbox(sandbox_id).then(
      () => {
        outcome = "deleted";
      },
      (error: unknown) => {
        outcome = String(error);
      },
    );
    const stateOf = async () => (await client.getSandbox(sandbox_id)).state;
    await expect.poll(stateOf).not.toBe("SANDBOX_STATE_RUNNING");
  } finally {
    allowOpenFiles(service, "1024");
  }
  try {
    // Not that the mount is not allowed.
    expect(unmounted).toMatchObject({ reason: "TOO_MANY_OPERATIONS" });
    await expect.poll(() => outcome).toBe("deleted");
  } finally {
    await service.dispose();
  }
});
