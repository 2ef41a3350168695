import { realpath, stat } from "node:fs/promises";
import path from "node:path";
import { BerthError, invalidArgument } from "../base/errors.ts";
import { isWithin } from "../base/place.ts";
import type { EngineMount, HostMount } from "./port.ts";

/** Linux's flag to open a path without access to the file's content. Node has no constant for it. */
export const O_PATH = 0o10000000;

/**
 * Directories that would give the sandbox control of the machine. They are refused even if the operator allows them.
 */
const NEVER = ["/proc", "/sys", "/dev"];

/** Targets under the kernel's file systems: a sandbox needs these, and no mount point can be created in them. */
const KERNELS = ["/proc", "/sys"];
/** What every engine puts into /dev. Other names there can be targets if the engine accepts them. */
const DEVICES =
  /^\/dev(\/(null|zero|full|u?random|tty|console|ptmx|pts|mqueue|fd|std(in|out|err)|core)(\/.*)?)?$/;

/**
 * Resolves the directory of each mount. Refuses those outside the allowed roots, and those that would show the sandbox
 * something of `hidden`: an engine's socket, or directories of Berth. `allowedRoots` are absolute directories of this
 * machine.
 * @throws `NOT_ALLOWED`; `INVALID_ARGUMENT` for a target if nothing can be mounted.
 */
export async function checkMounts(
  mounts: readonly EngineMount[],
  allowedRoots: readonly string[],
  hidden: readonly string[],
): Promise<HostMount[]> {
  for (const [index, { target }] of mounts.entries()) {
    const kernels = KERNELS.find((one) => isWithin(target, one)) ?? DEVICES.exec(target)?.[0];
    if (kernels !== undefined) throw badTarget(index, target, `${kernels} is the kernel's own`);
  }
  const roots = (await Promise.all(allowedRoots.map(realPath))).filter((root) => root !== undefined);
  const closed = await Promise.all(hidden.map(async (place) => (await realPath(place)) ?? place));
  return Promise.all(
    mounts.map(async (mount) => {
      if (mount.kind === "volume") throw noVolumes();
      const real = path.isAbsolute(mount.hostPath) ? await realPath(mount.hostPath) : undefined;
      if (mount.own && real === mount.hostPath) return mount;
      // The same error for missing and for forbidden paths, so that it reveals nothing about the host.
      if (
        real === undefined ||
        !roots.some((root) => isWithin(real, root)) ||
        exposesHost(real, mount.own ? [] : closed)
      ) {
        throw notAllowed(mount.hostPath);
      }
      if (!(await stat(real)).isDirectory()) throw notAllowed(mount.hostPath);
      return { ...mount, hostPath: real };
    }),
  );
}

/**
 * The error for a sandbox that failed because the kernel refused a mount; undefined if it failed for another reason.
 * @param words the engine's error message.
 * @param named the part of such a message that names a mount's target.
 */
export function refusedMount(
  mounts: readonly EngineMount[],
  words: string,
  named: (target: string) => string,
): BerthError | undefined {
  const index = mounts.findIndex(({ target }) => words.includes(named(target)));
  const target = mounts[index]?.target;
  if (target === undefined) return undefined;
  const why = /read-only file system|not a directory|permission denied|is inside \/\w+/i.exec(words)?.[0];
  return badTarget(index, target, why?.toLowerCase() ?? "the kernel refuses it");
}

function noVolumes(): BerthError {
  return new BerthError("UNSUPPORTED", "This engine mounts directories of the host, and has no volumes.", {
    metadata: { capability: "volumes" },
  });
}

/** The index is also that in the request: mounts keep their order. */
function badTarget(index: number, target: string, why: string): BerthError {
  const field = `spec.mounts[${index}].target`;
  return invalidArgument(field, `nothing can be mounted at ${JSON.stringify(target)}: ${why}.`);
}

function exposesHost(real: string, hidden: readonly string[]): boolean {
  return (
    hidden.some((place) => isWithin(place, real) || isWithin(real, place)) ||
    NEVER.some((forbidden) => isWithin(real, forbidden))
  );
}

async function realPath(file: string): Promise<string | undefined> {
  try {
    return await realpath(file);
  } catch {
    return undefined;
  }
}

function notAllowed(hostPath: string): BerthError {
  return new BerthError(
    "NOT_ALLOWED",
    `The host path ${JSON.stringify(hostPath)} may not be mounted: it is not a directory at or below one that the operator allowed with --allow-host-path, or it is, holds or lies in one of Berth's own.`,
    { metadata: { host_path: hostPath } },
  );
}
