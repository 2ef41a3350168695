/** Flags (one byte) and length (four) before every message of a stream, in gRPC and Connect. */
const PREFIX_BYTES = 5;
/** The flag of Connect's last message, which is JSON with the status of the call. */
export const END_STREAM = 2;

/** A message with its prefix. */
export function enveloped(message: Uint8Array): Buffer {
  const prefix = Buffer.alloc(PREFIX_BYTES);
  prefix.writeUInt32BE(message.length, 1);
  return Buffer.concat([prefix, message]);
}

/** Splits a body into its messages. */
export class Frames {
  readonly #take: (flags: number, frame: Buffer) => void;
  #chunks: Buffer[] = [];
  #bytes = 0;
  #wanted = PREFIX_BYTES;

  constructor(take: (flags: number, frame: Buffer) => void) {
    this.#take = take;
  }

  push(chunk: Buffer): void {
    this.#chunks.push(chunk);
    this.#bytes += chunk.length;
    if (this.#bytes < this.#wanted) return;
    let rest = this.#chunks.length === 1 ? chunk : Buffer.concat(this.#chunks);
    for (;;) {
      this.#wanted = rest.length < PREFIX_BYTES ? PREFIX_BYTES : PREFIX_BYTES + rest.readUInt32BE(1);
      if (rest.length < this.#wanted) break;
      this.#take(rest[0] ?? 0, rest.subarray(PREFIX_BYTES, this.#wanted));
      rest = rest.subarray(this.#wanted);
    }
    this.#chunks = [rest];
    this.#bytes = rest.length;
  }
}
