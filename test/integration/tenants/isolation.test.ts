import type { DescMessage, DescMethod } from "@bufbuild/protobuf";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { startTestApp, type TestApp } from "../../support/app.ts";
import type { Client } from "../../support/client.ts";
import { eventually } from "../../support/eventually.ts";
import { reflectedMethods } from "../../support/reflected.ts";
import { clientWith, TokensFile } from "../../support/tokens.ts";
import type { Sandbox } from "../../support/wire.ts";
import { toStruct } from "../../support/wire-sessions.ts";

describe.each(["bubblewrap", "docker"] as const)("on %s", (engine) => {
  const file = new TokensFile();
  let running: TestApp;
  let [a, b]: Client[] = [];
  let bobsToken = "";
  let methods: DescMethod[] = [];
  let ids: Readonly<Record<string, string>> = {};

  beforeAll(async () => {
    const [ann, bob] = [await file.add("ann"), await file.add("bob")];
    running = await startTestApp({ engine, tokens: file.path });
    bobsToken = bob;
    [a, b] = [ann, bob].map((token) => clientWith(running.app.address, token));
    methods = await reflectedMethods(running.app.address, ann);
    ids = await thingsOf(client(a));
  });
  afterAll(async () => {
    for (const one of [a, b]) one?.close();
    await running?.stop();
  });

  const client = (one: Client | undefined): Client => {
    if (one === undefined) throw new Error("not started");
    return one;
  };

  test("every method that takes an id: another tenant's is not found", async () => {
    const named = methods.filter(
      ({ name, input }) => !MAKERS.has(name) && /_id"/.test(JSON.stringify(idsOf(input))),
    );
    expect(named.length).toBeGreaterThan(40);
    const tried: Record<string, string> = {};
    for (const method of named) {
      const name = `${method.parent.typeName.replace("berth.v1.", "")}/${method.name}`;
      tried[name] = await endOf(running.app.address, bobsToken, method, {
        ...idsOf(method.input),
        ...MORE[name],
      });
    }
    // A call that creates, lists, or does nothing because nothing is there succeeds, and the result is the caller's
    // own.
    expect(tried).toEqual(
      Object.fromEntries(Object.keys(tried).map((name) => [name, ENDS[name] ?? "NOT_FOUND"])),
    );
    // Everything of the other tenant is unchanged.
    expect(await thingsLeft(client(a))).toEqual({
      sandbox: "SANDBOX_STATE_RUNNING",
      content: "ann's",
      runs: [ids.run_id],
      workspaces: ["w-1"],
    });
  });

  /** The fields that name the other tenant's things, also in the first message of a stream. */
  function idsOf(input: DescMessage): Record<string, unknown> {
    return Object.fromEntries(
      input.fields.flatMap(({ name, message, fieldKind }): [string, unknown][] => {
        if (ids[name] !== undefined) return [[name, ids[name]]];
        const isFirst = fieldKind === "message" && ["header", "start"].includes(name);
        return isFirst && message ? [[name, idsOf(message)]] : [];
      }),
    );
  }

  test("lists, statistics and events contain only a tenant's own", async () => {
    const [ann, bob] = [client(a), client(b)];
    const { sandbox_id: own } = await bob.createSandbox();
    const list = await bob.call("SandboxService/ListSandboxes", { show_terminated: true });
    expect(list.sandboxes.every(({ owner }) => owner === "bob")).toBe(true);
    expect(list.sandboxes.map(({ sandbox_id: id }) => id)).not.toContain(ids.sandbox_id);
    const stats = await bob.call("SandboxService/GetStats");
    const annStats = await ann.call("SandboxService/GetStats");
    expect(stats.sandboxes.map(({ sandbox_id: id }) => id)).not.toContain(ids.sandbox_id);
    expect(stats.total_sandboxes).toBe(stats.sandboxes.length);
    expect(annStats.total_sandboxes).toBe(annStats.sandboxes.length);

    const seen: string[] = [];
    const events = bob.stream("SandboxService/WatchEvents", {});
    events.on("error", () => {});
    events.on("data", ({ event }) => event && seen.push(event.sandbox_id));
    await eventually(() => seen.includes(own), { describe: () => seen });
    events.cancel();
    expect(seen).not.toContain(ids.sandbox_id);
    await bob.deleteSandbox(own);
  });

  test("a page token of one tenant shows the other nothing", async () => {
    const [ann, bob] = [client(a), client(b)];
    const second = await ann.createSandbox();
    const { next_page_token: token } = await ann.call("SandboxService/ListSandboxes", { page_size: 1 });
    expect(token).not.toBe("");
    const { sandboxes } = await bob.call("SandboxService/ListSandboxes", {
      page_token: token,
      show_terminated: true,
    });
    expect(sandboxes.filter(({ owner }) => owner !== "bob")).toEqual([]);
    await ann.deleteSandbox(second.sandbox_id);
  });

  test("a request id of one tenant is a different request of the other", async () => {
    const request = { request_id: "once", sandbox_id: "by-request" };
    const made: Sandbox[] = [];
    for (const one of [client(a), client(b)])
      made.push((await one.call("SandboxService/CreateSandbox", request)).sandbox);
    expect(made.map(({ owner }) => owner)).toEqual(["ann", "bob"]);
    // The second does not get the first one's answer, and different content does not conflict with it.
    const { sandbox } = await client(b).call("SandboxService/CreateSandbox", request);
    expect(sandbox).toMatchObject({ owner: "bob", create_time: made[1]?.create_time });
    for (const one of [client(a), client(b)]) await one.deleteSandbox("by-request");
  });

  test("the same ids in two tenants name different objects", async () => {
    const both = [
      { name: "ann", one: client(a) },
      { name: "bob", one: client(b) },
    ];
    for (const { one } of both) {
      const made = one.call("WorkspaceService/CreateWorkspace", { workspace_id: "same" });
      await expect(made).resolves.toMatchObject({ workspace: { workspace_id: "same" } });
      const mounts = [{ workspace_id: "same", target: "/workspace" }];
      await one.call("SandboxService/CreateSandbox", { sandbox_id: "same", spec: { mounts } });
    }
    for (const { name, one } of both)
      await one.output("same", `echo ${name} > own; echo ${name} > /shared/own`);
    for (const { name, one } of both) {
      expect(await one.output("same", "cat own /shared/own")).toBe(`${name}\n${name}\n`);
      const resources = [{ resource_type: "bash" }];
      await one.call("SessionService/CreateSessions", { worker_id: "same", resources });
      await one.call("SessionService/ExecuteTool", {
        worker_id: "same",
        tool: "bash:run",
        params: toStruct({ command: `who=${name}` }),
      });
    }
    for (const { name, one } of both) {
      const told = await one.call("SessionService/ExecuteTool", {
        worker_id: "same",
        tool: "bash:run",
        params: toStruct({ command: "echo $who" }),
      });
      expect(JSON.stringify(told)).toContain(name);
    }
    // What one tenant deletes stays for the other.
    await both[0]?.one.call("SessionService/DestroySessions", { worker_id: "same" });
    await both[0]?.one.deleteSandbox("same");
    await both[0]?.one.call("WorkspaceService/CleanupWorkspace", { workspace_id: "same", force: true });
    expect(await both[1]?.one.output("same", "cat own /shared/own")).toBe("bob\nbob\n");
    await both[1]?.one.call("SessionService/DestroySessions", { worker_id: "same" });
    await both[1]?.one.deleteSandbox("same");
    await both[1]?.one.call("WorkspaceService/CleanupWorkspace", { workspace_id: "same", force: true });
  });

  async function thingsOf(ann: Client): Promise<Record<string, string>> {
    await ann.call("WorkspaceService/CreateWorkspace", { workspace_id: "w-1" });
    await ann.call("WorkspaceService/AddTraceRef", { workspace_id: "w-1", trace_id: "t-1" });
    const { sandbox_id } = await ann.createSandbox();
    await ann.output(sandbox_id, 'printf "ann\'s" > kept');
    const execution = ann.exec(sandbox_id, "sleep 300", { on_disconnect: "ON_DISCONNECT_DETACH" });
    const process_id = await execution.processId;
    execution.call.cancel();
    const { run } = await ann.call("RunService/CreateRun", { max_steps: 3 });
    await ann.call("SessionService/CreateSessions", {
      worker_id: "wk-1",
      resources: [{ resource_type: "bash" }],
    });
    return {
      sandbox_id,
      process_id,
      run_id: run.run_id,
      workspace_id: "w-1",
      worker_id: "wk-1",
      trace_id: "t-1",
      path: "kept",
    };
  }

  async function thingsLeft(ann: Client) {
    const sandboxId = ids.sandbox_id ?? "";
    const { state } = await ann.getSandbox(sandboxId);
    const content = await ann.output(sandboxId, "cat kept");
    const { process } = await ann.call("ProcessService/GetProcess", { process_id: ids.process_id });
    expect(process.exit_status).toBeNull();
    const { runs } = await ann.call("RunService/ListRuns");
    const { workspaces } = await ann.call("WorkspaceService/ListWorkspaces");
    const { sessions } = await ann.call("SessionService/ListSessions", { worker_id: "wk-1" });
    expect(sessions).toHaveLength(1);
    return {
      sandbox: state,
      content,
      runs: runs.map(({ run_id: id }) => id),
      workspaces: workspaces.map(({ workspace_id: id }) => id),
    };
  }
});

/** Fields of a request besides ids, so that nothing else is wrong with it. */
const MORE: Readonly<Record<string, object>> = {
  "FileService/MoveFile": { source_path: "kept", target_path: "moved" },
  "ProcessService/Exec": { shell: "true", run_id: "" },
  "ProcessService/RunCommand": { shell: "true", run_id: "" },
  "ProcessService/SignalProcess": { signal: 9 },
  "ProcessService/ResizeTerminal": { columns: 80, rows: 24 },
  "RunService/ReportStep": { step: 1, outcome: "STEP_OUTCOME_CONTINUE" },
  "SandboxService/UpdateSandbox": { update_mask: "labels" },
  "SandboxService/WatchEvents": { after_sequence: "1000000" },
  "SessionService/ExecuteTool": { tool: "bash:run", params: { command: "true" } },
  "SessionService/ExecuteToolStream": { tool: "bash:run", params: { command: "true" } },
  "SessionService/ExecuteToolBatch": { calls: [{ tool: "bash:run", params: { command: "true" } }] },
  "SessionService/ReinitializeSession": { resource_type: "bash" },
  "WorkspaceService/ForkWorkspace": { source_workspace_id: "w-1", workspace_id: "own" },
  "WorkspaceService/DiffWorkspace": { base_workspace_id: "w-1", workspace_id: "own" },
};

/** Methods that create something with an id that the caller chooses: two tenants may choose the same, see below. */
const MAKERS: ReadonlySet<string> = new Set([
  ...[
    "CreateSandbox",
    "CreateWorkspace",
    "EnsureWorkspaceSandbox",
    "ImportWorkspace",
    "AddTraceRef",
    "CreateSessions",
  ],
]);

/** Methods that do not end with NOT_FOUND: they create or find the caller's own things, or there is nothing to do. */
const ENDS: Readonly<Record<string, string>> = {
  "RunService/DeleteRun": "OK",
  "SandboxService/DeleteSandbox": "OK",
  "SandboxService/WatchEvents": "OUT_OF_RANGE",
  "SessionService/DestroySessions": "OK",
  "SessionService/ListSessions": "OK",
  "SessionService/RefreshSessions": "OK",
  // These create a session of the caller's own worker of that name.
  "SessionService/ExecuteTool": "OK",
  "SessionService/ExecuteToolBatch": "OK",
  "SessionService/ExecuteToolStream": "OK",
  "SessionService/ReinitializeSession": "OK",
};

/** The code with which a call with one message ends. */
async function endOf(address: string, token: string, method: DescMethod, request: object): Promise<string> {
  const isUnary = method.methodKind === "unary";
  const message = Buffer.from(JSON.stringify(request));
  const length = Buffer.alloc(5);
  length.writeUInt32BE(message.length, 1);
  const response = await fetch(`http://${address}/${method.parent.typeName}/${method.name}`, {
    method: "POST",
    headers: {
      authorization: `Bearer ${token}`,
      "content-type": isUnary ? "application/json" : "application/connect+json",
      "connect-timeout-ms": "20000",
    },
    body: isUnary ? message : Buffer.concat([length, message]),
  });
  const text = await response.text();
  return /"code": ?"(\w+)"/.exec(text)?.[1]?.toUpperCase() ?? "OK";
}
