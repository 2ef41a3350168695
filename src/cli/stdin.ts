import { fstatSync } from "node:fs";
import type { Readable } from "node:stream";
import type { Io } from "./io.ts";

/**
 * The stdin that a command is to have: the program's own, where something may
 * come from it. A terminal counts only where it is asked for, `/dev/null` never.
 */
export function stdinFor(io: Io, interactive: boolean): Readable | undefined {
  if (io.stdin.isTTY) return interactive ? io.stdin : undefined;
  try {
    const stat = fstatSync(0);
    return stat.isCharacterDevice() ? undefined : io.stdin;
  } catch {
    return undefined;
  }
}
