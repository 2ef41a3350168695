import type { CancelTimer, Clock } from "../base/clock.ts";
import { BerthError } from "../base/errors.ts";
import { failpoint } from "../base/failpoints.ts";
import { newId } from "../base/ids.ts";
import type { Logger } from "../base/logger.ts";
import type { Lease } from "../sandboxes/lease.ts";
import type { SandboxManager } from "../sandboxes/manager.ts";
import type { RunJournal } from "./journal.ts";
import type { HeldSandbox, Run } from "./run.ts";
import type { StartingRun } from "./running-runs.ts";
import type { RunChange } from "./store.ts";

/** The sandbox in which a run is about to work. */
interface TakenSandbox {
  readonly held: HeldSandbox;
  readonly lease: Lease;
}

/** The processes in sandboxes that belong to runs. */
interface RunProcesses {
  /**
   * Ends every process that was started for a run, with its whole tree. Resumes a paused sandbox for that. Resolves
   * when they have ended. Never rejects.
   */
  endRun(owner: string, runId: string): Promise<void>;
}

export interface RunSandboxParts {
  readonly journal: RunJournal;
  readonly sandboxes: Pick<SandboxManager, "create" | "acquire" | "delete">;
  readonly processes: RunProcesses;
  readonly clock: Clock;
  readonly logger: Logger;
}

const RETRY_MS = 5_000;
/** How long the processes of a run may take to end before the cleanup fails. */
const PROCESSES_MS = 30_000;

/**
 * Creates or acquires the sandbox of a run that starts. Undefined for a run without one. After a failure or an abort
 * the run holds what it held before, or, as `STARTING`, a sandbox that could not be removed. A cleanup removes that.
 * @throws what {@link SandboxManager.create} and {@link SandboxManager.acquire} throw; `SANDBOX_IN_USE`.
 */
export async function takeSandbox(
  run: Run,
  parts: RunSandboxParts,
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
  parts: RunSandboxParts,
  place: StartingRun,
  signal: AbortSignal,
): Promise<TakenSandbox> {
  const { journal, sandboxes, clock } = parts;
  const sandboxId = newId("sbx");
  place.claim(sandboxId);
  const holding = (sandbox: HeldSandbox | undefined): RunChange => {
    return { run: { ...run, sandbox }, events: [], timeMs: clock.wallMs() };
  };
  // Recorded first, so that after a crash the next start finds it.
  journal.save(holding({ sandboxId, generation: 1, use: "STARTING" }));
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
    if (gone) journal.saveEventually(holding(run.sandbox));
    throw error;
  }
}

function take(
  { owner }: Run,
  sandboxId: string,
  generation: number | undefined,
  { sandboxes }: RunSandboxParts,
): TakenSandbox {
  const name = { owner, sandboxId, ...(generation !== undefined && { generation }) };
  const lease = sandboxes.acquire(name, { watches: true });
  return { held: { sandboxId, generation: lease.sandbox.generation, use: "IN_USE" }, lease };
}

/**
 * Removes what a run leaves behind once it is not RUNNING: its processes, and its sandbox unless it is kept. Keeps
 * retrying. Deletes only the generation of the sandbox that the run held.
 */
export class RunCleanup {
  readonly #parts: RunSandboxParts;
  /** Running attempts, by run id. */
  readonly #attempts = new Map<string, Promise<boolean>>();
  /** Scheduled attempts, by run id. */
  readonly #retries = new Map<string, CancelTimer>();
  #stopped = false;

  constructor(parts: RunSandboxParts) {
    this.#parts = parts;
  }

  /**
   * Cleans up after a run, or joins a running attempt. Returns whether everything is gone; if not, Berth keeps
   * retrying. Never rejects.
   */
  settle(owner: string, runId: string): Promise<boolean> {
    const running = this.#attempts.get(runId);
    if (running !== undefined) return running;
    this.#retries.get(runId)?.();
    this.#retries.delete(runId);
    const attempt = this.#attempt(owner, runId).finally(() => this.#attempts.delete(runId));
    this.#attempts.set(runId, attempt);
    return attempt;
  }

  /** Cancels the scheduled attempts. */
  stop(): void {
    this.#stopped = true;
    for (const cancel of this.#retries.values()) cancel();
    this.#retries.clear();
  }

  async #attempt(owner: string, runId: string): Promise<boolean> {
    const { journal, logger, clock } = this.#parts;
    try {
      const run = journal.get(owner, runId);
      if (run === undefined || run.phase.state === "RUNNING") return true;
      failpoint("run.ended");
      await Promise.all([this.#endProcesses(run), this.#deleteSandbox(run)]);
      failpoint("run.cleaned");
      const now = journal.get(owner, runId);
      if (now?.sandbox !== undefined && now.sandbox.sandboxId === run.sandbox?.sandboxId) {
        const change = { run: { ...now, sandbox: leftOf(now) }, events: [], timeMs: clock.wallMs() };
        journal.saveEventually(change);
      }
      return true;
    } catch (error) {
      if (this.#stopped) return false;
      logger.warn({ runId, err: error }, "a run could not be cleaned up; Berth keeps retrying");
      this.#retries.set(
        runId,
        clock.setTimer(RETRY_MS, () => void this.settle(owner, runId)),
      );
      return false;
    }
  }

  async #endProcesses({ owner, runId }: Run): Promise<void> {
    const { processes, clock } = this.#parts;
    const late = Promise.withResolvers<never>();
    const cancel = clock.setTimer(PROCESSES_MS, () =>
      late.reject(new BerthError("ENGINE_UNAVAILABLE", "The processes of the run have not ended yet.")),
    );
    try {
      await Promise.race([processes.endRun(owner, runId), late.promise]);
    } finally {
      cancel();
    }
  }

  async #deleteSandbox(run: Run): Promise<void> {
    const { sandbox, owner } = run;
    if (sandbox === undefined || leftOf(run) !== undefined) return;
    const { sandboxId, generation } = sandbox;
    try {
      await this.#parts.sandboxes.delete({ owner, sandboxId, generation }, 0);
    } catch (error) {
      // Another generation does not belong to this run.
      if (!(error instanceof BerthError && error.reason === "SANDBOX_REPLACED")) throw error;
    }
  }
}

/** What remains of the sandbox that a run held. */
function leftOf({ sandbox, settings }: Run): HeldSandbox | undefined {
  if (sandbox === undefined || sandbox.use === "STARTING") return undefined;
  return settings.onEnd === "KEEP" ? { ...sandbox, use: "LEFT" } : undefined;
}
