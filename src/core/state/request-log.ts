import { deserialize, serialize } from "node:v8";
import { abortError, BerthError, throwIfAborted } from "../errors.ts";
import { failpoint } from "../failpoints.ts";
import type { RequestName, RequestStore, StoredRequest } from "../ports/request-store.ts";
import type { ServiceTime } from "./service-time.ts";

/** A caller's request: its id, and what it asked for in a form that can be compared. */
export interface RequestKey extends RequestName {
  /** Equal exactly for requests with the same parameters. */
  readonly fingerprint: string;
}

/** How far a request has come, for work that would make something twice if it ran again. */
export interface RequestProgress {
  /** What the same request began to make before the service was ended in the middle of it. */
  readonly begun: string | undefined;
  /** Keeps what the work is about to make, before it makes it. To be called in the transaction that keeps that itself. @throws `NO_SPACE` */
  begin(subject: string): void;
}

/** Of a request that has no id to be known by. */
export const NO_PROGRESS: RequestProgress = { begun: undefined, begin() {} };

interface Entry {
  readonly fingerprint: string;
  readonly expiresAt: number;
  readonly answer: Promise<unknown>;
  readonly abort: AbortController;
  settled: boolean;
  waiters: number;
}

const KEEP_MS = 24 * 3600 * 1000;
/** Answers between two looks for what can be forgotten. */
const ANSWERS_PER_TRIM = 16;

/**
 * Remembers for a day what requests were answered, also past a restart, so that
 * a retry with the same request id gets the first answer and nothing is done
 * twice. Requests that run at the same time share the work; it is canceled when
 * the last of their callers has gone. A request that failed is forgotten: its
 * retry tries again. One that the service's end interrupted runs again, and is
 * told what it had begun.
 */
export class RequestLog {
  readonly #time: ServiceTime;
  readonly #store: RequestStore;
  readonly #limit: number;
  /** Those under way, and those answered that the store did not take. */
  readonly #entries = new Map<string, Entry>();
  #answers = 0;

  /** @param limit how many answers are kept at most; the oldest go first. */
  constructor(time: ServiceTime, store: RequestStore, limit = 100_000) {
    this.#time = time;
    this.#store = store;
    this.#limit = limit;
  }

  /**
   * Runs `work`, or takes the answer of the same request before it. A key
   * without a request id always runs. Answers are plain data.
   * @throws `REQUEST_ID_REUSED` where the id came with other parameters before.
   */
  async run<T>(
    key: RequestKey,
    signal: AbortSignal,
    work: (signal: AbortSignal, progress: RequestProgress) => Promise<T>,
  ): Promise<T> {
    throwIfAborted(signal);
    if (key.requestId === "") return work(signal, NO_PROGRESS);
    const name = JSON.stringify([key.owner, key.method, key.requestId]);
    const entry = this.#lookUp(name);
    const stored = entry === undefined ? this.#lookUpStored(key) : undefined;
    const known = entry ?? stored;
    if (known !== undefined && known.fingerprint !== key.fingerprint) {
      throw new BerthError(
        "REQUEST_ID_REUSED",
        "request_id: it was used before with other parameters. Use a new id for a new request.",
        { metadata: { request_id: key.requestId } },
      );
    }
    if (stored?.answer !== undefined) return deserialize(stored.answer) as T;
    return this.#wait<T>(entry ?? this.#begin(name, key, stored?.subject, work), signal);
  }

  #lookUp(name: string): Entry | undefined {
    const entry = this.#entries.get(name);
    if (entry === undefined) return undefined;
    const canceled = !entry.settled && entry.abort.signal.aborted;
    if (!canceled && entry.expiresAt > this.#time.nowMs()) return entry;
    this.#entries.delete(name);
    return undefined;
  }

  #lookUpStored(key: RequestKey): StoredRequest | undefined {
    const stored = this.#store.get(key);
    return stored !== undefined && stored.expiresAt > this.#time.nowMs() ? stored : undefined;
  }

  #begin<T>(
    name: string,
    key: RequestKey,
    begun: string | undefined,
    work: (signal: AbortSignal, progress: RequestProgress) => Promise<T>,
  ): Entry {
    const abort = new AbortController();
    const expiresAt = this.#time.nowMs() + KEEP_MS;
    let kept: StoredRequest | undefined =
      begun === undefined ? undefined : { ...key, subject: begun, answer: undefined, expiresAt };
    const begin = (subject: string): void => {
      const next = { ...key, subject, answer: undefined, expiresAt };
      this.#store.put(next);
      kept = next;
    };
    const entry: Entry = {
      fingerprint: key.fingerprint,
      expiresAt,
      answer: work(abort.signal, { begun, begin }),
      abort,
      settled: false,
      waiters: 0,
    };
    this.#entries.set(name, entry);
    // Before whoever waits hears of it: an answer that was given is kept.
    entry.answer.then(
      (answer) => {
        entry.settled = true;
        failpoint("request.done");
        const subject = kept?.subject;
        const stored = this.#keep({ ...key, subject, expiresAt }, answer);
        failpoint("request.kept");
        if (stored && this.#entries.get(name) === entry) this.#entries.delete(name);
      },
      () => {
        if (this.#entries.get(name) !== entry) return;
        this.#entries.delete(name);
        if (kept !== undefined) this.#forget(key);
      },
    );
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

  /** Puts an answer into the store; where that takes nothing it stays in memory, within the same bound. */
  #keep(request: Omit<StoredRequest, "answer">, answer: unknown): boolean {
    try {
      this.#store.put({ ...request, answer: serialize(answer) });
      if (++this.#answers % ANSWERS_PER_TRIM === 0) this.#store.trim(this.#time.nowMs(), this.#limit);
      return true;
    } catch {
      for (const [name, { settled }] of this.#entries) {
        if (this.#entries.size <= this.#limit) break;
        if (settled) this.#entries.delete(name);
      }
      return false;
    }
  }

  #forget(key: RequestKey): void {
    try {
      this.#store.remove(key);
    } catch {
      // It stays without an answer, and so its retry runs again all the same.
    }
  }
}
