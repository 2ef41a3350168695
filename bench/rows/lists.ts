import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { RunService, RunState } from "../../gen/ts/berth/v1/run_pb.js";
import { SandboxService } from "../../gen/ts/berth/v1/sandbox_pb.js";
import { WorkspaceService } from "../../gen/ts/berth/v1/workspace_pb.js";
import { newId } from "../../src/base/ids.ts";
import { Store } from "../../src/store.ts";
import type { BenchContext, Figure, Row } from "../row.ts";
import type { BenchService } from "../service.ts";
import { inTurn, quantile } from "../stats.ts";

const FEW = 10;
const MANY = 10_000;
const MAX_TIMES = 1.2;
const AT_ONCE = 16;
const BROKEN = "broken";
/** The owner of everything without tokens. */
const OWNER = "default";
const WARM_UP_ROUNDS = 200;

/** Creates and lists with 10,000 existing items, compared with a service that has 10. */
export const lists: Row = {
  name: "lists",
  limitSeconds: 600,
  run: async ({ scale, ...context }) => {
    const { progress } = context;
    const many = Math.max(FEW, Math.round(MANY * Math.min(1, scale)));
    const rounds = Math.max(50, Math.round(500 * scale));
    const roots = mkdtempSync(path.join(tmpdir(), "berth-bench-lists-"));
    try {
      const [small, large] = await Promise.all(
        [FEW, many].map(async (count) => {
          const service = await startWith(count, path.join(roots, String(count)), context);
          await warmUp(service);
          return service;
        }),
      );
      if (small === undefined || large === undefined) throw new Error("the services did not start");
      const figures: Figure[] = [];
      for (const [name, act] of Object.entries(ACTS)) {
        progress(name);
        const sample = await inTurn(
          rounds,
          () => act(large),
          () => act(small),
        );
        figures.push(figure(`${name}, ${many} against ${FEW}`, sample));
      }
      return figures;
    } finally {
      rmSync(roots, { recursive: true, force: true });
    }
  },
};

let made = 0;

const ACTS: Readonly<Record<string, (service: BenchService) => Promise<unknown>>> = {
  CreateRun: ({ client }) => client.unary(RunService.method.createRun, {}),
  ListRuns: ({ client }) => client.unary(RunService.method.listRuns, { pageSize: FEW }),
  "ListRuns of a state": ({ client }) =>
    client.unary(RunService.method.listRuns, { pageSize: FEW, states: [RunState.FINISHED] }),
  "CreateSandbox that fails": (service) => failingCreate(service),
  "ListSandboxes that live": ({ client }) => client.unary(SandboxService.method.listSandboxes, {}),
  "ListSandboxes with ended ones": ({ client }) =>
    client.unary(SandboxService.method.listSandboxes, { pageSize: FEW, showTerminated: true }),
  CreateWorkspace: createWorkspace,
  ListWorkspaces: ({ client }) => client.unary(WorkspaceService.method.listWorkspaces, { pageSize: 5 }),
};

/** A service with this many runs, workspaces and records of sandboxes. */
async function startWith(
  count: number,
  dataDir: string,
  { start, progress }: Pick<BenchContext, "start" | "progress">,
): Promise<BenchService> {
  const options = ["--data-dir", dataDir];
  progress(`${count} runs and sandboxes`);
  const first = await start(options);
  await prepareRecords(first);
  await first.stop();
  multiply(dataDir, count);
  const service = await start(options);
  progress(`${count} workspaces`);
  let left = count;
  const worker = async (): Promise<void> => {
    while (left-- > 0) await createWorkspace(service);
  };
  await Promise.all(Array.from({ length: AT_ONCE }, worker));
  return service;
}

/** Leaves a run, and the record of a sandbox that cannot be created: no work for the engine. */
export async function prepareRecords(service: BenchService): Promise<void> {
  const { client } = service;
  const { workspace } = await client.unary(WorkspaceService.method.createWorkspace, { workspaceId: BROKEN });
  rmSync(workspace?.path ?? "", { recursive: true, force: true });
  await client.unary(RunService.method.createRun, {});
  await failingCreate(service);
}

/** Copies the run and the sandbox of a store. Creating as many with calls takes minutes on a busy machine. */
export function multiply(dataDir: string, count: number): void {
  const store = Store.open(dataDir);
  try {
    const [listed] = store.runs.list({ owner: OWNER, states: new Set(), limit: 1, before: undefined }).runs;
    const [sandbox] = store.sandboxes.load();
    if (listed === undefined || sandbox === undefined) throw new Error("the service kept nothing");
    const { run } = listed;
    const [created] = store.runs.events(run.runId, 0, 1);
    if (created === undefined) throw new Error("the run has no events");
    const { body, timeMs } = created;
    const quota = { runs: count, bytes: Number.POSITIVE_INFINITY };
    store.transaction(() => {
      for (let copy = 1; copy < count; copy++) {
        store.runs.add({ run: { ...run, runId: newId("run") }, events: [body], timeMs }, quota);
        store.sandboxes.put({
          ...sandbox,
          spec: sandbox.spec(),
          sandboxId: newId("sbx"),
          place: sandbox.place + copy,
        });
      }
    });
  } finally {
    store.close();
  }
}

/** Makes a service that has done little compile the measured code. Leaves at most one row of each kind. */
async function warmUp(service: BenchService): Promise<void> {
  const { client } = service;
  for (let round = 0; round < WARM_UP_ROUNDS; round++) {
    const { run } = await client.unary(RunService.method.createRun, {});
    await client.unary(RunService.method.deleteRun, { runId: run?.runId ?? "" });
    await client.unary(WorkspaceService.method.createWorkspace, { workspaceId: "warm-up" });
    await failingCreate(service, "warm-up");
    await client.unary(RunService.method.listRuns, { pageSize: FEW });
    await client.unary(SandboxService.method.listSandboxes, { pageSize: FEW, showTerminated: true });
    await client.unary(WorkspaceService.method.listWorkspaces, { pageSize: 5 });
  }
}

function createWorkspace({ client }: BenchService): Promise<unknown> {
  return client.unary(WorkspaceService.method.createWorkspace, { workspaceId: `workspace-${made++}` });
}

async function failingCreate({ client }: BenchService, sandboxId = ""): Promise<void> {
  const mounts = [{ source: { case: "workspaceId" as const, value: BROKEN }, target: "/broken" }];
  const failure = await client
    .unary(SandboxService.method.createSandbox, { sandboxId, spec: { mounts } })
    .then(
      () => undefined,
      (error: unknown) => error as Error,
    );
  if (failure === undefined || !failure.message.includes("workspace")) {
    throw new Error("a sandbox with a broken workspace should have been refused", { cause: failure });
  }
}

function figure(name: string, { berth, raw }: { readonly berth: number[]; readonly raw: number[] }): Figure {
  const [p50, rawP50] = [quantile(berth, 0.5), quantile(raw, 0.5)];
  return {
    ...{ name, unit: "ms", p50, rawP50 },
    p99: quantile(berth, 0.99),
    ratio: rawP50 / p50,
    goal: `p50 ≤ ${MAX_TIMES} × of ${FEW}`,
    reached: p50 <= MAX_TIMES * rawP50,
  };
}
