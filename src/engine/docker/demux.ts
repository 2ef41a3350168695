import type { OutputStream } from "../port.ts";

const HEADER_BYTES = 8;

/**
 * Takes apart the frames in which Docker sends stdout and stderr over one
 * connection: a byte for the stream, three zeros, the payload's length as 32
 * bits big-endian, the payload. Payloads are handed on as they arrive, as views
 * of the chunks, so the work is linear whatever the frame's size.
 */
export class Demux {
  readonly #header = Buffer.alloc(HEADER_BYTES);
  #headerBytes = 0;
  #payloadLeft = 0;
  readonly #onData: (stream: OutputStream, chunk: Buffer) => void;

  constructor(onData: (stream: OutputStream, chunk: Buffer) => void) {
    this.#onData = onData;
  }

  /** Whether the connection ended inside a frame, were it to end now. */
  get insideFrame(): boolean {
    return this.#payloadLeft > 0 || (this.#headerBytes > 0 && this.#headerBytes < HEADER_BYTES);
  }

  push(chunk: Buffer): void {
    let at = 0;
    while (at < chunk.length) {
      if (this.#payloadLeft === 0) {
        if (this.#headerBytes === HEADER_BYTES) this.#headerBytes = 0;
        const taken = chunk.copy(this.#header, this.#headerBytes, at);
        this.#headerBytes += taken;
        at += taken;
        if (this.#headerBytes < HEADER_BYTES) return;
        this.#payloadLeft = this.#header.readUInt32BE(4);
        continue;
      }
      const payload = chunk.subarray(at, at + this.#payloadLeft);
      at += payload.length;
      this.#payloadLeft -= payload.length;
      this.#onData(this.#header[0] === 2 ? "stderr" : "stdout", payload);
    }
  }
}
