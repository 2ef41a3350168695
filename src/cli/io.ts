import type { Readable, Writable } from "node:stream";

/** What the program reads and writes. */
export interface Io {
  readonly stdin: Readable & { readonly isTTY?: boolean | undefined };
  readonly stdout: Writable & { readonly isTTY?: boolean | undefined };
  readonly stderr: Writable & { readonly isTTY?: boolean | undefined };
  readonly env: Readonly<Record<string, string | undefined>>;
}

/**
 * Writes text or bytes and resolves when the stream takes more: a slow reader
 * slows the writer down. Rejects with the signal's reason, also while the
 * reader does not read.
 */
export async function write(
  stream: Writable,
  data: string | Uint8Array,
  signal?: AbortSignal,
): Promise<void> {
  signal?.throwIfAborted();
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const onAbort = () => reject(signal?.reason);
  signal?.addEventListener("abort", onAbort, { once: true });
  stream.write(data, (error) => (error ? reject(error) : resolve()));
  try {
    await promise;
  } finally {
    signal?.removeEventListener("abort", onAbort);
  }
}

/** Writes one line of JSON. */
export async function writeJson(stream: Writable, value: unknown, signal?: AbortSignal): Promise<void> {
  await write(stream, `${JSON.stringify(value)}\n`, signal);
}
