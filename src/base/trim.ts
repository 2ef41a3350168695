// Regular expressions that end in `+$` take time by the square of a long run that is not at the end.

/** A text without any of these signs at its end. */
export function trimEndOf(text: string, signs: string): string {
  let end = text.length;
  while (end > 0 && signs.includes(text.charAt(end - 1))) end--;
  return text.slice(0, end);
}

/** A text without any of these signs at its beginning and its end. */
export function trimOf(text: string, signs: string): string {
  let start = 0;
  while (start < text.length && signs.includes(text.charAt(start))) start++;
  return trimEndOf(text.slice(start), signs);
}
