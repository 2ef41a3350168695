import type { Clock } from "../base/clock.ts";
import { BerthError } from "../base/errors.ts";
import { FairShare } from "../base/fair-share.ts";
import { compositeKey } from "../base/ids.ts";
import { OrderedIndex, type Position, type Slice, type Sliced } from "../base/ordered-index.ts";
import { TurnShare } from "../base/turn-share.ts";
import type { Reservation } from "../sandboxes/capacity.ts";
import type { TenantQuotas } from "../sandboxes/tenant-quotas.ts";
import { EndedProcess } from "./ended-process.ts";
import type { Process } from "./process.ts";
import { commandBytes } from "./record.ts";

const KEEP_ENDED_MS = 24 * 3600 * 1000;
const MAX_ENDED = 10_000;
/** How many of the processes that have expired a call removes: with much output, each takes a millisecond. */
const REMOVED_AT_ONCE = 32;
/** Limit for the commands of all ended processes, because all of them may be read into memory. */
const MAX_COMMAND_BYTES = 32 * 1024 * 1024;

type Entry = Process | EndedProcess;

/** The share of the event loop for lists: each ended process is read, which takes long if it has much output. */
const turns = new TurnShare();

/** The store of ended processes. */
interface EndedStore {
  /** Reads an ended process. @throws if that fails. */
  readonly read: (processId: string) => Process;
  /** Called with each process that is no longer readable. */
  forget(process: { readonly id: string }): void;
}

/**
 * All readable processes: running ones, and those that ended in the last 24 hours. If there are too many ended
 * processes, the oldest of the owner with the most are removed first.
 */
export class ProcessRegistry {
  readonly #clock: Clock;
  readonly #entries = new Map<string, Entry>();
  /** By sandbox, in the order of their starts. */
  readonly #readable = new OrderedIndex<Entry>(positionOf, bytesOf);
  readonly #running = new OrderedIndex<Process>(positionOf, bytesOf);
  readonly #allRunning = new Set<Process>();
  /** Number of processes of each sandbox that are running or being started. */
  readonly #taken = new Map<string, number>();
  /** In the order of their ends. */
  readonly #ended = new Set<EndedProcess>();
  /** No ended process expires before this. */
  #nextExpiry = Number.POSITIVE_INFINITY;
  readonly #endedShares = new FairShare<EndedProcess>();
  readonly #commandShares = new FairShare<EndedProcess>();
  readonly #store: EndedStore;
  readonly #quotas: TenantQuotas;

  constructor(clock: Clock, quotas: TenantQuotas, store: EndedStore) {
    this.#clock = clock;
    this.#quotas = quotas;
    this.#store = store;
  }

  /**
   * Reserves a place for a process that is about to start. Pass it to {@link add}, or release it.
   * @throws `TOO_MANY_OPERATIONS` if the sandbox has reached its limit of running processes; `TENANT_QUOTA`.
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

  /**
   * @param place from {@link reserve}. Default: an extra place, regardless of the limit, for a process that already
   * runs.
   */
  add(process: Process, place: Reservation = this.#recover(process)): void {
    const key = keyOf(process);
    this.#entries.set(process.id, process);
    this.#readable.add(key, process);
    this.#running.add(key, process);
    this.#allRunning.add(process);
    process.ended.then(() => {
      place.release();
      this.#retire(process, key);
    });
  }

  /** Adds a process that ended in an earlier run of the service. Call it in the order of the ends. */
  addEnded(process: EndedProcess): void {
    this.#entries.set(process.id, process);
    this.#readable.add(keyOf(process), process);
    this.#keepEnded(process);
  }

  /**
   * Drops, from memory, what the store has of an ended process, until somebody asks for it.
   * @returns what stands for its output from now on. Undefined: there is no output, or the process is not kept.
   */
  release({ id, transcript }: Process): EndedProcess["transcript"] {
    const entry = this.#entries.get(id);
    if (!(entry instanceof EndedProcess) || entry.transcript !== transcript) return undefined;
    entry.release();
    return entry.transcript;
  }

  get(owner: string, processId: string): Process | undefined {
    this.#forget();
    const entry = this.#find(processId);
    return entry?.sandbox.owner === owner ? wholeOf(entry) : undefined;
  }

  /** Whether it is readable, or has expired and was not removed yet. */
  has(processId: string): boolean {
    return this.#entries.has(processId);
  }

  allRunning(): Process[] {
    return [...this.#allRunning];
  }

  /** Processes of a sandbox, newest first. @param ended whether to include ended processes. */
  async list(owner: string, sandboxId: string, ended: boolean, slice: Slice): Promise<Sliced<Process>> {
    this.#forget();
    const key = compositeKey(owner, sandboxId);
    if (!ended) return this.#running.slice(key, slice, ({ status }) => status === undefined);
    const { items, next } = this.#readable.slice(key, slice);
    const whole: Process[] = [];
    for (const { id } of items) {
      await turns.enter();
      // It may have been removed, or may have ended, meanwhile.
      const entry = this.#find(id);
      if (entry !== undefined) whole.push(wholeOf(entry));
    }
    return { items: whole, next };
  }

  /** Those that have expired are not found, also before they are removed. */
  #find(processId: string): Entry | undefined {
    const entry = this.#entries.get(processId);
    const hasExpired = entry instanceof EndedProcess && expiryOf(entry) <= this.#clock.monotonicMs();
    return hasExpired ? undefined : entry;
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
    this.#running.delete(key, process);
    this.#allRunning.delete(process);
    const ended = endedProcess(process, this.#store.read);
    this.#entries.set(process.id, ended);
    this.#readable.replace(key, process, ended);
    this.#keepEnded(ended);
  }

  #keepEnded(process: EndedProcess): void {
    const { owner } = process.sandbox;
    this.#ended.add(process);
    this.#nextExpiry = Math.min(this.#nextExpiry, expiryOf(process));
    this.#endedShares.set(owner, process);
    this.#commandShares.set(owner, process, process.commandBytes);
    this.#forget();
  }

  #forget(): void {
    const now = this.#clock.monotonicMs();
    if (now >= this.#nextExpiry) this.#removeExpired(now);
    for (const { item } of this.#endedShares.beyond(MAX_ENDED)) this.#remove(item);
    for (const { item } of this.#commandShares.beyond(MAX_COMMAND_BYTES)) this.#remove(item);
  }

  #removeExpired(now: number): void {
    this.#nextExpiry = Number.POSITIVE_INFINITY;
    let left = REMOVED_AT_ONCE;
    for (const entry of this.#ended) {
      if (expiryOf(entry) > now || left-- === 0) {
        this.#nextExpiry = expiryOf(entry);
        break;
      }
      this.#remove(entry);
    }
  }

  #remove(process: EndedProcess): void {
    const { owner } = process.sandbox;
    this.#ended.delete(process);
    this.#endedShares.delete(owner, process);
    this.#commandShares.delete(owner, process);
    process.transcript?.clear();
    this.#entries.delete(process.id);
    this.#readable.delete(keyOf(process), process);
    this.#store.forget(process);
  }
}

function wholeOf(entry: Entry): Process {
  return entry instanceof EndedProcess ? entry.whole : entry;
}

/** A process that ended in this run of the service. */
function endedProcess(process: Process, read: (id: string) => Process): EndedProcess {
  const { id, startTimeMs, startedAt, status, options, transcript } = process;
  const { owner, sandboxId, generation } = process.sandbox;
  const summary = {
    processId: id,
    // Keep nothing else of the sandbox.
    sandbox: { owner, sandboxId, generation },
    startTimeMs,
    commandBytes: commandBytes(options.command),
    heldBytes: transcript.heldBytes,
  };
  return new EndedProcess(summary, startedAt + (status?.durationMs ?? 0), read, process);
}

/** When an ended process is no longer readable, on the monotonic clock. */
function expiryOf({ endedAt }: EndedProcess): number {
  return endedAt + KEEP_ENDED_MS;
}

function bytesOf(entry: Entry): number {
  return entry instanceof EndedProcess ? entry.commandBytes : commandBytes(entry.options.command);
}

function positionOf({ startTimeMs, id }: Entry): Position {
  return { at: startTimeMs, id };
}

function keyOf({ sandbox: { owner, sandboxId } }: Entry): string {
  return compositeKey(owner, sandboxId);
}
