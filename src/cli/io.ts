import type { Readable, Writable } from "node:stream";

/** What the program reads and writes. */
export interface Io {
  readonly stdin: Readable & { readonly isTTY?: boolean | undefined };
  readonly stdout: Writable & { readonly isTTY?: boolean | undefined };
  readonly stderr: Writable & { readonly isTTY?: boolean | undefined };
  readonly env: Readonly<Record<string, string | undefined>>;
}

/** Writes text or bytes and resolves when the stream takes more: a slow reader slows the writer down. */
export async function write(stream: Writable, data: string | Uint8Array): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  stream.write(data, (error) => (error ? reject(error) : resolve()));
  await promise;
}

/** Writes one line of JSON. */
export async function writeJson(stream: Writable, value: unknown): Promise<void> {
  await write(stream, `${JSON.stringify(value)}\n`);
}
