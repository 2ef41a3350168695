import { abortError, BerthError, throwIfAborted } from "./errors.ts";
import type { Clock } from "./ports/clock.ts";

/** A caller's request: its id, and what it asked for in a form that can be compared. */
export interface RequestKey {
  readonly owner: string;
  readonly method: string;
  readonly requestId: string;
  /** Equal exactly for requests with the same parameters. */
  readonly fingerprint: string;
}

interface Entry {
  readonly fingerprint: string;
  readonly expiresMs: number;
  readonly answer: Promise<unknown>;
  readonly abort: AbortController;
  settled: boolean;
  waiters: number;
}

const KEEP_MS = 24 * 3600 * 1000;

/**
 * Remembers what requests were answered, so that a retry with the same request
 * id gets the first answer and nothing is done twice. Requests that run at the
 * same time share the work; it is canceled when the last of their callers has
 * gone. A request that failed is forgotten: its retry tries again.
 */
export class RequestLog {
  readonly #clock: Clock;
  readonly #limit: number;
  readonly #entries = new Map<string, Entry>();

  /** @param limit how many answers are kept at most; the oldest go first. */
  constructor(clock: Clock, limit = 100_000) {
    this.#clock = clock;
    this.#limit = limit;
  }

  /**
   * Runs `work`, or takes the answer of the same request before it. A key
   * without a request id always runs.
   * @throws `REQUEST_ID_REUSED` where the id came with other parameters before.
   */
  async run<T>(key: RequestKey, signal: AbortSignal, work: (signal: AbortSignal) => Promise<T>): Promise<T> {
    throwIfAborted(signal);
    if (key.requestId === "") return work(signal);
    const name = JSON.stringify([key.owner, key.method, key.requestId]);
    const known = this.#lookUp(name);
    if (known === undefined) return this.#wait<T>(this.#begin(name, key.fingerprint, work), signal);
    if (known.fingerprint !== key.fingerprint) {
      throw new BerthError(
        "REQUEST_ID_REUSED",
        "request_id: it was used before with other parameters. Use a new id for a new request.",
        { metadata: { request_id: key.requestId } },
      );
    }
    return this.#wait<T>(known, signal);
  }

  #lookUp(name: string): Entry | undefined {
    const entry = this.#entries.get(name);
    if (entry === undefined) return undefined;
    const canceled = !entry.settled && entry.abort.signal.aborted;
    if (!canceled && entry.expiresMs > this.#clock.monotonicMs()) return entry;
    this.#entries.delete(name);
    return undefined;
  }

  #begin<T>(name: string, fingerprint: string, work: (signal: AbortSignal) => Promise<T>): Entry {
    const abort = new AbortController();
    const expiresMs = this.#clock.monotonicMs() + KEEP_MS;
    const entry: Entry = {
      fingerprint,
      expiresMs,
      answer: work(abort.signal),
      abort,
      settled: false,
      waiters: 0,
    };
    this.#entries.set(name, entry);
    entry.answer.then(
      () => {
        entry.settled = true;
      },
      () => {
        if (this.#entries.get(name) === entry) this.#entries.delete(name);
      },
    );
    this.#trim();
    return entry;
  }

  async #wait<T>(entry: Entry, signal: AbortSignal): Promise<T> {
    entry.waiters++;
    const gone = Promise.withResolvers<never>();
    const onAbort = (): void => gone.reject(abortError(signal));
    signal.addEventListener("abort", onAbort, { once: true });
    try {
      return (await Promise.race([entry.answer, gone.promise])) as T;
    } finally {
      signal.removeEventListener("abort", onAbort);
      if (--entry.waiters === 0 && !entry.settled) entry.abort.abort(signal.reason);
    }
  }

  #trim(): void {
    const now = this.#clock.monotonicMs();
    for (const [name, entry] of this.#entries) {
      // What is under way stays, and keeps nothing behind it.
      if (!entry.settled) continue;
      if (entry.expiresMs > now && this.#entries.size <= this.#limit) break;
      this.#entries.delete(name);
    }
  }
}
