import { deserialize, serialize } from "node:v8";
import { untilAborted } from "../base/async.ts";
import { BerthError, throwIfAborted } from "../base/errors.ts";
import { failpoint } from "../base/failpoints.ts";
import { FairShare } from "../base/fair-share.ts";
import type {
  AnswerBounds,
  RequestBounds,
  RequestName,
  RequestStore,
  StoredRequest,
} from "./request-store.ts";
import type { ServiceTime } from "./service-time.ts";

/** A caller's request: its id, and a fingerprint of its parameters. */
export interface RequestKey extends RequestName {
  /** Equal if and only if the parameters of the requests are equal. */
  readonly fingerprint: string;
  /** Runs its work, which has its message and may outlive its call. Default: only runs it. */
  readonly hold?: Hold | undefined;
}

/** Runs work while the memory that it has counts. */
export type Hold = <T>(work: () => Promise<T>) => Promise<T>;

export const UNCOUNTED: Hold = (work) => work();

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
   * What the work needs of its callers, so that it is canceled when the last one has left: one who reads its output, or
   * the input of the one who started it. Default: nothing. It continues, and a retry gets its answer.
   */
  readonly needs?: "reader" | "input";
}

interface Entry {
  readonly fingerprint: string;
  readonly expiresAt: number;
  answer: Promise<unknown>;
  readonly abort: AbortController;
  readonly endsWithCallers: boolean;
  state: "running" | "answered" | "failed";
  waiters: number;
}

const KEEP_MS = 24 * 3600 * 1000;
/** Expired and surplus requests are removed after this many answers, or bytes of answers. */
const ANSWERS_PER_TRIM = 16;
const BYTES_PER_TRIM = 1024 * 1024;
/** Limit for answers that could not be stored and are held in memory. */
const MAX_UNSTORED_BYTES = 32 * 1024 * 1024;
/** The owners share what all of them may keep, so that none makes those of others run twice. */
const BOUNDS: RequestBounds = { requests: 500_000, ownerRequests: 100_000 };
const NO_BOUNDS: AnswerBounds = { bytes: Number.POSITIVE_INFINITY, ownerBytes: Number.POSITIVE_INFINITY };

/**
 * Keeps the answers of requests for a day, also across restarts, so that a retry with the same request id gets the
 * first answer and nothing is done twice. Beyond the limits for their size the oldest answers are dropped. A retry of
 * such a request is refused, because the request was already carried out. Beyond the limits for their number, the oldest
 * requests of the owner with the most are forgotten, and a retry of one runs again.
 *
 * Concurrent requests with the same id share the work, which continues even when their callers have left (ADR 0032).
 * The work ends at its own timeout, with its sandbox, or by {@link stop}. A failed request is removed, so a retry runs
 * again, also one that waited while another caller's input was read. A retry of a request that the end of the service
 * interrupted also runs again, with the subject that it had started.
 */
export class RequestLog {
  readonly #time: ServiceTime;
  readonly #store: RequestStore;
  readonly #limits: RequestBounds;
  readonly #bounds: AnswerBounds;
  /** Requests in progress, and answered ones that could not be stored. */
  readonly #entries = new Map<string, Entry>();
  /** Names of the latter: all, and the sizes of those whose answers are still held. */
  readonly #unstored = new FairShare<string>();
  readonly #unstoredBytes = new FairShare<string>();
  #answers = 0;
  #answerBytes = 0;
  #nextDrop: NodeJS.Immediate | undefined;

  /**
   * @param limits how many answered requests to keep.
   * @param bounds limits for the size of the answers. Default: none.
   */
  constructor(time: ServiceTime, store: RequestStore, limits = BOUNDS, bounds = NO_BOUNDS) {
    this.#time = time;
    this.#store = store;
    this.#limits = limits;
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
    { needs }: RequestOptions = {},
  ): Promise<T> {
    throwIfAborted(signal);
    if (key.requestId === "") return work(signal, NO_PROGRESS);
    const name = JSON.stringify([key.owner, key.method, key.requestId]);
    const entry = this.#lookUp(key.owner, name);
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
    if (entry === undefined) {
      return this.#wait<T>(this.#begin(name, key, stored?.subject, work, needs !== undefined), signal);
    }
    try {
      return await this.#wait<T>(entry, signal);
    } catch (error) {
      const wasStopped = entry.abort.signal.aborted;
      if (needs !== "input" || entry.state !== "failed" || wasStopped) throw error;
      // The input of another caller, who may have left, has failed. This caller sends its own.
      return this.run(key, signal, work, { needs });
    }
  }

  /** Cancels requests in progress, for a service that stops. A retry runs again after the restart. */
  stop(reason: BerthError): void {
    for (const { state, abort } of this.#entries.values()) if (state === "running") abort.abort(reason);
  }

  #lookUp(owner: string, name: string): Entry | undefined {
    const entry = this.#entries.get(name);
    if (entry === undefined) return undefined;
    const canceled = entry.state === "running" && entry.abort.signal.aborted;
    if (!canceled && entry.expiresAt > this.#time.nowMs()) return entry;
    this.#forgetUnstored(owner, name);
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
    const { hold = UNCOUNTED } = key;
    let stored: string | undefined = subject;
    const begin = (next: string): void => {
      this.#store.put({ ...key, subject: next, answer: undefined, expiresAt });
      stored = next;
    };
    const entry: Entry = {
      fingerprint: key.fingerprint,
      expiresAt,
      answer: hold(() => work(abort.signal, { subject, begin })),
      abort,
      endsWithCallers,
      state: "running",
      waiters: 0,
    };
    this.#entries.set(name, entry);
    // Store the answer before any caller gets it.
    entry.answer.then(
      (answer) => {
        entry.state = "answered";
        failpoint("request.done");
        // Otherwise it was canceled, and what a retry of it did counts.
        if (this.#entries.get(name) !== entry) return;
        const unstoredBytes = this.#keep({ ...key, subject: stored, expiresAt }, answer);
        failpoint("request.kept");
        if (unstoredBytes === 0) this.#entries.delete(name);
        else this.#holdUnstored(key.owner, name, unstoredBytes);
      },
      () => {
        entry.state = "failed";
        if (this.#entries.get(name) !== entry) return;
        this.#entries.delete(name);
        // What an earlier run of the service started is still there: the work may not have looked at it.
        if (stored !== subject) this.#forget(key);
      },
    );
    return entry;
  }

  async #wait<T>(entry: Entry, signal: AbortSignal): Promise<T> {
    entry.waiters++;
    try {
      return (await untilAborted(entry.answer, signal)) as T;
    } finally {
      const isNeeded = --entry.waiters > 0 || !entry.endsWithCallers;
      if (!isNeeded && entry.state === "running") entry.abort.abort(signal.reason);
    }
  }

  /** Stores an answer. Returns its size if the disk is full, otherwise 0. */
  #keep(request: Omit<StoredRequest, "answer">, answer: unknown): number {
    const bytes = serialize(answer);
    try {
      this.#store.put({ ...request, answer: bytes });
      this.#trim(bytes.length);
      return 0;
    } catch {
      return bytes.length;
    }
  }

  #trim(grown: number): void {
    this.#answerBytes += grown;
    if (++this.#answers < ANSWERS_PER_TRIM && this.#answerBytes < BYTES_PER_TRIM) return;
    this.#answers = 0;
    this.#answerBytes = 0;
    this.#store.trim(this.#time.nowMs(), this.#limits);
    this.#dropAnswers();
  }

  /** Drops answers beyond the limits, in parts between which others use the event loop. */
  #dropAnswers(): void {
    if (!this.#store.dropAnswers(this.#bounds)) return;
    this.#nextDrop ??= setImmediate(() => {
      this.#nextDrop = undefined;
      try {
        this.#dropAnswers();
      } catch {
        // The disk is full, or the service has ended. The next answers drop them.
      }
    });
  }

  /** Holds an answer in memory, within limits. */
  #holdUnstored(owner: string, name: string, bytes: number): void {
    this.#unstored.set(owner, name);
    this.#unstoredBytes.set(owner, name, bytes);
    for (const surplus of this.#unstored.beyond(this.#limits.ownerRequests)) {
      this.#forgetUnstored(surplus.owner, surplus.item);
    }
    for (const { item } of this.#unstoredBytes.beyond(MAX_UNSTORED_BYTES)) {
      const entry = this.#entries.get(item);
      if (entry === undefined) continue;
      const [, , requestId = ""] = JSON.parse(item) as string[];
      entry.answer = Promise.reject(answerDropped({ requestId }));
      entry.answer.catch(() => {});
    }
  }

  #forgetUnstored(owner: string, name: string): void {
    this.#entries.delete(name);
    this.#unstored.delete(owner, name);
    this.#unstoredBytes.delete(owner, name);
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
