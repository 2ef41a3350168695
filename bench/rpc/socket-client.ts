import net from "node:net";
import { FLAG, FRAME, frame, opening, postFields, uint32 } from "../../test/support/attacks/frames.ts";
import { enveloped } from "./frames.ts";
import type { Dialect } from "./raw-http.ts";

const BUFFER_BYTES = 1 << 20;
/** No window is in the way of so many bytes (RFC 9113, 6.9). */
const LARGEST_WINDOW = 2 ** 31 - 1;
const DEFAULT_WINDOW = 65_535;
const INITIAL_WINDOW_SIZE = 4;
const FRAME_HEADER_BYTES = 9;
const NEWLINE = 0x0a;

/** Follows a response to its end. */
interface Follower {
  /** Bytes of the response's body so far. */
  readonly bodyBytes: number;
  /** Takes the bytes that arrived, up to `end`. Returns whether they complete the response. */
  take(buffer: Buffer, end: number): boolean;
}

/**
 * Calls a streaming method over a connection of its own, and counts the bytes of the response's body. Node's HTTP
 * clients take longer to receive a response than the service to send it, and over HTTP/1.1 longest; this takes next to
 * nothing.
 */
export function countBody(
  address: string,
  { version, protocol, codec }: Dialect,
  path: string,
  message: Uint8Array,
): Promise<number> {
  const type = protocol === "grpc" ? "application/grpc+proto" : `application/connect+${codec}`;
  const body = enveloped(message);
  const { request, follower } =
    version === 1
      ? { request: http1Request(address, path, type, body), follower: new ChunkedBody() }
      : { request: http2Request(address, path, type, body), follower: new Http2Body() };
  const buffer = Buffer.allocUnsafeSlow(BUFFER_BYTES);
  return new Promise((resolve, reject) => {
    const onRead = (bytes: number): boolean => {
      try {
        if (follower.take(buffer, bytes)) {
          socket.destroy();
          resolve(follower.bodyBytes);
        }
      } catch (error) {
        socket.destroy();
        reject(error);
      }
      return true;
    };
    const [host = "", port] = address.split(":");
    const socket = net.connect({ host, port: Number(port), onread: { buffer, callback: onRead } });
    socket.once("error", reject).once("close", () => reject(new Error("the response ended halfway")));
    socket.write(request);
  });
}

function http1Request(address: string, path: string, type: string, body: Buffer): Buffer {
  const head = [
    `POST ${path} HTTP/1.1`,
    `host: ${address}`,
    `content-type: ${type}`,
    `content-length: ${body.length}`,
  ];
  return Buffer.concat([Buffer.from(`${head.join("\r\n")}\r\n\r\n`), body]);
}

function http2Request(address: string, path: string, type: string, body: Buffer): Buffer {
  return Buffer.concat([
    opening([[INITIAL_WINDOW_SIZE, LARGEST_WINDOW]]),
    frame(FRAME.window, 0, 0, uint32(LARGEST_WINDOW - DEFAULT_WINDOW)),
    frame(FRAME.headers, FLAG.endHeaders, 1, postFields(address, path, type)),
    frame(FRAME.data, FLAG.endStream, 1, body),
  ]);
}

/** A response over HTTP/1.1, whose body comes in chunks. */
class ChunkedBody implements Follower {
  bodyBytes = 0;
  #line = "";
  /** Bytes of the current chunk, with its end of line, that are yet to come. */
  #left = 0;
  #hasStatus = false;
  #inHead = true;

  take(buffer: Buffer, end: number): boolean {
    for (let at = 0; at < end; ) {
      if (this.#left > 0) {
        const bytes = Math.min(this.#left, end - at);
        this.#left -= bytes;
        at += bytes;
        continue;
      }
      const newline = buffer.subarray(at, end).indexOf(NEWLINE);
      const stop = newline < 0 ? end : at + newline;
      this.#line += buffer.toString("latin1", at, stop);
      at = stop + 1;
      if (newline < 0) break;
      if (this.#takeLine(this.#line.trim())) return true;
      this.#line = "";
    }
    return false;
  }

  /** Returns whether it is the size of the last chunk. */
  #takeLine(line: string): boolean {
    if (!this.#hasStatus && !line.startsWith("HTTP/1.1 200")) throw new Error(line);
    this.#hasStatus = true;
    if (this.#inHead) {
      this.#inHead = line !== "";
      return false;
    }
    const size = Number.parseInt(line, 16);
    this.bodyBytes += size;
    this.#left = size + "\r\n".length;
    return size === 0;
  }
}

/** The response to the first stream of a connection over HTTP/2. */
class Http2Body implements Follower {
  bodyBytes = 0;
  readonly #header = Buffer.alloc(FRAME_HEADER_BYTES);
  #headerBytes = 0;
  /** Bytes of the current frame's payload that are yet to come. */
  #left = 0;

  take(buffer: Buffer, end: number): boolean {
    for (let at = 0; at < end; ) {
      if (this.#left > 0) {
        const bytes = Math.min(this.#left, end - at);
        this.#left -= bytes;
        at += bytes;
      } else {
        const bytes = Math.min(FRAME_HEADER_BYTES - this.#headerBytes, end - at);
        buffer.copy(this.#header, this.#headerBytes, at, at + bytes);
        this.#headerBytes += bytes;
        at += bytes;
        if (this.#headerBytes < FRAME_HEADER_BYTES) break;
        this.#begin();
      }
      if (this.#left === 0 && this.#isLast()) return true;
    }
    return false;
  }

  #begin(): void {
    this.#headerBytes = 0;
    this.#left = this.#header.readUIntBE(0, 3);
    const type = this.#header[3];
    if (type === FRAME.reset) throw new Error("the stream was reset");
    if (type === FRAME.data) this.bodyBytes += this.#left;
  }

  /** Whether the frame that has just ended ends the stream. */
  #isLast(): boolean {
    const [, , , type = 0, flags = 0] = this.#header;
    return (type === FRAME.data || type === FRAME.headers) && (flags & FLAG.endStream) !== 0;
  }
}
