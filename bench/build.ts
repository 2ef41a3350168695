import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

/** Builds the program in its installed form. */
export async function buildProgram(): Promise<void> {
  const script = fileURLToPath(new URL("../scripts/build.mjs", import.meta.url));
  await promisify(execFile)(process.execPath, [script]);
}
