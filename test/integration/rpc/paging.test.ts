import { afterEach, describe, expect, test } from "vitest";
import { useApp } from "../../support/app.ts";
import { failureOf, type Request } from "../../support/client.ts";
import { ENGINES } from "../../support/engines.ts";
import { eventually } from "../../support/eventually.ts";
import { RunDriver } from "../../support/run-driver.ts";
import type { UnaryAnswers } from "../../support/wire.ts";
import { Worker } from "../../support/worker.ts";

type ListName = Extract<keyof UnaryAnswers, `${string}/List${string}`>;

/** Something that can be listed. */
interface Listed {
  readonly name: string;
  readonly list: ListName;
  readonly request?: (made: readonly string[]) => Request;
  /** The ids in a response. */
  readonly ids: (answer: never) => readonly string[];
  readonly make: (index: number) => Promise<string>;
  /** Removes one. */
  readonly end: (id: string) => Promise<unknown>;
  /** Whether the list starts with the newest. */
  readonly newestFirst: boolean;
}

describe.each(ENGINES)("on $name", ({ settings }) => {
  const service = useApp(settings);
  const box = { sandbox_id: "box-of-processes" };
  let worker = 0;

  afterEach(async () => {
    const { sandboxes } = await service.client.call("SandboxService/ListSandboxes");
    await Promise.all(sandboxes.map(({ sandbox_id }) => service.client.deleteSandbox(sandbox_id)));
  });

  const call = <Name extends keyof UnaryAnswers>(name: Name, request?: Request) =>
    service.client.call(name, request);

  const LISTED: readonly Listed[] = [
    {
      name: "sandboxes",
      list: "SandboxService/ListSandboxes",
      ids: ({ sandboxes }: UnaryAnswers["SandboxService/ListSandboxes"]) =>
        sandboxes.map(({ sandbox_id }) => sandbox_id),
      make: async () => (await service.client.createSandbox()).sandbox_id,
      end: (sandbox_id) => service.client.deleteSandbox(sandbox_id),
      newestFirst: true,
    },
    {
      name: "processes",
      list: "ProcessService/ListProcesses",
      request: () => box,
      ids: ({ processes }: UnaryAnswers["ProcessService/ListProcesses"]) =>
        processes.map(({ process_id }) => process_id),
      make: async (index) => {
        if (index === 0) await call("SandboxService/CreateSandbox", box);
        const stream = service.client.stream("ProcessService/Exec", {
          ...box,
          shell: "sleep 1000",
          on_disconnect: "ON_DISCONNECT_DETACH",
        });
        const id = await new Promise<string>((resolve, reject) => {
          stream.on("data", ({ started }) => started && resolve(started.process_id));
          stream.on("error", reject);
        });
        stream.removeAllListeners("error").on("error", () => {});
        stream.cancel();
        return id;
      },
      end: async (process_id) => {
        await call("ProcessService/SignalProcess", { process_id, signal: 9 });
        await eventually(async () => {
          const { process } = await call("ProcessService/GetProcess", { process_id });
          return process.exit_status !== null;
        });
      },
      newestFirst: true,
    },
    {
      name: "sessions",
      list: "SessionService/ListSessions",
      ids: ({ sessions }: UnaryAnswers["SessionService/ListSessions"]) =>
        sessions.map(({ worker_id }) => worker_id),
      make: async (index) => {
        const id = `worker-${worker++}-${index}`;
        await new Worker(service.client, id).create("bash");
        return id;
      },
      end: (id) => new Worker(service.client, id).destroy(),
      newestFirst: true,
    },
    {
      name: "runs",
      list: "RunService/ListRuns",
      ids: ({ runs }: UnaryAnswers["RunService/ListRuns"]) => runs.map(({ run_id }) => run_id),
      make: async () => (await RunDriver.create(service.client)).runId,
      end: (run_id) => call("RunService/DeleteRun", { run_id }),
      newestFirst: true,
    },
    {
      name: "workspaces",
      list: "WorkspaceService/ListWorkspaces",
      ids: ({ workspaces }: UnaryAnswers["WorkspaceService/ListWorkspaces"]) =>
        workspaces.map(({ workspace_id }) => workspace_id),
      make: async (index) => {
        await call("WorkspaceService/CreateWorkspace", { workspace_id: `w${index}` });
        return `w${index}`;
      },
      end: (workspace_id) => call("WorkspaceService/CleanupWorkspace", { workspace_id, force: true }),
      newestFirst: false,
    },
  ];

  test.each(LISTED)(
    "a list of $name continues where it stopped, when the last one shown has been removed",
    async (listed) => {
      const made: string[] = [];
      for (let index = 0; index < 5; index++) made.push(await listed.make(index));
      const order = listed.newestFirst ? made.toReversed() : made;
      const page = async (page_token: string) => {
        const answer = await call(listed.list, { ...listed.request?.(made), page_size: 2, page_token });
        return { ids: listed.ids(answer as never), next: answer.next_page_token };
      };
      const first = await page("");
      expect(first.ids).toEqual(order.slice(0, 2));
      await listed.end(order[1] ?? "");
      const second = await page(first.next);
      expect(second.ids).toEqual(order.slice(2, 4));
      // Everything around the position is gone.
      for (const index of [2, 3]) await listed.end(order[index] ?? "");
      const last = await page(second.next);
      expect(last).toEqual({ ids: order.slice(4), next: "" });
      expect(await page(first.next)).toEqual(last);
      for (const index of [0, 4]) await listed.end(order[index] ?? "");
      expect(await page(first.next)).toEqual({ ids: [], next: "" });
    },
  );

  test("a token that does not belong to a list is refused", async () => {
    await call("SandboxService/CreateSandbox", box);
    const page_token = Buffer.from('{"at":"x"}').toString("base64url");
    for (const { list } of LISTED) {
      const refused = { code: "INVALID_ARGUMENT", reason: "INVALID_ARGUMENT" };
      expect(await failureOf(call(list, { ...box, page_token })), list).toMatchObject(refused);
    }
  });
});
