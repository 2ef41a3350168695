/** Where a message carries its own encoding. */
const ENCODED = Symbol("encoded");

/** The encoding of a message, in pieces that are sent one after another as they are. */
export type Encoded = readonly Uint8Array[];

/**
 * Gives a message its encoding along, for the one path that needs no copy of
 * its bytes. Everything else encodes the message itself: both must say the same.
 */
export function withEncoding<T extends object>(message: T, encoded: Encoded): T {
  return Object.assign(message, { [ENCODED]: encoded });
}

/** The encoding a message carries along, if it does. */
export function encodingOf(message: object): Encoded | undefined {
  return (message as { [ENCODED]?: Encoded })[ENCODED];
}
