import { readFile, writeFile } from "node:fs/promises";
import path from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { FAILPOINTS, type Failpoint } from "../../../src/base/failpoints.ts";
import { expectNoContainers } from "../../support/app.ts";
import { Client } from "../../support/client.ts";
import { containersOf, docker, processesIn } from "../../support/docker.ts";
import { eventually } from "../../support/eventually.ts";
import { TEST_IMAGE } from "../../support/images.ts";
import { LastingService } from "../../support/lasting-service.ts";
import { FAILING_MAIN } from "../../support/program.ts";
import { newDataDir } from "../../support/settings.ts";
import type { Sandbox } from "../../support/wire.ts";
import { Worker } from "../../support/worker.ts";
import { RUN_POINTS } from "./run-points.ts";

const SOON = { timeoutMs: 60_000 };

/** What happens up to the crash, and what a caller finds that comes back afterwards. */
interface Scenario {
  readonly at: readonly Failpoint[];
  readonly args?: readonly string[];
  /** Before the crashing calls, which it does not make. */
  readonly prepare?: (client: Client, at: Failpoint) => Promise<Sandbox>;
  /** Ends in the crash. */
  readonly act: (client: Client, at: Failpoint, sandbox: Sandbox | undefined) => Promise<unknown>;
  /** After the restart. */
  readonly check: (client: Client, at: Failpoint, sandbox: Sandbox | undefined) => Promise<void>;
}

const creation = (at: Failpoint) => ({ request_id: at, spec: { labels: { by: "create" } } });
const deletion = (at: Failpoint, sandbox: Sandbox | undefined) => ({
  request_id: at,
  sandbox_id: sandbox?.sandbox_id,
});
const forking = (at: Failpoint) => ({
  request_id: at,
  source_workspace_id: `source of ${at}`,
  workspace_id: `fork at ${at}`,
});
const command = (at: Failpoint, sandbox: Sandbox | undefined) => ({
  request_id: at,
  sandbox_id: sandbox?.sandbox_id,
  shell: "echo ran >>/workspace/log; echo reported",
});
const state = async (client: Client, id = ""): Promise<string> => (await client.getSandbox(id)).state;
const live = async (client: Client): Promise<readonly Sandbox[]> =>
  (await client.call("SandboxService/ListSandboxes")).sandboxes;

async function oneIsMade(client: Client, at: Failpoint): Promise<void> {
  const { sandbox } = await client.call("SandboxService/CreateSandbox", creation(at));
  expect(sandbox.state).toBe("SANDBOX_STATE_RUNNING");
  expect(await client.output(sandbox.sandbox_id, "echo usable")).toBe("usable\n");
  // The next retry gets the same answer.
  const again = await client.call("SandboxService/CreateSandbox", creation(at));
  expect(again.sandbox).toEqual(sandbox);
  expect((await live(client)).map(({ sandbox_id }) => sandbox_id)).toEqual([sandbox.sandbox_id]);
}

async function oneIsGone(client: Client, sandbox: Sandbox | undefined, cause: string): Promise<void> {
  const id = sandbox?.sandbox_id ?? "";
  await eventually(async () => (await state(client, id)) === "SANDBOX_STATE_TERMINATED", SOON);
  expect((await client.getSandbox(id)).termination?.cause).toBe(`TERMINATION_CAUSE_${cause}`);
  expect(await live(client)).toEqual([]);
}

async function noSessionIsLeft(client: Client, at: Failpoint): Promise<void> {
  await eventually(async () => (await live(client)).length === 0, SOON);
  const worker = new Worker(client, at);
  expect(await worker.list()).toEqual([]);
  expect((await worker.create("bash")).status).toBe("SESSION_RESULT_STATUS_CREATED");
  expect((await worker.bash("echo usable")).stdout).toBe("usable\n");
}

const SCENARIOS: Readonly<Record<string, Scenario>> = {
  create: {
    at: [
      "create.intended",
      "create.container",
      "create.made",
      "create.ready",
      "request.done",
      "request.kept",
    ],
    act: (client, at) => client.call("SandboxService/CreateSandbox", creation(at)),
    check: oneIsMade,
  },
  claim: {
    at: ["claim.intended", "claim.made", "claim.ready"],
    args: ["--warm-pool", `${TEST_IMAGE}=1`],
    act: async (client, at) => {
      await eventually(async () => {
        const { warm_pools: pools } = await client.call("SandboxService/GetStats");
        return pools[0]?.ready === 1;
      }, SOON);
      await client.call("SandboxService/CreateSandbox", creation(at));
    },
    check: oneIsMade,
  },
  "the create of a session": {
    at: ["create.intended", "create.made", "create.ready"],
    act: (client, at) => new Worker(client, at).create("bash"),
    check: noSessionIsLeft,
  },
  "a call on a temporary session": {
    at: ["create.ready"],
    act: (client, at) => new Worker(client, at).bash("true"),
    check: noSessionIsLeft,
  },
  exec: {
    at: ["exec.intended", "exec.started", "exec.ended"],
    prepare: (client) => client.createSandbox(),
    act: (client, at, sandbox) => client.call("ProcessService/RunCommand", command(at, sandbox)),
    check: async (client, at, sandbox) => {
      const sandbox_id = sandbox?.sandbox_id ?? "";
      const retried = await client.call("ProcessService/RunCommand", command(at, sandbox));
      // It ran once or not at all, never twice. Unknown facts are not made up.
      const log = await client.output(sandbox_id, "cat /workspace/log 2>/dev/null || true");
      expect(log).toBe(at === "exec.intended" ? "" : "ran\n");
      expect(["EXIT_CAUSE_ENGINE_LOST", "EXIT_CAUSE_CANCELED"]).toContain(retried.exit_status.cause);
      expect(retried.exit_status.exit_code).toBe(-1);
      await client.deleteSandbox(sandbox_id);
    },
  },
  delete: {
    at: ["delete.intended", "delete.removed", "delete.finished"],
    prepare: (client) => client.createSandbox(),
    act: (client, at, sandbox) => client.call("SandboxService/DeleteSandbox", deletion(at, sandbox)),
    check: async (client, at, sandbox) => {
      await client.call("SandboxService/DeleteSandbox", deletion(at, sandbox));
      await oneIsGone(client, sandbox, "DELETED");
    },
  },
  "the fork of a workspace": {
    at: ["fork.intended", "fork.copied", "fork.activated", "request.done"],
    prepare: async (client, at) => {
      const { sandbox } = await client.call("WorkspaceService/EnsureWorkspaceSandbox", {
        workspace_id: forking(at).source_workspace_id,
      });
      if (sandbox === null) throw new Error("there is no sandbox");
      await client.output(sandbox.sandbox_id, "echo whole >file");
      await client.deleteSandbox(sandbox.sandbox_id);
      return sandbox;
    },
    act: (client, at) => client.call("WorkspaceService/ForkWorkspace", forking(at)),
    check: async (client, at) => {
      const { workspace } = await client.call("WorkspaceService/ForkWorkspace", forking(at));
      expect(await readFile(path.join(workspace.path, "file"), "utf8")).toBe("whole\n");
      const again = await client.call("WorkspaceService/ForkWorkspace", forking(at));
      expect(again.workspace).toEqual(workspace);
      const { workspaces, broken } = await client.call("WorkspaceService/ListWorkspaces");
      const ids = workspaces.map(({ workspace_id: id }) => id);
      expect(ids).toEqual([`fork at ${at}`, `source of ${at}`]);
      expect(broken).toEqual([]);
      for (const workspace_id of ids) {
        await client.call("WorkspaceService/CleanupWorkspace", { workspace_id, force: true });
      }
    },
  },
  sweep: {
    at: ["sweep.due", "delete.intended", "delete.removed", "delete.finished"],
    prepare: (client) => client.createSandbox({ idle_timeout: { seconds: 2 } }),
    act: () => new Promise(() => {}),
    check: (client, _at, sandbox) => oneIsGone(client, sandbox, "IDLE_TIMEOUT"),
  },
};

test("every failpoint is in a scenario", () => {
  const own = Object.values(SCENARIOS).flatMap(({ at }) => at);
  const covered = new Set([...own, ...RUN_POINTS]);
  expect([...covered].sort()).toEqual([...FAILPOINTS].sort());
});

/** Invariants after any crash: as many containers and used places as sandboxes. */
async function expectExact(service: LastingService, client: Client): Promise<void> {
  const found = async () => {
    const sandboxes = await live(client);
    const containers = await containersOf(service.instance);
    const { total_sandboxes: taken, warm_pools: pools } = await client.call("SandboxService/GetStats");
    return {
      sandboxes: sandboxes.length,
      taken,
      warm: pools.reduce((sum, { ready }) => sum + ready, 0),
      containers: containers.length,
      processes: (
        await Promise.all(containers.map(({ Id }) => processesIn(docker.getContainer(Id)).catch(() => [])))
      ).flat(),
    };
  };
  let last = await found();
  await eventually(
    async () => {
      last = await found();
      return last.sandboxes === last.taken && last.sandboxes + last.warm === last.containers;
    },
    { ...SOON, describe: () => last },
  );
}

describe.concurrent.each(Object.entries(SCENARIOS))("a service killed in %s", (_, scenario) => {
  const failpoint = path.join(newDataDir(), "failpoint");
  let service: LastingService;
  let client: Client;

  // The service that recovers is the next one to be killed.
  beforeAll(async () => {
    await writeFile(failpoint, "");
    const settings = { entry: [FAILING_MAIN], args: scenario.args ?? [] };
    service = await LastingService.start({ BERTH_TEST_FAILPOINT_FILE: failpoint }, settings);
    client = new Client(service.address);
  });
  afterAll(async () => {
    client?.close();
    await service?.stop();
    await expectNoContainers(service.instance);
    await service[Symbol.asyncDispose]();
  });

  test.each(scenario.at)("at %s", { concurrent: false }, async (at) => {
    await writeFile(failpoint, at);
    const sandbox = await scenario.prepare?.(client, at);
    scenario.act(client, at, sandbox).catch(() => {});
    expect(await service.ended()).toBe("SIGKILL");
    client.close();
    await writeFile(failpoint, "");
    await service.begin();
    client = new Client(service.address);
    await scenario.check(client, at, sandbox);
    await expectExact(service, client);
    for (const { sandbox_id: id } of await live(client)) await client.deleteSandbox(id);
  });
});
