import { content } from "./convert.ts";
import type { Content, Source } from "./types.ts";

/** Bytes in one message of a stream. */
const CHUNK_BYTES = 1024 * 1024;

/** What to send, in pieces that a message can carry. A source that is left early is canceled. */
export async function* piecesOf(source: Source): AsyncGenerator<Uint8Array> {
  for await (const each of dataOf(source)) {
    const data = content(each);
    for (let at = 0; at < data.length; at += CHUNK_BYTES) yield data.subarray(at, at + CHUNK_BYTES);
  }
}

async function* dataOf(source: Source): AsyncGenerator<Content> {
  if (source instanceof Blob) yield* read(source.stream());
  else if (source instanceof ReadableStream) yield* read(source);
  else if (typeof source === "object" && source !== null && Symbol.asyncIterator in source) yield* source;
  else yield source;
}

/** Not every browser can iterate over a stream. */
async function* read(stream: ReadableStream<Uint8Array>): AsyncGenerator<Uint8Array> {
  const reader = stream.getReader();
  let done = false;
  try {
    for (;;) {
      const next = await reader.read();
      done = next.done;
      if (next.value === undefined) return;
      yield next.value;
    }
  } finally {
    if (!done) await reader.cancel();
    reader.releaseLock();
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
