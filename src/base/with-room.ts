/**
 * A buffer with room for `needed` bytes that begins with the first `used` bytes of another: that one itself if it has
 * the room, otherwise a copy of at least twice its length, so that many small additions copy each byte few times.
 * @param limit the most room that will ever be needed. Default: none.
 */
export function withRoom(
  buffer: Buffer<ArrayBuffer>,
  used: number,
  needed: number,
  limit = Number.POSITIVE_INFINITY,
): Buffer<ArrayBuffer> {
  if (needed <= buffer.length) return buffer;
  const larger = Buffer.allocUnsafeSlow(Math.min(limit, Math.max(needed, 2 * buffer.length)));
  buffer.copy(larger, 0, 0, used);
  return larger;
}
