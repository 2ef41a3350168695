import type http2 from "node:http2";
import { setImmediate, setTimeout as sleep } from "node:timers/promises";
import { untilAborted } from "../base/async.ts";
import { abortError, BerthError } from "../base/errors.ts";
import { noteStreamed } from "../base/memory.ts";
import type { Call } from "./call.ts";
import type { FairQueue, QueuedCall } from "./fair-queue.ts";
import type { HttpRequest } from "./http-message.ts";
import type { ReceiveAccount, ReceiveBudget } from "./limits.ts";

/**
 * How long to wait for a reset once the client has answered. It waits again if a wait took twice as long, because then
 * the machine may be just as slow for the client.
 */
const RESET_GRACE_MS = 10;
const MAX_GRACES = 5;

/**
 * A Node client that cancels an HTTP/2 stream first ends it as if it were complete, and resets it a moment later. This
 * waits for the reset, so that half an upload does not pass for a complete one: until the client has answered a ping,
 * since it may be halted between the two, and then a little, since the answer may overtake the reset.
 */
async function graceForReset(session: http2.Http2Session | undefined): Promise<void> {
  await answerOf(session);
  for (let waits = 0; waits < MAX_GRACES; waits++) {
    const sinceMs = performance.now();
    await sleep(RESET_GRACE_MS);
    // Runs after the timers and after the poll for I/O, which reads a reset that arrived meanwhile.
    await setImmediate();
    if (performance.now() - sinceMs < 2 * RESET_GRACE_MS) return;
  }
}

/** Resolves when the client has answered a ping, or cannot be asked. A client that never does is disconnected. */
function answerOf(session: http2.Http2Session | undefined): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  if (session === undefined || session.closed || session.destroyed) resolve();
  else session.ping(() => resolve());
  return promise;
}

export interface RequestBytesOptions {
  /** The largest message, in bytes: a stream never holds more than the message being received. */
  readonly maxBytes: number;
  readonly receiving: ReceiveBudget;
  /** Undefined: there is only one tenant. */
  readonly queue: FairQueue | undefined;
}

/** An iterator of the messages of a request, whose end may be believed: see {@link RequestBytes.trustEnd}. */
export interface RequestIterator<T> extends AsyncIterator<T> {
  trustEnd?(): void;
}

type ReadCall = QueuedCall & Pick<Call, "streamsRequests" | "account">;

const DONE = { done: true, value: undefined } as const;

/**
 * The body of a request, as it arrives, until its call is over. Not an async generator, because each item of one takes
 * several turns of the microtask queue, and uploads spend most of their time here.
 */
export class RequestBytes implements AsyncIterable<Uint8Array>, AsyncIterator<Uint8Array, undefined> {
  readonly #call: ReadCall;
  readonly #request: HttpRequest;
  readonly #maxBytes: number;
  readonly #queue: FairQueue | undefined;
  readonly #receiving: ReceiveBudget;
  /** Undefined until the first bytes: the owner is not known before. */
  #account: ReceiveAccount | undefined;
  #size = 0;
  #hasEnded = false;
  #trustsEnd = false;
  #isClosed = false;
  #failure: { readonly error: unknown } | undefined;
  /** Makes the reader check its condition again. */
  #wake = (): void => {};

  constructor(call: ReadCall, request: HttpRequest, { maxBytes, receiving, queue }: RequestBytesOptions) {
    this.#call = call;
    this.#request = request;
    this.#maxBytes = maxBytes;
    this.#queue = queue;
    this.#receiving = receiving;
    // A handler that refuses its call may leave the rest unread.
    call.signal.addEventListener("abort", this.#onAbort, { once: true });
    request
      .on("readable", this.#onReadable)
      .on("end", this.#onEnd)
      .on("error", this.#onError)
      .on("close", this.#onClose);
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  /** @throws what ended the call, and what the budget throws. Then nothing of the body is held. */
  async next(): Promise<IteratorResult<Uint8Array, undefined>> {
    try {
      for (;;) {
        if (this.#call.signal.aborted) throw abortError(this.#call.signal);
        const value: Buffer | null = this.#hasEnded || this.#isClosed ? null : this.#request.read();
        if (value !== null) {
          this.#take(value.length);
          const turn = this.#queue?.again(this.#call);
          if (turn) await turn;
          this.#queue?.rest(this.#call);
          return { done: false, value };
        }
        if (this.#failure !== undefined) throw this.#failure.error;
        if (this.#isClosed) return DONE;
        if (this.#hasEnded) return await this.#finish();
        await new Promise<void>((resolve) => {
          this.#wake = resolve;
        });
      }
    } catch (error) {
      this.#failure ??= { error };
      this.#close();
      throw error;
    }
  }

  async return(): Promise<IteratorReturnResult<undefined>> {
    this.#close();
    return DONE;
  }

  /**
   * Call this when everything that the request announced has arrived: half of it can then not pass for all of it, and an
   * end is believed at once.
   */
  trustEnd(): void {
    this.#trustsEnd = true;
  }

  /** Call this with the size of a message that was compressed: a call with one message holds it until its end. */
  decompressed(bytes: number): void {
    const { streamsRequests, signal } = this.#call;
    if (!streamsRequests && !signal.aborted) this.#charge(bytes);
  }

  #charge(bytes: number): void {
    if (this.#account === undefined) {
      this.#account = this.#receiving.open(this.#call.principal?.owner ?? "");
      if (!this.#call.streamsRequests) this.#call.account = this.#account;
    }
    this.#account.charge(bytes);
  }

  #take(bytes: number): void {
    this.#charge(Math.min(this.#size + bytes, this.#maxBytes) - Math.min(this.#size, this.#maxBytes));
    this.#size += bytes;
    noteStreamed(bytes);
  }

  async #finish(): Promise<IteratorResult<Uint8Array, undefined>> {
    if (this.#call.streamsRequests && !this.#trustsEnd && "stream" in this.#request) {
      await untilAborted(graceForReset(this.#request.stream.session), this.#call.signal);
    }
    return this.return();
  }

  #close(): void {
    this.#isClosed = true;
    // Keep the error listener: an unhandled error would end the process.
    this.#request.off("readable", this.#onReadable).off("end", this.#onEnd).off("close", this.#onClose);
    const { signal, streamsRequests } = this.#call;
    // The handler of a call with one message has that until the call is over, which closes this again.
    if (streamsRequests || signal.aborted || this.#failure !== undefined) {
      signal.removeEventListener("abort", this.#onAbort);
      this.#account?.close();
    }
    this.#wake();
  }

  readonly #onAbort = (): void => this.#close();

  readonly #onReadable = (): void => this.#wake();

  readonly #onEnd = (): void => {
    this.#hasEnded = true;
    this.#wake();
  };

  readonly #onError = (error: unknown): void => {
    this.#failure ??= { error };
    this.#wake();
  };

  readonly #onClose = (): void => {
    if (!this.#hasEnded) this.#onError(new BerthError("CANCELED", "The request ended halfway."));
  };
}
