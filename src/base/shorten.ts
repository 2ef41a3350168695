/** The longest beginning of a text that has at most so many bytes in UTF-8, without half a character at its end. */
export function shorten(text: string, bytes: number): string {
  return text.slice(0, new TextEncoder().encodeInto(text, new Uint8Array(bytes)).read);
}
