import { afterAll, beforeAll, expect, test } from "vitest";
import { Client, failureOf } from "../../support/client.ts";
import { LastingService } from "../../support/lasting-service.ts";
import { ServeProcess } from "../../support/program.ts";
import { clientWith, TokensFile } from "../../support/tokens.ts";
import type { Sandbox } from "../../support/wire.ts";

const file = new TokensFile();
const NAMES = ["ann", "bob"];
let tokens: string[] = [];
let service: LastingService;
beforeAll(async () => {
  for (const name of NAMES) tokens = [...tokens, await file.add(name)];
  service = await LastingService.start({ BERTH_TOKENS: file.path, BERTH_ENGINE: "docker" });
});
afterAll(() => service?.[Symbol.asyncDispose]());

async function withEach<T>(work: (client: Client, name: string) => Promise<T>): Promise<T[]> {
  const results: T[] = [];
  for (const [index, name] of NAMES.entries()) {
    const client = clientWith(service.address, tokens[index] ?? "");
    try {
      results.push(await work(client, name));
    } finally {
      client.close();
    }
  }
  return results;
}

test("a killed service still knows the owner of every object after its restart", async () => {
  const request = {
    request_id: "once",
    sandbox_id: "same",
    spec: { mounts: [{ workspace_id: "same", target: "/workspace" }] },
  };
  const create = (client: Client): Promise<Sandbox> =>
    client.call("SandboxService/CreateSandbox", request).then(({ sandbox }) => sandbox);
  const before = await withEach(async (client, name) => {
    await client.call("WorkspaceService/CreateWorkspace", { workspace_id: "same" });
    const sandbox = await create(client);
    await client.output("same", `echo ${name} > own; echo ${name} > /shared/own`);
    const execution = client.exec("same", `echo ${name}; sleep 300`, {
      on_disconnect: "ON_DISCONNECT_DETACH",
    });
    const processId = await execution.processId;
    execution.call.cancel();
    const { run } = await client.call("RunService/CreateRun", { max_steps: 1 });
    return { sandbox, processId, runId: run.run_id };
  });
  await service.kill();
  await service.begin();
  const [ofAnn, ofBob] = before;
  await withEach(async (client, name) => {
    const [own, others] = name === "ann" ? [ofAnn, ofBob] : [ofBob, ofAnn];
    const { sandboxes } = await client.call("SandboxService/ListSandboxes");
    expect(sandboxes.map(({ owner, sandbox_id: id }) => [owner, id])).toEqual([[name, "same"]]);
    expect(await client.output("same", "cat own /shared/own")).toBe(`${name}\n${name}\n`);
    // The answer for the request id belongs to the tenant.
    expect(await create(client)).toMatchObject({ owner: name, create_time: own?.sandbox.create_time });
    const { processes } = await client.call("ProcessService/ListProcesses", { sandbox_id: "same" });
    expect(processes.map(({ process_id: id }) => id)).toContain(own?.processId);
    expect(processes.map(({ process_id: id }) => id)).not.toContain(others?.processId);
    const [process, run] = [{ process_id: others?.processId }, { run_id: others?.runId }];
    expect(await failureOf(client.call("ProcessService/GetProcess", process))).toMatchObject({
      code: "NOT_FOUND",
    });
    expect(await failureOf(client.call("RunService/GetRun", run))).toMatchObject({ code: "NOT_FOUND" });
    const { runs } = await client.call("RunService/ListRuns");
    expect(runs.map(({ run_id: id }) => id)).toEqual([own?.runId]);
  });
  await withEach((client) => client.deleteSandbox("same"));
});

test("objects created before there were tokens belong to the tenant default", async () => {
  const plain = await ServeProcess.start(["--engine", "bubblewrap"]);
  const client = new Client(plain.address);
  await client.call("WorkspaceService/CreateWorkspace", { workspace_id: "early" });
  client.close();
  await plain.stop();
  const own = await file.add("default");
  const withTokens = await plain.again(["--engine", "bubblewrap", "--tokens", file.path]);
  const [later, other] = [
    clientWith(withTokens.address, own),
    clientWith(withTokens.address, tokens[0] ?? ""),
  ];
  const ids = async (one: Client) =>
    (await one.call("WorkspaceService/ListWorkspaces")).workspaces.map(({ workspace_id: id }) => id);
  expect(await ids(later)).toEqual(["early"]);
  expect(await ids(other)).toEqual([]);
  for (const one of [later, other]) one.close();
  expect(await withTokens.stop()).toMatchObject({ exitCode: 0 });
});
