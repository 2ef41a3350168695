import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

const run = promisify(execFile);
const path = (relative: string): string => fileURLToPath(new URL(relative, import.meta.url));

/** Where the peers that are Python packages are. */
export interface PythonPeers {
  readonly python: string;
  /** What a container needs, mounted where it is here, to run {@link python}. */
  readonly binds: readonly string[];
}

/** Installs the peers that are Python packages into an environment of their own, once. */
export async function installPythonPeers(signal: AbortSignal): Promise<PythonPeers> {
  const script = path("../../scripts/python-env.sh");
  const { stdout } = await run(script, ["bench-peers", path("requirements.txt")], { signal });
  const environment = stdout.trim();
  const python = `${environment}/bin/python`;
  const prefix = (await run(python, ["-c", "import sys; print(sys.base_prefix)"], { signal })).stdout.trim();
  // The image has a /usr of its own.
  const directories = prefix === "/usr" ? [environment] : [environment, prefix];
  return { python, binds: directories.map((directory) => `${directory}:${directory}:ro`) };
}
