import { readFileSync } from "node:fs";
import { z } from "zod";
import { BerthError } from "../base/errors.ts";
import { nearest } from "../base/nearest.ts";

const scalar = z.union([z.string(), z.number(), z.boolean()]);
const shape = z.record(z.string(), z.union([scalar, z.array(scalar)]));

/** The values of a configuration file by key, as text: one, or those of a list. */
export type FileValues = Readonly<Record<string, readonly string[]>>;

/**
 * Reads a configuration file: one JSON object, keys as the flags without their
 * dashes, values as on the command line, lists as arrays.
 * @throws BerthError `INVALID_ARGUMENT` that names the file, and the key where one is at fault
 */
export function readConfigFile(path: string, keys: readonly string[]): FileValues {
  const found = shape.safeParse(parseJson(path));
  if (!found.success) {
    const at = found.error.issues[0]?.path.join(".");
    throw fileFault(
      path,
      at
        ? `${at} must be a text, a number, true, false or a list of these`
        : 'it must hold one JSON object, as {"max-sandboxes": 20}',
    );
  }
  const values: Record<string, string[]> = {};
  for (const [key, value] of Object.entries(found.data)) {
    if (!keys.includes(key)) {
      const meant = nearest(key, keys);
      throw fileFault(path, `there is no option "${key}"${meant ? `; is it "${meant}"?` : ""}`);
    }
    values[key] = [value].flat().map(String);
  }
  return values;
}

function parseJson(path: string): unknown {
  try {
    return JSON.parse(readFileSync(path, "utf8"));
  } catch (error) {
    throw fileFault(path, error instanceof SyntaxError ? `it is not JSON (${error.message})` : reading(error));
  }
}

function reading(error: unknown): string {
  const code = (error as NodeJS.ErrnoException).code;
  if (code === "ENOENT") return "there is no such file";
  return code === "EACCES" ? "this user may not read it" : `it cannot be read (${code ?? error})`;
}

function fileFault(path: string, problem: string): BerthError {
  return new BerthError("INVALID_ARGUMENT", `Configuration file ${path}: ${problem}.`);
}
