import { untilAborted } from "../base/async.ts";
import type { Clock } from "../base/clock.ts";
import { BerthError } from "../base/errors.ts";
import type { ProcessControl } from "../processes/control.ts";
import { orSandboxEnd } from "../processes/shell/errors.ts";
import type { SandboxManager } from "../sandboxes/manager.ts";
import type { SessionBackend } from "./backend.ts";
import type { SessionCreator } from "./create.ts";
import type { SessionEnder } from "./end.ts";
import { type SessionCall, type SessionRecord, sessionLost } from "./record.ts";

/** A session, as one call sees it. */
export interface SessionUse {
  readonly sessionId: string;
  /** Whether it exists only for this call. */
  readonly temporary: boolean;
  readonly backend: SessionBackend;
  /** Whether the previous backend was lost since the last call and this is a new one. */
  readonly restarted: boolean;
  /** The default timeout of a command. */
  readonly commandTimeoutMs: number;
  /** Aborted when the call must end. */
  readonly signal: AbortSignal;
}

/** As with commands, a start may take this long on a loaded machine, even if the call has a shorter timeout. */
const MIN_START_MS = 10_000;
/** How much longer than the call's timeout the start of a new backend may take. */
const LATE_START_MS = 2_000;

/** Runs the calls on each session one after another, each with a live backend and a lease on its sandbox. */
export class SessionExecutor {
  readonly #sandboxes: SandboxManager;
  readonly #creator: SessionCreator;
  readonly #ender: SessionEnder;
  readonly #control: Pick<ProcessControl, "isEnding">;
  readonly #clock: Clock;

  constructor(parts: {
    readonly sandboxes: SandboxManager;
    readonly creator: SessionCreator;
    readonly ender: SessionEnder;
    readonly control: Pick<ProcessControl, "isEnding">;
    readonly clock: Clock;
  }) {
    this.#sandboxes = parts.sandboxes;
    this.#creator = parts.creator;
    this.#ender = parts.ender;
    this.#control = parts.control;
    this.#clock = parts.clock;
  }

  /**
   * Runs `work` when it is the call's turn.
   * @param timeoutMs how long the call may last. Undefined: the sandbox's command timeout.
   * @throws `SESSION_LOST`, `DEADLINE_EXCEEDED` if a new backend does not start in time, and what `work` throws.
   */
  async run<T>(
    record: SessionRecord,
    call: SessionCall,
    signal: AbortSignal,
    work: (use: SessionUse) => Promise<T>,
    timeoutMs: number | undefined,
  ): Promise<T> {
    const either = AbortSignal.any([signal, call.signal]);
    await untilAborted(call.turn, either);
    using lease = this.#leaseSandbox(record);
    const all = AbortSignal.any([either, lease.signal]);
    try {
      const { commandTimeoutMs } = lease.sandbox.spec;
      const { backend, restarted } = await this.#liveBackend(record, all, timeoutMs ?? commandTimeoutMs);
      return await work({
        sessionId: record.sessionId,
        temporary: record.init.temporary,
        backend,
        restarted,
        commandTimeoutMs,
        signal: all,
      });
    } catch (error) {
      // What ended the call counts, rather than what that caused.
      throw await orSandboxEnd(error, lease.sandbox, all, this.#control);
    } finally {
      if (lease.signal.aborted) this.#giveUp(record);
    }
  }

  /** The backend of a session, or a new one in the same sandbox if it was lost. */
  async #liveBackend(record: SessionRecord, signal: AbortSignal, timeoutMs: number) {
    const { backend: before, place } = record;
    if (before?.alive) return { backend: before, restarted: false };
    record.backend = undefined;
    record.views.abortAll(sessionLost(record, `its ${record.init.type.name} is started again`));
    await before?.cleanup(false);
    if (place === undefined) throw sessionLost(record, "it has no sandbox");
    const late = new AbortController();
    const startMs = Math.max(timeoutMs + LATE_START_MS, MIN_START_MS);
    const cancelTimer = this.#clock.setTimer(startMs, () => late.abort(tooLate(record, startMs)));
    try {
      const either = AbortSignal.any([signal, late.signal]);
      const backend = await this.#creator.initialize(record, place, either);
      record.backend = backend;
      return { backend, restarted: true };
    } finally {
      cancelTimer();
    }
  }

  #leaseSandbox(record: SessionRecord) {
    if (record.lost !== undefined || record.place === undefined) {
      this.#giveUp(record);
      throw record.lost ?? sessionLost(record, "it has no sandbox");
    }
    try {
      return this.#sandboxes.acquire(record.place.sandbox);
    } catch (error) {
      if (!(error instanceof BerthError) || !isGone(error)) throw error;
      this.#giveUp(record);
      throw sessionLost(record, `its sandbox is gone: ${error.message.replace(/\.$/, "")}`);
    }
  }

  /** Ends a session that can serve no further call. A temporary session is ended by its call instead. */
  #giveUp(record: SessionRecord): void {
    if (!record.init.temporary) this.#ender.endLater(record);
  }
}

function tooLate({ sessionId, init }: SessionRecord, startMs: number): BerthError {
  return new BerthError(
    "DEADLINE_EXCEEDED",
    `The session's ${init.type.name} did not restart within ${startMs / 1000} s: something in the sandbox may stop its processes, or use up all of its CPU time.`,
    { metadata: { session_id: sessionId } },
  );
}

/** Whether an error means that the sandbox will not come back. */
function isGone({ reason, metadata }: BerthError): boolean {
  if (reason === "SANDBOX_NOT_RUNNING") return metadata.state !== "PAUSED" && metadata.state !== "CREATING";
  return reason === "SANDBOX_NOT_FOUND" || reason === "SANDBOX_REPLACED";
}
