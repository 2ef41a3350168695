import { deserialize, serialize } from "node:v8";
import { untilAborted } from "../base/async.ts";
import { BerthError, throwIfAborted } from "../base/errors.ts";
import { failpoint } from "../base/failpoints.ts";
import type { AnswerBounds, RequestName, RequestStore, StoredRequest } from "./request-store.ts";
import type { ServiceTime } from "./service-time.ts";

/** A caller's request: its id, and a fingerprint of its parameters. */
export interface RequestKey extends RequestName {
  /** Equal if and only if the parameters of the requests are equal. */
  readonly fingerprint: string;
}

/** What the request has started to create, for work that would create it twice if it ran again. */
export interface RequestProgress {
  /** What the same request started to create before the service ended in the middle of it. */
  readonly subject: string | undefined;
  /**
   * Stores what the work is about to create. Call it in the transaction that stores the subject itself. @throws
   * `NO_SPACE`
   */
  begin(subject: string): void;
}

/** The progress of a request without an id. */
export const NO_PROGRESS: RequestProgress = { subject: undefined, begin() {} };

/** Options for running the work of a request. */
interface RequestOptions {
  /**
   * Whether to cancel the work when its last caller has left, because it needs what callers send or read. Default
   * false: the work continues, and a retry gets its answer.
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
  /** Size of an answer that could not be stored. */
  unstoredBytes: number;
  waiters: number;
}

const KEEP_MS = 24 * 3600 * 1000;
/** Expired and surplus requests are removed after this many answers, or bytes of answers. */
const ANSWERS_PER_TRIM = 16;
const BYTES_PER_TRIM = 1024 * 1024;
/** Limit for answers that could not be stored and are held in memory. */
const MAX_UNSTORED_BYTES = 32 * 1024 * 1024;
const NO_BOUNDS: AnswerBounds = { bytes: Number.POSITIVE_INFINITY, ownerBytes: Number.POSITIVE_INFINITY };

/**
 * Keeps the answers of requests for a day, also across restarts, so that a retry with the same request id gets the
 * first answer and nothing is done twice. Beyond the limits the oldest answers are dropped. A retry of such a request
 * is refused, because the request was already carried out.
 *
 * Concurrent requests with the same id share the work, which continues even when their callers have left (ADR 0032).
 * The work ends at its own timeout, with its sandbox, or by {@link stop}. A failed request is removed, so a retry runs
 * again. A retry of a request that the end of the service interrupted also runs again, with the subject that it had
 * started.
 */
export class RequestLog {
  readonly #time: ServiceTime;
  readonly #store: RequestStore;
  readonly #limit: number;
  readonly #bounds: AnswerBounds;
  /** Requests in progress, and answered ones that could not be stored. */
  readonly #entries = new Map<string, Entry>();
  #answers = 0;
  #answerBytes = 0;
  #unstoredBytes = 0;

  /**
   * @param limit how many requests to keep at most. The oldest are removed first.
   * @param bounds limits for the size of the answers. Default: none.
   */
  constructor(time: ServiceTime, store: RequestStore, limit = 100_000, bounds = NO_BOUNDS) {
    this.#time = time;
    this.#store = store;
    this.#limit = limit;
    this.#bounds = bounds;
  }

  /** Size of the stored answers in bytes. @param owner undefined: of all owners. */
  answerBytes(owner?: string): number {
    return this.#store.answerBytes(owner);
  }

  /** Limits for {@link answerBytes}. */
  get bounds(): AnswerBounds {
    return this.#bounds;
  }

  /**
   * Runs `work`, or returns the answer that the same request got before. A key without a request id always runs, and is
   * canceled when its caller leaves. Answers must be plain data.
   * @throws `REQUEST_ID_REUSED` if the id was used before with other parameters; `ANSWER_DROPPED` if the request was
   *   carried out and its answer has been dropped.
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

  /** Cancels requests in progress, for a service that stops. A retry runs again after the restart. */
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
    subject: string | undefined,
    work: (signal: AbortSignal, progress: RequestProgress) => Promise<T>,
    endsWithCallers: boolean,
  ): Entry {
    const abort = new AbortController();
    const expiresAt = this.#time.nowMs() + KEEP_MS;
    let stored: string | undefined = subject;
    const begin = (next: string): void => {
      this.#store.put({ ...key, subject: next, answer: undefined, expiresAt });
      stored = next;
    };
    const entry: Entry = {
      fingerprint: key.fingerprint,
      expiresAt,
      answer: work(abort.signal, { subject, begin }),
      abort,
      endsWithCallers,
      settled: false,
      unstoredBytes: 0,
      waiters: 0,
    };
    this.#entries.set(name, entry);
    // Store the answer before any caller gets it.
    entry.answer.then(
      (answer) => {
        entry.settled = true;
        failpoint("request.done");
        const isStored = this.#keep({ ...key, subject: stored, expiresAt }, answer, entry);
        failpoint("request.kept");
        if (isStored && this.#entries.get(name) === entry) this.#entries.delete(name);
      },
      () => {
        if (this.#entries.get(name) !== entry) return;
        this.#entries.delete(name);
        if (stored !== undefined) this.#forget(key);
      },
    );
    return entry;
  }

  async #wait<T>(entry: Entry, signal: AbortSignal): Promise<T> {
    entry.waiters++;
    try {
      return (await untilAborted(entry.answer, signal)) as T;
    } finally {
      if (--entry.waiters === 0 && entry.endsWithCallers && !entry.settled) entry.abort.abort(signal.reason);
    }
  }

  /** Stores an answer. If the disk is full, it stays in memory, within a limit. */
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
      // The request is still stored without an answer, so a retry runs again anyway.
    }
  }
}

function answerDropped({ requestId }: { readonly requestId: string }): BerthError {
  return new BerthError(
    "ANSWER_DROPPED",
    "request_id: the request was carried out, and its answer has been dropped to make room for newer ones. Check what it changed before you send it again under a new id.",
    { metadata: { request_id: requestId } },
  );
}
