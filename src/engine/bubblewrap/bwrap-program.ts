import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { BwrapProblem, INSTALL } from "./errors.ts";
import { HOST_ENV } from "./host-command.ts";

/** The `bwrap` of this machine. */
export interface BwrapProgram {
  readonly version: string;
  /** Whether it takes directories to mount as open descriptors, which nobody can swap meanwhile. */
  readonly bindsDescriptors: boolean;
}

/** The oldest that can forbid new user namespaces. */
export const OLDEST_VERSION = [0, 8];

/** Asks `bwrap` what it is. @throws BwrapProblem where it is missing or too old. */
export async function findBwrap(): Promise<BwrapProgram> {
  const version = /(\d+(\.\d+)*)/.exec(await ask("--version"))?.[1];
  if (version === undefined)
    throw new BwrapProblem("the program bwrap is not bubblewrap: it tells no version", INSTALL);
  const [major = 0, minor = 0] = version.split(".").map(Number);
  const [leastMajor = 0, leastMinor = 0] = OLDEST_VERSION;
  if (major < leastMajor || (major === leastMajor && minor < leastMinor)) {
    throw new BwrapProblem(
      `bubblewrap ${version} is too old: ${OLDEST_VERSION.join(".")} or newer is needed`,
      "Install a newer one: Debian 12, Ubuntu 24.04 and Fedora 38 have it, https://github.com/containers/bubblewrap its source.",
    );
  }
  return { version, bindsDescriptors: (await ask("--help")).includes("--ro-bind-fd ") };
}

async function ask(flag: string): Promise<string> {
  try {
    return (await promisify(execFile)("bwrap", [flag], { env: HOST_ENV, cwd: "/", timeout: 10_000 })).stdout;
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === "ENOENT")
      throw new BwrapProblem("bubblewrap is not installed: no bwrap in /usr/bin", INSTALL, error);
    throw new BwrapProblem(`bwrap ${flag} fails: ${(error as Error).message}`, INSTALL, error);
  }
}
