import { parseKeyValue, ValueError } from "../config/values.ts";
import { UsageError } from "./exit.ts";

/** Gathers the values of a flag that may be repeated. */
export function collect(text: string, before: readonly string[] | undefined): string[] {
  return [...(before ?? []), text];
}

/**
 * Reads a flag's value; undefined where it was not given.
 * @throws UsageError that names the flag and what to write
 */
export function flagValue<T>(
  flag: string,
  text: string | undefined,
  read: (text: string) => T,
): T | undefined {
  if (text === undefined) return undefined;
  try {
    return read(text);
  } catch (error) {
    if (error instanceof ValueError) throw new UsageError(`${flag}: ${error.message}`, { cause: error });
    throw error;
  }
}

/** Reads the values of a repeated `KEY=VALUE` flag. The last one of a key counts. */
export function keyValues(flag: string, texts: readonly string[] = []): Record<string, string> {
  return Object.fromEntries(texts.map((text) => flagValue(flag, text, parseKeyValue) ?? ["", ""]));
}
