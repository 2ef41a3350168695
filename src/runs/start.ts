import type { Clock } from "../base/clock.ts";
import { failpoint } from "../base/failpoints.ts";
import { newId } from "../base/ids.ts";
import type { Lease } from "../sandboxes/lease.ts";
import type { SandboxManager } from "../sandboxes/manager.ts";
import type { HeldSandbox, Run } from "./run.ts";
import type { StartingRun } from "./running-runs.ts";
import type { RunStore } from "./store.ts";

/** The sandbox that a run is about to work in. */
export interface TakenSandbox {
  readonly held: HeldSandbox;
  readonly lease: Lease;
}

/** What {@link takeSandbox} works with. */
export interface TakeSandboxParts {
  readonly store: RunStore;
  readonly sandboxes: Pick<SandboxManager, "create" | "acquire" | "delete">;
  readonly clock: Clock;
}

/**
 * Makes or takes the sandbox of a run that starts; undefined for one without.
 * On failure and on abort the run holds what it held, or what could not be
 * removed, as `STARTING`: it is then to be cleaned up.
 * @throws what {@link SandboxManager.create} and {@link SandboxManager.acquire} throw; `SANDBOX_IN_USE`.
 */
export async function takeSandbox(
  run: Run,
  parts: TakeSandboxParts,
  place: StartingRun,
  signal: AbortSignal,
): Promise<TakenSandbox | undefined> {
  const { sandbox } = run.settings;
  switch (sandbox.kind) {
    case "none":
      return undefined;
    case "given": {
      place.claim(sandbox.sandboxId);
      return take(run, sandbox.sandboxId, sandbox.generation, parts);
    }
    case "made":
      return make(run, sandbox.spec, parts, place, signal);
  }
}

async function make(
  run: Run,
  spec: Parameters<SandboxManager["create"]>[1],
  parts: TakeSandboxParts,
  place: StartingRun,
  signal: AbortSignal,
): Promise<TakenSandbox> {
  const { store, sandboxes, clock } = parts;
  const sandboxId = newId("sbx");
  place.claim(sandboxId);
  const write = (sandbox: HeldSandbox | undefined): void =>
    store.save({ run: { ...run, sandbox }, events: [], timeMs: clock.wallMs() });
  // Written before it is made: a service that dies meanwhile finds it again.
  write({ sandboxId, generation: 1, use: "STARTING" });
  failpoint("run.starting");
  try {
    const { generation } = await sandboxes.create(run.owner, spec, { sandboxId, signal });
    failpoint("run.made");
    return take(run, sandboxId, generation, parts);
  } catch (error) {
    const gone = await sandboxes.delete({ owner: run.owner, sandboxId }, 0).then(
      () => true,
      () => false,
    );
    if (gone) write(run.sandbox);
    throw error;
  }
}

function take(
  { owner }: Run,
  sandboxId: string,
  generation: number | undefined,
  { sandboxes }: TakeSandboxParts,
): TakenSandbox {
  const name = { owner, sandboxId, ...(generation !== undefined && { generation }) };
  const lease = sandboxes.acquire(name, { watches: true });
  return { held: { sandboxId, generation: lease.sandbox.generation, use: "IN_USE" }, lease };
}
