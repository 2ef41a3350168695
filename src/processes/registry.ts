import type { Clock } from "../base/clock.ts";
import { BerthError } from "../base/errors.ts";
import { FairShare } from "../base/fair-share.ts";
import { compositeKey } from "../base/ids.ts";
import { OrderedIndex, type Position, type Slice, type Sliced } from "../base/ordered-index.ts";
import type { Reservation } from "../sandboxes/capacity.ts";
import type { TenantQuotas } from "../sandboxes/tenant-quotas.ts";
import type { Process } from "./process.ts";

const KEEP_ENDED_MS = 24 * 3600 * 1000;
const MAX_ENDED = 10_000;
/** Bound on the commands of ended processes, which stay in memory. */
const MAX_COMMAND_BYTES = 32 * 1024 * 1024;
/** What an argument costs beside its characters. */
const ARGUMENT_COST_BYTES = 32;

/**
 * Every readable process: those that run, and those that ended in the last 24
 * hours. Beyond the bound on ended ones, the oldest of the owner with the most
 * go first.
 */
export class ProcessRegistry {
  readonly #clock: Clock;
  readonly #processes = new Map<string, Process>();
  /** By sandbox, in the order in which they were started. */
  readonly #readable = new OrderedIndex<Process>(positionOf);
  readonly #running = new OrderedIndex<Process>(positionOf);
  readonly #allRunning = new Set<Process>();
  /** Running processes of each sandbox, and those being started. */
  readonly #taken = new Map<string, number>();
  /** When each ended process may be forgotten, oldest first. */
  readonly #ended = new Map<Process, number>();
  readonly #endedShares = new FairShare<Process>();
  readonly #commandShares = new FairShare<Process>();
  readonly #onForget: (process: Process) => void;
  readonly #quotas: TenantQuotas;

  /** @param onForget called with each ended process that is no longer readable. */
  constructor(clock: Clock, quotas: TenantQuotas, onForget: (process: Process) => void) {
    this.#clock = clock;
    this.#quotas = quotas;
    this.#onForget = onForget;
  }

  /**
   * Reserves a place for a process that is about to start: {@link add} takes it over, or the caller releases it.
   * @throws `TOO_MANY_OPERATIONS` where the sandbox has reached its limit of running processes; `TENANT_QUOTA`.
   */
  reserve(owner: string, sandboxId: string, limit: number): Reservation {
    const key = compositeKey(owner, sandboxId);
    if ((this.#taken.get(key) ?? 0) < limit) {
      return this.#take(key, this.#quotas.reserveExec(owner));
    }
    throw new BerthError(
      "TOO_MANY_OPERATIONS",
      `The sandbox has reached its limit of ${limit} running processes. Wait for one to end.`,
      { metadata: { limit: String(limit) } },
    );
  }

  /** @param place from {@link reserve}; by default one beyond the limit, for what runs already. */
  add(process: Process, place: Reservation = this.#recover(process)): void {
    const key = keyOf(process);
    this.#processes.set(process.id, process);
    this.#readable.add(key, process);
    this.#running.add(key, process);
    this.#allRunning.add(process);
    process.ended.then(() => {
      place.release();
      this.#retire(process, key);
    });
  }

  get(owner: string, processId: string): Process | undefined {
    this.#forget();
    const process = this.#processes.get(processId);
    return process?.sandbox.owner === owner ? process : undefined;
  }

  /** Every process that runs. */
  allRunning(): Process[] {
    return [...this.#allRunning];
  }

  /** Processes of a sandbox, newest first. @param ended whether those that have ended are among them. */
  list(owner: string, sandboxId: string, ended: boolean, slice: Slice): Sliced<Process> {
    this.#forget();
    const key = compositeKey(owner, sandboxId);
    return ended
      ? this.#readable.slice(key, slice)
      : this.#running.slice(key, slice, ({ status }) => status === undefined);
  }

  #recover(process: Process): Reservation {
    return this.#take(keyOf(process), this.#quotas.recoverExec(process.sandbox.owner));
  }

  #take(key: string, share: Reservation): Reservation {
    this.#taken.set(key, (this.#taken.get(key) ?? 0) + 1);
    let held = true;
    return {
      release: () => {
        if (!held) return;
        held = false;
        share.release();
        const left = (this.#taken.get(key) ?? 1) - 1;
        if (left === 0) this.#taken.delete(key);
        else this.#taken.set(key, left);
      },
    };
  }

  #retire(process: Process, key: string): void {
    const { owner } = process.sandbox;
    this.#running.delete(key, process);
    this.#allRunning.delete(process);
    this.#ended.set(process, endOf(process) + KEEP_ENDED_MS);
    this.#endedShares.set(owner, process);
    this.#commandShares.set(owner, process, commandBytes(process));
    this.#forget();
  }

  #forget(): void {
    const now = this.#clock.monotonicMs();
    for (const [process, forgetAt] of this.#ended) {
      if (forgetAt > now) break;
      this.#remove(process);
    }
    for (const { item } of this.#endedShares.beyond(MAX_ENDED)) this.#remove(item);
    for (const { item } of this.#commandShares.beyond(MAX_COMMAND_BYTES)) this.#remove(item);
  }

  #remove(process: Process): void {
    const { owner } = process.sandbox;
    this.#ended.delete(process);
    this.#endedShares.delete(owner, process);
    this.#commandShares.delete(owner, process);
    process.transcript.clear();
    this.#processes.delete(process.id);
    this.#readable.delete(keyOf(process), process);
    this.#onForget(process);
  }
}

/** About what a process's command takes in memory. */
function commandBytes({ options: { command } }: Process): number {
  if (command.kind === "shell") return command.line.length;
  return command.args.reduce((sum, arg) => sum + ARGUMENT_COST_BYTES + arg.length, 0);
}

/** When an ended process did so, on the monotonic clock. */
function endOf(process: Process): number {
  return process.startedAt + (process.status?.durationMs ?? 0);
}

function positionOf({ startTimeMs, id }: Process): Position {
  return { at: startTimeMs, id };
}

function keyOf(process: Process): string {
  const { owner, sandboxId } = process.sandbox;
  return compositeKey(owner, sandboxId);
}
