import { content } from "./convert.ts";
import type { Content, Source } from "./types.ts";

/** Bytes in one message of a stream. */
const CHUNK_BYTES = 1024 * 1024;

/**
 * What to send, in pieces that a message can carry. A source that is left early is canceled, also by a `return` before
 * the first piece; `over` cancels one that is waited for, which then ends.
 */
export function piecesOf(source: Source, over?: AbortSignal): AsyncGenerator<Uint8Array> {
  const pieces = startedPiecesOf(source, over);
  if (isIterable(source)) acceptErrors(source);
  // A generator that has not started skips its finally.
  void pieces.next();
  return pieces;
}

/** Starts with an empty piece, before it reads the source. */
async function* startedPiecesOf(source: Source, over: AbortSignal | undefined): AsyncGenerator<Uint8Array> {
  let unread = true;
  try {
    yield new Uint8Array();
    unread = false;
    for await (const each of dataOf(source, over)) {
      const data = content(each);
      for (let at = 0; at < data.length; at += CHUNK_BYTES) yield data.subarray(at, at + CHUNK_BYTES);
    }
  } finally {
    if (unread) await cancel(source);
  }
}

/** Cancels a source of which nothing was read. */
async function cancel(source: Source): Promise<void> {
  if (source instanceof ReadableStream) await source.cancel();
  else if (isIterable(source)) {
    // The iterator of a stream of Node's destroys it only once it has started.
    destroy(source);
    await source[Symbol.asyncIterator]().return?.();
  }
}

function isIterable(source: Source): source is AsyncIterable<Uint8Array | string> {
  return typeof source === "object" && source !== null && Symbol.asyncIterator in source;
}

/** Lets a stream of Node's fail before it is read: its reader gets the error then. Node ends the program if nobody listens. */
function acceptErrors(
  source: AsyncIterable<unknown> & { readonly on?: (event: "error", act: () => void) => unknown },
): void {
  source.on?.("error", () => {});
}

/** Ends a stream of Node's. Other iterables cannot be ended while someone waits for them. */
function destroy(source: AsyncIterable<unknown> & { readonly destroy?: () => unknown }): void {
  source.destroy?.();
}

async function* dataOf(source: Source, over: AbortSignal | undefined): AsyncGenerator<Content> {
  if (source instanceof Blob) yield* read(source.stream(), over);
  else if (source instanceof ReadableStream) yield* read(source, over);
  else if (isIterable(source)) {
    // The end of a loop destroys a stream of Node's, but not while the loop waits for it.
    yield* stoppedBy(over, () => destroy(source), source);
  } else yield source;
}

/** Not every browser can iterate over a stream. */
async function* read(
  stream: ReadableStream<Uint8Array>,
  over: AbortSignal | undefined,
): AsyncGenerator<Uint8Array> {
  const reader = stream.getReader();
  let done = false;
  const rest = async function* () {
    for (;;) {
      const next = await reader.read();
      done = next.done;
      if (next.value === undefined) return;
      yield next.value;
    }
  };
  try {
    yield* stoppedBy(over, () => reader.cancel().catch(() => {}), rest());
  } finally {
    if (!done) await reader.cancel();
    reader.releaseLock();
  }
}

/** The items of a source, and what to do if a signal is aborted before the last. */
async function* stoppedBy<T>(
  signal: AbortSignal | undefined,
  stop: () => unknown,
  items: AsyncIterable<T>,
): AsyncGenerator<T> {
  signal?.addEventListener("abort", stop, { once: true });
  try {
    yield* items;
  } finally {
    signal?.removeEventListener("abort", stop);
  }
}

/** A web stream of bytes in pieces, taken one at a time. Canceling it aborts the signal of the pieces. */
export function readableOf(
  make: (signal: AbortSignal) => AsyncGenerator<Uint8Array>,
  signal: AbortSignal | undefined,
  stop = new AbortController(),
): ReadableStream<Uint8Array> {
  const pieces = make(signal ? AbortSignal.any([signal, stop.signal]) : stop.signal);
  return new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        const { done, value } = await pieces.next();
        if (stop.signal.aborted) return;
        if (done) controller.close();
        else controller.enqueue(value);
      },
      cancel: (reason) => stop.abort(reason),
    },
    { highWaterMark: 0 },
  );
}
