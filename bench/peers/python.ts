import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

const run = promisify(execFile);
const path = (relative: string): string => fileURLToPath(new URL(relative, import.meta.url));

/** Where the peers are installed that are Python packages. */
export interface PythonPeers {
  readonly python: string;
  /** Mounts that a container needs to run {@link python}, at the same paths as here. */
  readonly binds: readonly string[];
}

/** Installs the peers that are Python packages into their own environment, once. */
export async function installPythonPeers(signal: AbortSignal): Promise<PythonPeers> {
  const script = path("../../scripts/python-env.sh");
  const { stdout } = await run(script, ["bench-peers", path("requirements.txt")], { signal });
  const environment = stdout.trim();
  const python = `${environment}/bin/python`;
  const prefix = (await run(python, ["-c", "import sys; print(sys.base_prefix)"], { signal })).stdout.trim();
  // The image has its own /usr.
  const directories = prefix === "/usr" ? [environment] : [environment, prefix];
  return { python, binds: directories.map((directory) => `${directory}:${directory}:ro`) };
}
