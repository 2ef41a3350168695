import { readFile } from "node:fs/promises";
import path from "node:path";
import { describe, expect, test } from "vitest";
import { FAILPOINTS, type Failpoint } from "../../../src/base/failpoints.ts";
import { expectNoContainers } from "../../support/app.ts";
import { Client } from "../../support/client.ts";
import { containersOf, docker, processesIn } from "../../support/docker.ts";
import { eventually } from "../../support/eventually.ts";
import { TEST_IMAGE } from "../../support/images.ts";
import { FAILING_MAIN, ServeProcess } from "../../support/program.ts";
import type { Sandbox } from "../../support/wire.ts";
import { Worker } from "../../support/worker.ts";
import { RUN_POINTS } from "./run-points.ts";

const SOON = { timeoutMs: 60_000 };

/** What happens up to the crash, and what a caller finds that comes back afterwards. */
interface Scenario {
  readonly at: readonly Failpoint[];
  readonly args?: readonly string[];
  /** Before the crashing calls, with a service that does not crash. */
  readonly prepare?: (client: Client) => Promise<Sandbox>;
  /** Ends in the crash. */
  readonly act: (client: Client, sandbox: Sandbox | undefined) => Promise<unknown>;
  /** After the restart. */
  readonly check: (client: Client, sandbox: Sandbox | undefined, at: Failpoint) => Promise<void>;
}

const CREATE = { request_id: "create", spec: { labels: { by: "create" } } };
const FORK = { request_id: "fork", source_workspace_id: "source", workspace_id: "fork" };
const COMMAND = { request_id: "run", shell: "echo ran >>/workspace/log; echo reported" };
const state = async (client: Client, id = ""): Promise<string> => (await client.getSandbox(id)).state;
const live = async (client: Client): Promise<readonly Sandbox[]> =>
  (await client.call("SandboxService/ListSandboxes")).sandboxes;

async function oneIsMade(client: Client): Promise<void> {
  const { sandbox } = await client.call("SandboxService/CreateSandbox", CREATE);
  expect(sandbox.state).toBe("SANDBOX_STATE_RUNNING");
  expect(await client.output(sandbox.sandbox_id, "echo usable")).toBe("usable\n");
  // The next retry gets the same answer.
  const again = await client.call("SandboxService/CreateSandbox", CREATE);
  expect(again.sandbox).toEqual(sandbox);
  expect((await live(client)).map(({ sandbox_id }) => sandbox_id)).toEqual([sandbox.sandbox_id]);
}

async function oneIsGone(client: Client, sandbox: Sandbox | undefined, cause: string): Promise<void> {
  const id = sandbox?.sandbox_id ?? "";
  await eventually(async () => (await state(client, id)) === "SANDBOX_STATE_TERMINATED", SOON);
  expect((await client.getSandbox(id)).termination?.cause).toBe(`TERMINATION_CAUSE_${cause}`);
  expect(await live(client)).toEqual([]);
}

async function noSessionIsLeft(client: Client): Promise<void> {
  await eventually(async () => (await live(client)).length === 0, SOON);
  const worker = new Worker(client, "crash");
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
    act: (client) => client.call("SandboxService/CreateSandbox", CREATE),
    check: oneIsMade,
  },
  claim: {
    at: ["claim.intended", "claim.made", "claim.ready"],
    args: ["--warm-pool", `${TEST_IMAGE}=1`],
    act: async (client) => {
      await eventually(async () => {
        const { warm_pools: pools } = await client.call("SandboxService/GetStats");
        return pools[0]?.ready === 1;
      }, SOON);
      await client.call("SandboxService/CreateSandbox", CREATE);
    },
    check: oneIsMade,
  },
  "the create of a session": {
    at: ["create.intended", "create.made", "create.ready"],
    act: (client) => new Worker(client, "crash").create("bash"),
    check: noSessionIsLeft,
  },
  "a call on a temporary session": {
    at: ["create.ready"],
    act: (client) => new Worker(client, "crash").bash("true"),
    check: noSessionIsLeft,
  },
  exec: {
    at: ["exec.intended", "exec.started", "exec.ended"],
    prepare: (client) => client.createSandbox(),
    act: (client, sandbox) =>
      client.call("ProcessService/RunCommand", { ...COMMAND, sandbox_id: sandbox?.sandbox_id }),
    check: async (client, sandbox, at) => {
      const sandbox_id = sandbox?.sandbox_id ?? "";
      const retried = await client.call("ProcessService/RunCommand", { ...COMMAND, sandbox_id });
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
    act: (client, sandbox) =>
      client.call("SandboxService/DeleteSandbox", { request_id: "delete", sandbox_id: sandbox?.sandbox_id }),
    check: async (client, sandbox) => {
      const request = { request_id: "delete", sandbox_id: sandbox?.sandbox_id };
      await client.call("SandboxService/DeleteSandbox", request);
      await oneIsGone(client, sandbox, "DELETED");
    },
  },
  "the fork of a workspace": {
    at: ["fork.intended", "fork.copied", "fork.activated", "request.done"],
    prepare: async (client) => {
      const { sandbox } = await client.call("WorkspaceService/EnsureWorkspaceSandbox", {
        workspace_id: "source",
      });
      if (sandbox === null) throw new Error("there is no sandbox");
      await client.output(sandbox.sandbox_id, "echo whole >file");
      await client.deleteSandbox(sandbox.sandbox_id);
      return sandbox;
    },
    act: (client) => client.call("WorkspaceService/ForkWorkspace", FORK),
    check: async (client) => {
      const { workspace } = await client.call("WorkspaceService/ForkWorkspace", FORK);
      expect(await readFile(path.join(workspace.path, "file"), "utf8")).toBe("whole\n");
      expect((await client.call("WorkspaceService/ForkWorkspace", FORK)).workspace).toEqual(workspace);
      const { workspaces, broken } = await client.call("WorkspaceService/ListWorkspaces");
      expect(workspaces.map(({ workspace_id: id }) => id)).toEqual(["fork", "source"]);
      expect(broken).toEqual([]);
    },
  },
  sweep: {
    at: ["sweep.due", "delete.intended", "delete.removed", "delete.finished"],
    prepare: (client) => client.createSandbox({ idle_timeout: { seconds: 2 } }),
    act: () => new Promise(() => {}),
    check: (client, sandbox) => oneIsGone(client, sandbox, "IDLE_TIMEOUT"),
  },
};

test("every failpoint is in a scenario", () => {
  const own = Object.values(SCENARIOS).flatMap(({ at }) => at);
  const covered = new Set([...own, ...RUN_POINTS]);
  expect([...covered].sort()).toEqual([...FAILPOINTS].sort());
});

/** Invariants after any crash: as many containers and used places as sandboxes, and no unknown process. */
async function expectExact(service: ServeProcess, client: Client): Promise<void> {
  const found = async () => {
    const sandboxes = await live(client);
    const containers = await containersOf(service.instance);
    const { total_sandboxes: taken } = await client.call("SandboxService/GetStats");
    return {
      sandboxes: sandboxes.length,
      taken,
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
      return last.sandboxes === last.taken && last.sandboxes === last.containers;
    },
    { ...SOON, describe: () => last },
  );
}

describe.concurrent.each(Object.entries(SCENARIOS))("a service killed in %s", (_, scenario) => {
  test.each(scenario.at)("at %s", async (at) => {
    const args = scenario.args ?? [];
    const env = { BERTH_TEST_FAILPOINT: at };
    let service = await ServeProcess.start(args, env, { entry: [FAILING_MAIN] });
    let client = new Client(service.address);
    try {
      const sandbox = await scenario.prepare?.(client);
      scenario.act(client, sandbox).catch(() => {});
      expect((await service.end).signal).toBe("SIGKILL");
      client.close();
      service = await service.again();
      client = new Client(service.address);
      await scenario.check(client, sandbox, at);
      await expectExact(service, client);
    } finally {
      client.close();
      await service.stop();
      await expectNoContainers(service.instance);
    }
  });
});
