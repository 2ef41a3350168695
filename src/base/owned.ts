/** The same bytes, in memory that nothing else shares: a short piece of a long message would keep all of it. */
export function owned(piece: Uint8Array): Uint8Array {
  if (piece.length === piece.buffer.byteLength) return piece;
  const copy = Buffer.allocUnsafeSlow(piece.length);
  copy.set(piece);
  return copy;
}
