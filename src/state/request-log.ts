import { deserialize, serialize } from "node:v8";
import { abortError, BerthError, throwIfAborted } from "../base/errors.ts";
import { failpoint } from "../base/failpoints.ts";
import type { AnswerBounds, RequestName, RequestStore, StoredRequest } from "./request-store.ts";
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

/** What becomes of work under way. */
export interface RequestOptions {
  /**
   * Whether it is canceled when the last of its callers has gone, as work is that needs what they send or read.
   * Default false: it goes on to its answer, which a retry gets.
   */
  readonly endsWithCallers?: boolean;
}

interface Entry {
  readonly fingerprint: string;
  readonly expiresAt: number;
  answer: Promise<unknown>;
  readonly abort: AbortController;
  readonly endsWithCallers: boolean;
  settled: boolean;
  /** What an answer takes that the store did not take. */
  unstoredBytes: number;
  waiters: number;
}

const KEEP_MS = 24 * 3600 * 1000;
/** Answers between two looks for what can be forgotten. */
const ANSWERS_PER_TRIM = 16;
const BYTES_PER_TRIM = 1024 * 1024;
/** Answers that the store did not take, in memory. */
const MAX_UNSTORED_BYTES = 32 * 1024 * 1024;
const NO_BOUNDS: AnswerBounds = { bytes: Number.POSITIVE_INFINITY, ownerBytes: Number.POSITIVE_INFINITY };

/**
 * Remembers for a day what requests were answered, also past a restart, so that
 * a retry with the same request id gets the first answer and nothing is done
 * twice. The oldest answers are dropped where all or an owner's take more than they may; the retry of such a request
 * is refused, since it was carried out. Requests that run at the same time share the work, which goes on to its
 * answer when their callers have gone (ADR 0032): whoever lost its connection gets
 * that answer by a retry. What bounds the work is its own timeout, the end of its
 * sandbox and {@link stop}. A request that failed is forgotten: its retry tries again. One that the service's end interrupted runs again, and is
 * told what it had begun.
 */
export class RequestLog {
  readonly #time: ServiceTime;
  readonly #store: RequestStore;
  readonly #limit: number;
  readonly #bounds: AnswerBounds;
  /** Those under way, and those answered that the store did not take. */
  readonly #entries = new Map<string, Entry>();
  #answers = 0;
  #answerBytes = 0;
  #unstoredBytes = 0;

  /**
   * @param limit how many answers are kept at most; the oldest go first.
   * @param bounds what they may take; by default whatever they do.
   */
  constructor(time: ServiceTime, store: RequestStore, limit = 100_000, bounds = NO_BOUNDS) {
    this.#time = time;
    this.#store = store;
    this.#limit = limit;
    this.#bounds = bounds;
  }

  /** What the answers kept take, in bytes. @param owner undefined: all. */
  answerBytes(owner?: string): number {
    return this.#store.answerBytes(owner);
  }

  /** What they may take. */
  get bounds(): AnswerBounds {
    return this.#bounds;
  }

  /**
   * Runs `work`, or takes the answer of the same request before it. A key
   * without a request id always runs, and ends with its caller. Answers are plain data.
   * @throws `REQUEST_ID_REUSED` where the id came with other parameters before; `ANSWER_DROPPED` where the request was
   *   carried out and its answer is not kept any more.
   */
  async run<T>(
    key: RequestKey,
    signal: AbortSignal,
    work: (signal: AbortSignal, progress: RequestProgress) => Promise<T>,
    { endsWithCallers = false }: RequestOptions = {},
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
    if (stored?.dropped) throw answerDropped(key);
    if (stored?.answer !== undefined) return deserialize(stored.answer) as T;
    return this.#wait<T>(entry ?? this.#begin(name, key, stored?.subject, work, endsWithCallers), signal);
  }

  /** Cancels what is under way, for a service that stops: a retry runs again after the restart. */
  stop(reason: BerthError): void {
    for (const { settled, abort } of this.#entries.values()) if (!settled) abort.abort(reason);
  }

  #lookUp(name: string): Entry | undefined {
    const entry = this.#entries.get(name);
    if (entry === undefined) return undefined;
    const canceled = !entry.settled && entry.abort.signal.aborted;
    if (!canceled && entry.expiresAt > this.#time.nowMs()) return entry;
    this.#entries.delete(name);
    this.#unstoredBytes -= entry.unstoredBytes;
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
    endsWithCallers: boolean,
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
      endsWithCallers,
      settled: false,
      unstoredBytes: 0,
      waiters: 0,
    };
    this.#entries.set(name, entry);
    // Before whoever waits hears of it: an answer that was given is kept.
    entry.answer.then(
      (answer) => {
        entry.settled = true;
        failpoint("request.done");
        const subject = kept?.subject;
        const stored = this.#keep({ ...key, subject, expiresAt }, answer, entry);
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
      if (--entry.waiters === 0 && entry.endsWithCallers && !entry.settled) entry.abort.abort(signal.reason);
    }
  }

  /** Puts an answer into the store; where that takes nothing it stays in memory, within bounds too. */
  #keep(request: Omit<StoredRequest, "answer">, answer: unknown, entry: Entry): boolean {
    const bytes = serialize(answer);
    try {
      this.#store.put({ ...request, answer: bytes });
      this.#trim(bytes.length);
      return true;
    } catch {
      entry.unstoredBytes = bytes.length;
      this.#unstoredBytes += bytes.length;
      this.#trimUnstored();
      return false;
    }
  }

  #trim(grown: number): void {
    this.#answerBytes += grown;
    if (++this.#answers < ANSWERS_PER_TRIM && this.#answerBytes < BYTES_PER_TRIM) return;
    this.#answers = 0;
    this.#answerBytes = 0;
    this.#store.trim(this.#time.nowMs(), this.#limit);
    this.#store.dropAnswers(this.#bounds);
  }

  #trimUnstored(): void {
    for (const [name, entry] of this.#entries) {
      if (this.#entries.size <= this.#limit) break;
      if (!entry.settled) continue;
      this.#entries.delete(name);
      this.#unstoredBytes -= entry.unstoredBytes;
    }
    for (const [name, entry] of this.#entries) {
      if (this.#unstoredBytes <= MAX_UNSTORED_BYTES) return;
      if (entry.unstoredBytes === 0) continue;
      this.#unstoredBytes -= entry.unstoredBytes;
      entry.unstoredBytes = 0;
      const [, , requestId = ""] = JSON.parse(name) as string[];
      entry.answer = Promise.reject(answerDropped({ requestId }));
      entry.answer.catch(() => {});
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

function answerDropped({ requestId }: { readonly requestId: string }): BerthError {
  return new BerthError(
    "ANSWER_DROPPED",
    "request_id: the request was carried out, and its answer has been dropped to make room for newer ones. Look at what it changed before you send it again under a new id.",
    { metadata: { request_id: requestId } },
  );
}
