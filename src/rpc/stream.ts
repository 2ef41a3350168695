import { invalidArgument } from "../base/errors.ts";
import { messageTooLarge } from "../server/error-conversion.ts";
import type { RequestIterator } from "../server/request-bytes.ts";

/**
 * Passes on a stream's items, and yields `undefined` whenever nothing came for `intervalMs`, or for `firstMs` before the
 * first item. If the reader stops, it does not wait for the stream to end.
 */
export async function* withKeepalive<T>(
  items: AsyncGenerator<T>,
  intervalMs: number,
  firstMs = intervalMs,
): AsyncGenerator<T | undefined> {
  let next = new Awaited(items.next());
  let waitMs = firstMs;
  try {
    while (true) {
      const isThere = await next.settlesWithin(waitMs);
      waitMs = intervalMs;
      if (!isThere) {
        yield undefined;
        continue;
      }
      const { done, value } = await next.promise;
      if (done) return;
      yield value;
      next = new Awaited(items.next());
    }
  } finally {
    items.return(undefined).catch(() => {});
  }
}

/**
 * Waits for a promise many times, with one reaction to it: each would stay until it settles, which may take days. Its
 * rejection counts as handled.
 */
class Awaited<T> {
  readonly promise: Promise<T>;
  #isSettled = false;
  #wake = () => {};

  constructor(promise: Promise<T>) {
    this.promise = promise;
    const settle = (): void => {
      this.#isSettled = true;
      this.#wake();
    };
    promise.then(settle, settle);
  }

  async settlesWithin(ms: number): Promise<boolean> {
    let timer: NodeJS.Timeout | undefined;
    await new Promise<void>((resolve) => {
      this.#wake = resolve;
      timer = setTimeout(resolve, ms);
      if (this.#isSettled) resolve();
    });
    clearTimeout(timer);
    return this.#isSettled;
  }
}

/** The memory that an event takes besides its bytes. */
const EVENT_BYTES = 256;

/** Events on their way to a caller, who may be slower than their source. */
export class EventQueue<T> {
  readonly #limitBytes: number;
  #events: { readonly event: T; readonly bytes: number }[] = [];
  #bytes = 0;
  #end: { readonly error: unknown } | "done" | undefined;
  #wake = () => {};
  #room: PromiseWithResolvers<void> | undefined;

  /** @param limitBytes how far the source may run ahead. */
  constructor(limitBytes: number) {
    this.#limitBytes = limitBytes;
  }

  /**
   * Adds an event. If it returns a promise, wait for that before adding more. Drops events after the end, or after the
   * reader left.
   */
  push(event: T, bytes = 0): Promise<void> | undefined {
    if (this.#end !== undefined) return undefined;
    this.#events.push({ event, bytes: bytes + EVENT_BYTES });
    this.#bytes += bytes + EVENT_BYTES;
    this.#wake();
    if (this.#bytes <= this.#limitBytes) return undefined;
    this.#room ??= Promise.withResolvers();
    return this.#room.promise;
  }

  /** Ends the queue. */
  finish(): void {
    this.#stop("done");
  }

  fail(error: unknown): void {
    this.#stop({ error });
  }

  /** The events, in order. After the last, throws the error given to {@link fail}. */
  async *events(): AsyncGenerator<T> {
    try {
      for (;;) {
        // All at once: to take the first of a million moves the others.
        const events = this.#events.splice(0);
        for (const { event, bytes } of events) {
          this.#bytes -= bytes;
          if (this.#bytes <= this.#limitBytes / 2) this.#makeRoom();
          yield event;
        }
        if (events.length > 0) continue;
        if (this.#end === "done") return;
        if (this.#end !== undefined) throw this.#end.error;
        await new Promise<void>((resolve) => {
          this.#wake = resolve;
        });
      }
    } finally {
      this.finish();
    }
  }

  #stop(end: { readonly error: unknown } | "done"): void {
    this.#end ??= end;
    this.#makeRoom();
    this.#wake();
  }

  #makeRoom(): void {
    this.#room?.resolve();
    this.#room = undefined;
  }
}

/** Size limit of an upload's chunk, in bytes. */
const MAX_CHUNK_BYTES = 1024 * 1024;

/** A message of an upload: first the header, then chunks. */
interface UploadMessage<Header> {
  readonly part:
    | { readonly case: "header"; readonly value: Header }
    | { readonly case: "chunk"; readonly value: Uint8Array }
    | { readonly case: undefined; readonly value?: undefined };
}

/** An upload, split into its header and its chunks. Chunks are read on demand. */
interface Upload<Header> {
  readonly header: Header;
  readonly chunks: AsyncIterable<Uint8Array>;
}

/**
 * Reads the header of an upload.
 *
 * @param sizeOf how many bytes a header announces, if it does.
 * @throws BerthError `INVALID_ARGUMENT` for messages out of order, `MESSAGE_TOO_LARGE` for a large chunk
 */
export async function beginUpload<Header>(
  messages: AsyncIterable<UploadMessage<Header>>,
  sizeOf: (header: Header) => bigint | undefined = () => undefined,
): Promise<Upload<Header>> {
  const iterator = messages[Symbol.asyncIterator]();
  const first = await iterator.next();
  if (first.done || first.value.part.case !== "header") {
    throw invalidArgument("header", "is missing: it has to come first, before every chunk");
  }
  const header = first.value.part.value;
  return { header, chunks: chunksOf(iterator, sizeOf(header)) };
}

function chunksOf<Header>(
  iterator: RequestIterator<UploadMessage<Header>>,
  sizeBytes: bigint | undefined,
): AsyncIterableIterator<Uint8Array> {
  let left = sizeBytes === undefined ? Number.NaN : Number(sizeBytes);
  return {
    [Symbol.asyncIterator]() {
      return this;
    },
    async next() {
      if (left === 0) iterator.trustEnd?.();
      const { done, value } = await iterator.next();
      if (done) return { done, value: undefined };
      try {
        const chunk = chunkOf(value);
        left -= chunk.length;
        return { done: false, value: chunk };
      } catch (error) {
        await iterator.return?.();
        throw error;
      }
    },
    async return() {
      await iterator.return?.();
      return { done: true, value: undefined };
    },
  };
}

function chunkOf({ part }: UploadMessage<unknown>): Uint8Array {
  if (part.case !== "chunk") throw invalidArgument("chunk", "is missing: only chunks may follow the header");
  if (part.value.length > MAX_CHUNK_BYTES) throw messageTooLarge(MAX_CHUNK_BYTES);
  return part.value;
}
