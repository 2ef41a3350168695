/** Quotes a text so that a shell takes it as one word, whatever it holds. */
export function quote(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

/** As {@link quote}, but leaves a plain word as it is: for commands that people read. */
export function quoteIfNeeded(text: string): string {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : quote(text);
}
