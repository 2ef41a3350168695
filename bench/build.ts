import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

/** The program as it is installed, in the checkout. */
export const BUILT = "dist/main.js";

/** Builds {@link BUILT} anew. */
export async function buildProgram(): Promise<void> {
  const script = fileURLToPath(new URL("../scripts/build.mjs", import.meta.url));
  await promisify(execFile)(process.execPath, [script]);
}
