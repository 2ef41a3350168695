import { quote as quoteText } from "../../base/shell-quote.ts";

/** Text for a shell: any bytes but NUL, carried as latin1. */
export type ShellText = string;

/**
 * Waits until a service is there, by opening stdin once more: for the shell of a job, when it has told how that ended.
 * What it told is in its pipes only for as long as it holds them. Without the service nobody has a named
 * pipe open for writing, and whoever opens it waits; other pipes never let anybody wait.
 */
export const AWAIT_READER = ": </proc/self/fd/0";

/** Encodes a string for {@link ShellText}. */
function bytesOf(text: string): ShellText {
  return Buffer.from(text).toString("latin1");
}

/** Quotes a string so that a shell takes it as one word, whatever it holds. */
export function quote(text: string): ShellText {
  return quoteText(bytesOf(text));
}
