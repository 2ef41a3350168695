const lenders = new WeakMap<Uint8Array, () => void>();

/**
 * Lends bytes to whoever sends them, who calls {@link giveBack} once they are sent. Then the lender may overwrite them.
 * Nobody has to give them back: the lender then allocates new memory.
 */
export function lend(bytes: Uint8Array, onBack: () => void): void {
  lenders.set(bytes, onBack);
}

/** Gives lent bytes back, which must not be read any more. @returns whether they were lent */
export function giveBack(bytes: Uint8Array): boolean {
  const onBack = lenders.get(bytes);
  if (onBack === undefined) return false;
  lenders.delete(bytes);
  onBack();
  return true;
}
