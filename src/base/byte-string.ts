/**
 * Bytes that need not be valid text, such as a file's name. Each UTF-16 code unit contains one byte (latin1), so
 * comparing two strings compares their bytes.
 */
export type ByteString = string;

/** Converts a text to its UTF-8 bytes. */
export function fromText(text: string): ByteString {
  return Buffer.from(text).toString("latin1");
}

export function fromBytes(bytes: Uint8Array): ByteString {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString("latin1");
}

export function toBytes(bytes: ByteString): Buffer<ArrayBuffer> {
  return Buffer.from(bytes, "latin1");
}

/** Converts bytes to readable text. Bytes that are not UTF-8 become U+FFFD. */
export function toText(bytes: ByteString): string {
  return toBytes(bytes).toString("utf8");
}
