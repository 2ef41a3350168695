/** Text for a shell: any bytes but NUL, carried as latin1. */
export type ShellText = string;

/** Encodes a string for {@link ShellText}. */
function bytesOf(text: string): ShellText {
  return Buffer.from(text).toString("latin1");
}

/** Quotes a string so that a shell takes it as one word, whatever it holds. */
export function quote(text: string): ShellText {
  return `'${bytesOf(text).replaceAll("'", "'\\''")}'`;
}
