import type http2 from "node:http2";
import { ByteQueue } from "../base/byte-queue.ts";
import { owned } from "../base/owned.ts";

/** From this length on, what a piece keeps is worth its bytes. As long as what Node reads at once, by four. */
const SMALL_BYTES = 16 * 1024;

/**
 * Joins the small pieces in which a request arrives over HTTP/2. Node passes on each DATA frame by itself, as a view of
 * all that it read from the socket. While nobody reads them, a million frames of one byte would take hundreds of
 * megabytes, and block the event loop when they are read; and one byte of each read would keep 64 KiB. Now at most two
 * pieces arrive in a turn of the event loop, each with memory of its own: the first at once, all others at its end.
 */
export function joinSmallPieces(stream: http2.ServerHttp2Stream): void {
  const push = stream.push.bind(stream);
  const held = new ByteQueue();
  let hasPassed = false;
  const flush = (): void => {
    if (held.size > 0 && !stream.destroyed) push(owned(held.take(held.size)));
  };
  stream.push = (piece: Buffer | null): boolean => {
    if (piece === null || piece.length >= SMALL_BYTES) {
      flush();
      return push(piece);
    }
    if (hasPassed) {
      held.push(piece);
      return stream.readableLength + held.size < stream.readableHighWaterMark;
    }
    hasPassed = true;
    setImmediate(() => {
      hasPassed = false;
      flush();
    });
    return push(owned(piece));
  };
}
