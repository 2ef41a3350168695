// A regular expression that ends in `+$` takes time quadratic in the length of a run that is not at the end.

/** Removes any of these characters from the end of a text. */
export function trimEndOf(text: string, signs: string): string {
  let end = text.length;
  while (end > 0 && signs.includes(text.charAt(end - 1))) end--;
  return text.slice(0, end);
}

/** Removes any of these characters from the start and the end of a text. */
export function trimOf(text: string, signs: string): string {
  let start = 0;
  while (start < text.length && signs.includes(text.charAt(start))) start++;
  return trimEndOf(text.slice(start), signs);
}
