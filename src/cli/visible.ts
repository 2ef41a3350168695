/**
 * Makes untrusted text fit for one line of a terminal: escapes what would act on the terminal or change how the rest is
 * read.
 */
export function visible(text: string): string {
  return text.replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, (character) => {
    if (character === "\n") return "\\n";
    if (character === "\t") return "\\t";
    return `\\u{${character.codePointAt(0)?.toString(16)}}`;
  });
}

/** Like {@link visible}, for text that may have several lines. */
export function visibleLines(text: string): string {
  return text.split("\n").map(visible).join("\n");
}
