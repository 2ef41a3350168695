import { setImmediate as nextTurn } from "node:timers/promises";
import { BerthError, hasReason, throwIfAborted } from "../base/errors.ts";
import { failpoint } from "../base/failpoints.ts";
import { newId, randomBase32 } from "../base/ids.ts";
import type { SandboxManager } from "../sandboxes/manager.ts";
import type { Transaction } from "../state/database.ts";
import { NO_PROGRESS, type RequestProgress } from "../state/request-log.ts";
import type { ServiceTime } from "../state/service-time.ts";
import type { WriteBehind } from "../state/write-behind.ts";
import { RunCatalog, type RunView } from "./catalog.ts";
import { RunJournal } from "./journal.ts";
import {
  assertStart,
  assertStartable,
  ended,
  isRepeated,
  newRun,
  recovered,
  renewed,
  reported,
  reset,
  type StepReport,
  started,
} from "./machine.ts";
import {
  endOf,
  type Moment,
  type Run,
  type RunEnd,
  type RunEventBody,
  type RunMessage,
  type RunOutcome,
  type RunSettings,
  type RunStep,
} from "./run.ts";
import { lossText, type RunningRuns, type StartingRun, type StartOfRun } from "./running-runs.ts";
import { RunCleanup, type RunSandboxParts, takeSandbox } from "./sandbox.ts";
import type { RunChange, RunQuota, RunStore } from "./store.ts";

/** How many runs of an owner are kept that are not RUNNING. */
const MAX_AT_REST = 10_000;
/** Pause before Berth retries to store the end of a run. */
const END_RETRY_MS = 5_000;

interface RunManagerParts extends Omit<RunSandboxParts, "journal"> {
  readonly store: RunStore;
  readonly transaction: Transaction;
  readonly writeBehind: WriteBehind;
  /** The RUNNING runs. The manager keeps it up to date. */
  readonly running: RunningRuns;
  /** The clock of leases and deadlines. */
  readonly time: Pick<ServiceTime, "nowMs">;
  /** See {@link RunQuota}. */
  readonly maxBytesPerOwner: number;
}

/** The answer to a report. */
interface ReportAnswer {
  /** RUNNING with the next step, or ended, after one attempt to clean up. */
  readonly run: Run;
  /** How it ended. Undefined if it continues. */
  readonly end: { readonly end: RunEnd; readonly steps: readonly RunStep[] } | undefined;
  readonly stuck: boolean;
}

/**
 * Supervises runs: counts their steps, enforces their time limits, and cleans up after them.
 *
 * Every change is written in one transaction before anyone sees it, so a run continues after a restart where it stood.
 * Slow work, which is starting and cleaning up, holds no lock: only one start of a run happens at a time, and a run
 * that is not RUNNING must be cleaned up before it can start again. Every method takes the owner; a run of another
 * owner is `RUN_NOT_FOUND`.
 */
export class RunManager {
  /** Reads runs. */
  readonly catalog: RunCatalog;
  readonly #parts: RunManagerParts & RunSandboxParts;
  readonly #cleanup: RunCleanup;
  readonly #running: RunningRuns;
  readonly #starts = new Map<string, { readonly abort: AbortController; readonly done: Promise<unknown> }>();
  #stopped = false;

  constructor(parts: RunManagerParts) {
    const { store, writeBehind } = parts;
    const journal = new RunJournal(store, writeBehind, (runId) => {
      this.catalog.changed(runId);
      this.#purge();
    });
    this.#parts = { ...parts, journal };
    this.#cleanup = new RunCleanup(this.#parts);
    this.#running = parts.running;
    this.catalog = new RunCatalog(store, journal);
  }

  /**
   * Recovers runs that an earlier run of the service left unfinished. Call it once, after the sandboxes have recovered
   * and before any other method.
   */
  recover(): void {
    const { store, sandboxes } = this.#parts;
    this.#purge();
    for (const stored of store.unsettled()) {
      if (stored.phase.state !== "RUNNING") {
        void this.#settle(stored.owner, stored.runId);
        continue;
      }
      const run = recovered(stored, this.#now());
      try {
        this.#write({ run, events: [] });
      } catch (error) {
        // On a full disk, the stored lease stays as it was. Its timer does not.
        if (!hasReason(error, "NO_SPACE")) throw error;
      }
      this.#running.add(run, (...lost) => this.#lost(...lost));
      try {
        if (run.sandbox !== undefined) {
          const { sandboxId, generation } = run.sandbox;
          this.#running.hold(
            run,
            sandboxes.acquire({ owner: run.owner, sandboxId, generation }, { paused: true, watches: true }),
          );
        }
      } catch (error) {
        this.#lost(run, "ERROR", lossText(error));
      }
    }
  }

  /** Creates a run in state IDLE. @throws what {@link SandboxManager.acquire} throws, if a sandbox is given. */
  create(owner: string, settings: RunSettings, progress: RequestProgress = NO_PROGRESS): RunView {
    this.#assertOpen();
    const { store, sandboxes, clock, transaction } = this.#parts;
    const { subject: begun } = progress;
    if (begun !== undefined && store.get(owner, begun)) return this.catalog.get(owner, begun);
    const { sandbox } = settings;
    if (sandbox.kind === "given") {
      const { sandboxId, generation } = sandbox;
      sandboxes.acquire({ owner, sandboxId, ...(generation !== undefined && { generation }) }).release();
    }
    const timeMs = clock.wallMs();
    const run = newRun(newId("run"), owner, settings, timeMs);
    const gone = transaction(() => {
      progress.begin(run.runId);
      const quota = { runs: MAX_AT_REST, bytes: this.#parts.maxBytesPerOwner };
      const { displacing: onDisplace } = this.catalog;
      return store.add({ run, events: [{ type: "CREATED" }], timeMs, onDisplace }, quota);
    });
    this.#gone(gone);
    failpoint("run.created");
    return { run, steps: [], messageCount: 0 };
  }

  /**
   * Prepares the sandbox of a run and hands out its first step. A start that fails or is aborted leaves the run
   * unchanged; if it cannot be stored, steps of the last pass may be gone.
   * @param request becomes a message of the user. Undefined: none.
   * @throws `RUN_NOT_FOUND`, `RUN_STATE`, `SANDBOX_IN_USE`, `TOO_MANY_OPERATIONS`, `ENGINE_UNAVAILABLE`, `CANCELED` and
   *   what {@link SandboxManager.create} and {@link SandboxManager.acquire} throw.
   */
  async start(
    owner: string,
    runId: string,
    request: string | undefined,
    signal: AbortSignal,
    progress: RequestProgress = NO_PROGRESS,
  ): Promise<RunView> {
    this.#assertOpen();
    this.#parts.journal.flush(runId);
    const idle = this.catalog.find(owner, runId);
    if (progress.subject !== undefined) {
      assertStart(idle, progress.subject);
      return this.catalog.get(owner, runId);
    }
    assertStartable(idle);
    this.#assertNotStarting(runId);
    const place = this.#running.reserve(owner, runId);
    const abort = new AbortController();
    const done = this.#start(owner, runId, request, AbortSignal.any([signal, abort.signal]), progress, place);
    this.#starts.set(runId, { abort, done });
    try {
      return await done.finally(() => {
        place.release();
        this.#starts.delete(runId);
      });
    } catch (error) {
      await this.#settle(owner, runId);
      throw error;
    }
  }

  /**
   * Records the outcome of a step. Returns when the run has its next step, or has ended and Berth has tried to clean up.
   * @throws `RUN_NOT_FOUND`, `RUN_STATE`.
   */
  async report(
    owner: string,
    runId: string,
    asked: StepReport,
    progress: RequestProgress = NO_PROGRESS,
  ): Promise<ReportAnswer> {
    this.#assertOpen();
    const { store } = this.#parts;
    const before = this.catalog.find(owner, runId);
    // A report that was kept belongs to the start that it was kept for, even if it names none.
    const report = { ...asked, startId: progress.subject ?? asked.startId };
    if (isRepeated(before, report)) return this.#answer(before, store.steps(runId).at(-1)?.stuck ?? false);
    const earlier = (): RunMessage[] => {
      const last = report.messages.at(-1);
      if (last !== undefined) return store.messagesLike(runId, last.content);
      const newest = store.messages(runId).at(-1);
      return newest === undefined ? [] : [...store.messagesLike(runId, newest.content).slice(0, -1), newest];
    };
    const { run, step } = reported(before, report, earlier, this.#now());
    failpoint("report.judged");
    this.#write(
      { run, addStep: step, addMessages: report.messages, events: [{ type: "STEP_REPORTED", step }] },
      () => progress.begin(run.startId),
    );
    failpoint("report.kept");
    if (run.phase.state === "RUNNING") this.#running.renew(run);
    return this.#answer(run, step.stuck);
  }

  /**
   * Renews the lease of the current step. Returns its new expiry in wall milliseconds.
   * @param step 0: the current one. @param startId empty: any start.
   * @throws `RUN_NOT_FOUND`, `RUN_STATE`.
   */
  keepAlive(owner: string, runId: string, step: number, startId: string): number {
    this.#assertOpen();
    const now = this.#now();
    const run = renewed(this.catalog.find(owner, runId), step, startId, now);
    this.#write({ run, events: [] });
    this.#running.renew(run);
    return now.wallMs + run.settings.stepTimeoutMs;
  }

  /**
   * Ends a run that is RUNNING or starting. Returns after one attempt to clean up.
   * @param progress of the request, which does not end a later pass.
   * @throws `RUN_NOT_FOUND`.
   */
  async cancel(owner: string, runId: string, progress: RequestProgress = NO_PROGRESS): Promise<RunView> {
    const run = this.catalog.find(owner, runId);
    const { subject = run.startId } = progress;
    if (subject === run.startId) {
      try {
        progress.begin(subject);
      } catch {
        // A run ends even if nothing can be stored.
      }
      await this.#cancel(run, "The run was canceled.");
    }
    return this.catalog.get(owner, runId);
  }

  /**
   * Makes a run IDLE, as if it had never been started.
   * @param progress of the request, which does not reset what came after it.
   * @throws `RUN_NOT_FOUND`, `RUN_STATE`, `ENGINE_UNAVAILABLE`.
   */
  async reset(owner: string, runId: string, progress: RequestProgress = NO_PROGRESS): Promise<RunView> {
    if (progress.subject !== undefined) return this.catalog.get(owner, runId);
    reset(this.catalog.find(owner, runId));
    this.#assertNotStarting(runId);
    if (!(await this.#settle(owner, runId))) throw notCleanedUp();
    for (;;) {
      this.#assertNotStarting(runId);
      this.#parts.journal.flush(runId);
      const run = reset(this.catalog.find(owner, runId));
      if (!this.#parts.store.clearSomeSteps(runId)) {
        this.#write({ run, clearSteps: true, clearMessages: true, events: [{ type: "RESET" }] }, () =>
          progress.begin(run.startId),
        );
        return this.catalog.get(owner, runId);
      }
      await nextTurn();
    }
  }

  /**
   * Removes a run, and ends it first if necessary. Idempotent. @throws `ENGINE_UNAVAILABLE` if it cannot be cleaned up
   * yet.
   */
  async delete(owner: string, runId: string): Promise<void> {
    const { journal } = this.#parts;
    const found = journal.get(owner, runId);
    if (found === undefined) return;
    await this.#cancel(found, "The run was deleted.");
    if (!(await this.#settle(owner, runId))) throw notCleanedUp();
    const run = journal.get(owner, runId);
    if (run === undefined) return;
    if (run.phase.state === "RUNNING" || this.#starts.has(runId)) return this.delete(owner, runId);
    this.#writeEventually({ run, events: [{ type: "DELETED" }] });
    this.catalog.removing(runId);
    journal.removeEventually(runId);
    this.#purge();
  }

  /** Accepts no more work, and lets no lease expire. Runs continue after the restart if their sandboxes do. */
  stop(): void {
    this.#stopped = true;
    const stopping = shuttingDown();
    for (const { abort } of this.#starts.values()) abort.abort(stopping);
    this.#running.stop();
    this.#cleanup.stop();
  }

  async #start(
    owner: string,
    runId: string,
    request: string | undefined,
    signal: AbortSignal,
    progress: RequestProgress,
    place: StartingRun,
  ): Promise<RunView> {
    if (!(await this.#cleanup.settle(owner, runId))) throw notCleanedUp();
    throwIfAborted(signal);
    const idle = this.catalog.find(owner, runId);
    const taken = await takeSandbox(idle, this.#parts, place, signal);
    const addMessages = request === undefined ? [] : [{ role: "USER", content: request } as const];
    let run: Run;
    try {
      while (this.#parts.store.clearSomeSteps(runId)) {
        await nextTurn();
        // A newer run may have displaced it meanwhile.
        this.catalog.find(owner, runId);
      }
      run = started(idle, randomBase32(20), taken?.held, this.#now());
      this.#write({ run, clearSteps: true, addMessages, events: [{ type: "STARTED" }] }, () =>
        progress.begin(run.startId),
      );
    } catch (error) {
      taken?.lease.release();
      throw error;
    }
    failpoint("run.started");
    this.#running.add(run, (...lost) => this.#lost(...lost));
    if (taken !== undefined) this.#running.hold(run, taken.lease);
    return { run, steps: [], messageCount: this.#parts.store.messageCount(runId) };
  }

  /** Ends a run on the server's own initiative. Retries until that is stored. */
  #lost(run: StartOfRun, outcome: RunOutcome, message: string): void {
    const { clock, logger } = this.#parts;
    this.#endLost(run, outcome, message).catch((error: unknown) => {
      if (this.#stopped) return;
      logger.error(
        { runId: run.runId, err: error },
        "the end of a run could not be written; Berth keeps retrying",
      );
      clock.setTimer(END_RETRY_MS, () => this.#lost(run, outcome, message));
    });
  }

  async #endLost({ owner, runId, startId }: StartOfRun, outcome: RunOutcome, message: string): Promise<void> {
    const run = this.#parts.journal.get(owner, runId);
    if (run?.phase.state === "RUNNING" && run.startId === startId) await this.#end(run, outcome, message);
  }

  /** Aborts a start and ends a RUNNING run. Returns after one attempt to clean up. */
  async #cancel({ owner, runId }: Run, message: string): Promise<void> {
    const start = this.#starts.get(runId);
    start?.abort.abort(new BerthError("CANCELED", `The start was aborted. ${message}`));
    await start?.done.catch(() => {});
    const run = this.#parts.journal.get(owner, runId);
    if (run?.phase.state === "RUNNING") await this.#end(run, "CANCELED", message);
    else await this.#settle(owner, runId);
  }

  async #end(run: Run, outcome: RunOutcome, message: string): Promise<void> {
    this.#writeEventually({ run: ended(run, outcome, message, this.#now()), events: [] });
    await this.#settle(run.owner, run.runId);
  }

  async #answer(run: Run, stuck: boolean): Promise<ReportAnswer> {
    const end = endOf(run);
    if (end === undefined) return { run, end: undefined, stuck };
    await this.#settle(run.owner, run.runId);
    return { run, end: { end, steps: this.#parts.store.steps(run.runId) }, stuck };
  }

  /**
   * Writes a change and wakes watchers. A run that is no longer RUNNING leaves {@link RunningRuns}.
   * @param also writes in the same transaction.
   * @throws `NO_SPACE` for steps and messages that exceed the owner's quota, unless the run has ended
   */
  #write(change: Omit<RunChange, "timeMs">, also: () => void = () => {}): void {
    const { journal, transaction, maxBytesPerOwner } = this.#parts;
    const whole = this.#withEnd(change);
    const adds = change.addStep !== undefined || (change.addMessages?.length ?? 0) > 0;
    const gone = transaction(() => {
      also();
      return journal.save(whole, adds ? maxBytesPerOwner : undefined);
    });
    // Only now: a full disk may show when the transaction is committed.
    this.#gone(gone);
    this.#written(whole);
  }

  /** The same for a run that ends or has ended. If the disk is full, its watchers get the events later. */
  #writeEventually(change: Omit<RunChange, "timeMs">): void {
    const whole = this.#withEnd(change);
    this.#parts.journal.saveEventually(whole);
    this.#written(whole);
  }

  /** Wakes the watchers of runs that newer ones displaced. */
  #gone(runIds: readonly string[]): void {
    for (const runId of runIds) this.catalog.changed(runId);
    if (runIds.length > 0) this.#purge();
  }

  /** Deletes what removed runs left in the database, a part at a time. */
  #purge(): void {
    const { store, writeBehind } = this.#parts;
    let isMore = false;
    const write = (): void => {
      isMore = store.purge();
    };
    writeBehind.add("removed runs", write, () => {
      if (isMore && !this.#stopped) this.#purge();
    });
  }

  /** A change with the time, and with the event if it ends its run. */
  #withEnd(change: Omit<RunChange, "timeMs">): RunChange {
    const { run } = change;
    const end = endOf(run);
    const ends = end !== undefined && this.#running.has(run.owner, run.runId);
    const events: RunEventBody[] = [...change.events];
    if (ends) events.push({ type: "ENDED", end });
    const { displacing: onDisplace } = this.catalog;
    return { ...change, events, timeMs: this.#parts.clock.wallMs(), onDisplace };
  }

  #written({ run, events }: RunChange): void {
    if (endOf(run) !== undefined) this.#running.remove(run);
    if (events.length > 0) this.catalog.changed(run.runId);
  }

  /** Cleans up after a run. Does nothing during a start, which is creating what would be removed. */
  async #settle(owner: string, runId: string): Promise<boolean> {
    return this.#starts.has(runId) || this.#cleanup.settle(owner, runId);
  }

  #assertNotStarting(runId: string): void {
    if (!this.#starts.has(runId)) return;
    throw new BerthError(
      "RUN_STATE",
      "The run is being started by another call. Wait for it, or cancel the run.",
      {
        metadata: { run_id: runId, state: "IDLE", current_step: "0" },
      },
    );
  }

  #now(): Moment {
    return { wallMs: this.#parts.clock.wallMs(), at: this.#parts.time.nowMs() };
  }

  #assertOpen(): void {
    if (this.#stopped) throw shuttingDown();
  }
}

function shuttingDown(): BerthError {
  return new BerthError("SHUTTING_DOWN", "The server is shutting down.");
}

function notCleanedUp(): BerthError {
  return new BerthError(
    "ENGINE_UNAVAILABLE",
    "The sandbox of the run's last pass could not be removed yet. Berth keeps retrying; try again later.",
    { retryAfterMs: 5_000 },
  );
}
