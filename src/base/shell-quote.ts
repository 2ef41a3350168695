/** Quotes any text so that a shell takes it as one word. */
export function quote(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

/** Like {@link quote}, but leaves plain words as they are, for commands that people read. */
export function quoteIfNeeded(text: string): string {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : quote(text);
}
