/** Bytes as they come. */
export type Chunks = AsyncIterable<Uint8Array>;

/** Messages carry about this many bytes: fewer cost calls, more cost memory. The service takes 1 MiB at most. */
export const CHUNK_BYTES = 256 * 1024;

/** Puts small chunks together and divides large ones, so that each is worth a message. */
export async function* inMessages(chunks: Chunks): AsyncGenerator<Uint8Array<ArrayBuffer>> {
  let held: Uint8Array[] = [];
  let bytes = 0;
  for await (const chunk of chunks) {
    held.push(chunk);
    bytes += chunk.length;
    if (bytes < CHUNK_BYTES) continue;
    const whole = Buffer.concat(held, bytes);
    let at = 0;
    for (; bytes - at >= CHUNK_BYTES; at += CHUNK_BYTES) yield whole.subarray(at, at + CHUNK_BYTES);
    held = [whole.subarray(at)];
    bytes -= at;
  }
  if (bytes > 0) yield Buffer.concat(held, bytes);
}

/** Gives chunks to a call that reads them. What fails in making them comes out as it is, not as the call's failure. */
export async function feeding<T>(chunks: Chunks, call: (chunks: Chunks) => Promise<T>): Promise<T> {
  let failure: { readonly error: unknown } | undefined;
  async function* watched(): Chunks {
    const iterator = chunks[Symbol.asyncIterator]();
    try {
      for (;;) {
        const next = await iterator.next().catch((error: unknown) => {
          failure = { error };
          throw error;
        });
        if (next.done) return;
        yield next.value;
      }
    } finally {
      await iterator.return?.();
    }
  }
  try {
    return await call(watched());
  } catch (error) {
    throw failure ? failure.error : error;
  }
}
