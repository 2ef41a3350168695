import type { Clock } from "../base/clock.ts";
import { BerthError } from "../base/errors.ts";
import { untilAborted } from "../base/until.ts";
import type { SandboxManager } from "../sandboxes/manager.ts";
import type { SessionBackend } from "./backend.ts";
import type { SessionMaker } from "./create.ts";
import type { SessionEnder } from "./end.ts";
import type { SessionCall } from "./record.ts";
import { type SessionRecord, sessionLost } from "./record.ts";

/** A session as a call uses it. */
export interface SessionUse {
  readonly sessionId: string;
  /** Whether it was made for this call alone. */
  readonly temporary: boolean;
  readonly resource: SessionBackend;
  /** Whether the resource was lost since the call before, and began anew. */
  readonly restarted: boolean;
  /** How long a command may run where nobody says. */
  readonly commandTimeoutMs: number;
  /** Aborted when the call has to end. */
  readonly signal: AbortSignal;
}

/** As with commands: a loaded machine may need so long to start one that is to run for a moment only. */
const MIN_START_MS = 10_000;
/** How much longer than a call may last its resource may take to begin anew. */
const LATE_START_MS = 2_000;

/** Gives calls their turn on a session, with a resource that is alive in a sandbox that stays meanwhile. */
export class SessionTurns {
  readonly #sandboxes: SandboxManager;
  readonly #maker: SessionMaker;
  readonly #ender: SessionEnder;
  readonly #clock: Clock;

  constructor(sandboxes: SandboxManager, maker: SessionMaker, ender: SessionEnder, clock: Clock) {
    this.#clock = clock;
    this.#sandboxes = sandboxes;
    this.#maker = maker;
    this.#ender = ender;
  }

  /**
   * Runs `work` when it is the call's turn.
   * @param timeoutMs how long the call may last; undefined: the sandbox's command timeout.
   * @throws `SESSION_LOST`, `DEADLINE_EXCEEDED` where the resource does not begin anew in time, and what `work` throws.
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
      const { resource, restarted } = await this.#aliveResource(record, all, timeoutMs ?? commandTimeoutMs);
      return await work({
        sessionId: record.sessionId,
        temporary: record.init.temporary,
        resource,
        restarted,
        commandTimeoutMs,
        signal: all,
      });
    } finally {
      if (lease.signal.aborted) this.#giveUp(record);
    }
  }

  /** The resource of a session; where it is lost, another, begun anew in the same sandbox. */
  async #aliveResource(record: SessionRecord, signal: AbortSignal, timeoutMs: number) {
    const { resource: before, place } = record;
    if (before?.alive) return { resource: before, restarted: false };
    record.resource = undefined;
    await before?.cleanup(false);
    if (place === undefined) throw sessionLost(record, "it has no sandbox");
    const late = new AbortController();
    const startMs = Math.max(timeoutMs + LATE_START_MS, MIN_START_MS);
    const cancelTimer = this.#clock.setTimer(startMs, () => late.abort(tooLate(record, startMs)));
    try {
      const either = AbortSignal.any([signal, late.signal]);
      const resource = await this.#maker.initialize(record, place, either);
      record.resource = resource;
      return { resource, restarted: true };
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
      throw sessionLost(record, `its sandbox is gone: ${error.message}`);
    }
  }

  /** A session that serves no further call. A temporary one is ended by its only call. */
  #giveUp(record: SessionRecord): void {
    if (!record.init.temporary) this.#ender.endLater(record);
  }
}

function tooLate({ sessionId, init }: SessionRecord, startMs: number): BerthError {
  return new BerthError(
    "DEADLINE_EXCEEDED",
    `The session's ${init.type.name} did not begin anew within ${startMs / 1000} s: something in the sandbox may stop its processes, or use up all of its CPU time.`,
    { metadata: { session_id: sessionId } },
  );
}

/** Whether an error says that the sandbox will not come back. */
function isGone({ reason, metadata }: BerthError): boolean {
  if (reason === "SANDBOX_NOT_RUNNING") return metadata.state !== "PAUSED" && metadata.state !== "CREATING";
  return reason === "SANDBOX_NOT_FOUND" || reason === "SANDBOX_REPLACED";
}
