import { isUtf8 } from "node:buffer";
import { readFileSync } from "node:fs";
import { UsageError } from "./exit.ts";

/**
 * Refuses arguments that are not UTF-8. Node replaces their bytes by U+FFFD, so that a command would act on another file
 * than the one that was named.
 * @param args the last arguments of this process, as Node gives them
 * @throws UsageError that quotes the first such argument
 */
export function refuseOtherBytes(args: readonly string[]): void {
  const given = ownArguments().slice(-args.length);
  const at = given.findIndex((bytes) => !isUtf8(bytes));
  if (at < 0) return;
  throw new UsageError(
    `${JSON.stringify(args[at])} is not UTF-8, and would name something else; write it in UTF-8, or use a pattern that matches it`,
  );
}

/** The arguments of this process as bytes. Empty if the system does not show them. */
function ownArguments(): Buffer[] {
  const found: Buffer[] = [];
  try {
    const bytes = readFileSync("/proc/self/cmdline");
    for (let from = 0; from < bytes.length; ) {
      const end = bytes.indexOf(0, from);
      found.push(bytes.subarray(from, end < 0 ? bytes.length : end));
      from = end < 0 ? bytes.length : end + 1;
    }
  } catch {}
  return found;
}
