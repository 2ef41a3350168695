/**
 * Bytes that need not be text, such as a file's name: one UTF-16 unit holds one
 * byte (latin1), so that comparing two gives the order of their bytes.
 */
export type ByteString = string;

/** The bytes of a text. */
export function fromText(text: string): ByteString {
  return Buffer.from(text).toString("latin1");
}

export function fromBytes(bytes: Uint8Array): ByteString {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString("latin1");
}

export function toBytes(bytes: ByteString): Buffer<ArrayBuffer> {
  return Buffer.from(bytes, "latin1");
}

/** As text for a person: what is not UTF-8 becomes U+FFFD. */
export function toText(bytes: ByteString): string {
  return toBytes(bytes).toString("utf8");
}
