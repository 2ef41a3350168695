import { content } from "./convert.ts";
import type { Content, Source } from "./types.ts";

/** Bytes in one message of a stream. */
const CHUNK_BYTES = 1024 * 1024;

/**
 * What to send, in pieces that a message can carry. A source that is left early is canceled; `over` cancels one that is
 * waited for, which then ends.
 */
export async function* piecesOf(source: Source, over?: AbortSignal): AsyncGenerator<Uint8Array> {
  for await (const each of dataOf(source, over)) {
    const data = content(each);
    for (let at = 0; at < data.length; at += CHUNK_BYTES) yield data.subarray(at, at + CHUNK_BYTES);
  }
}

async function* dataOf(source: Source, over: AbortSignal | undefined): AsyncGenerator<Content> {
  if (source instanceof Blob) yield* read(source.stream(), over);
  else if (source instanceof ReadableStream) yield* read(source, over);
  else if (typeof source === "object" && source !== null && Symbol.asyncIterator in source) {
    // The end of a loop destroys a stream of Node's, but not while the loop waits for it.
    const { destroy } = source as { readonly destroy?: () => unknown };
    yield* stoppedBy(over, () => destroy?.call(source), source);
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
