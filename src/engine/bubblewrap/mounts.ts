import { closeSync, constants, openSync, readlinkSync } from "node:fs";
import { chown } from "node:fs/promises";
import { BerthError } from "../../base/errors.ts";
import { checkMounts } from "../mounts.ts";
import type { EngineMount } from "../port.ts";
import type { Identity } from "./identity.ts";

/** Linux's flag to open a place in the tree without access to what it holds; Node does not name it. */
const O_PATH = 0o10000000;

/** A directory of the host, open, to appear in a sandbox. Who has it closes it. */
export interface OpenMount {
  readonly fd: number;
  /** Where it was found. */
  readonly hostPath: string;
  readonly target: string;
  readonly readOnly: boolean;
}

/**
 * Checks mounts and opens their directories. From then on they are what was
 * checked, whatever is put in the place of their paths.
 * @throws `NOT_ALLOWED`.
 */
export async function openMounts(
  mounts: readonly EngineMount[],
  allowedRoots: readonly string[],
  identity: Identity,
): Promise<OpenMount[]> {
  const opened: OpenMount[] = [];
  try {
    for (const { hostPath, target, readOnly, giveToUser } of await checkMounts(mounts, allowedRoots, [])) {
      const fd = openSync(hostPath, O_PATH | constants.O_DIRECTORY | constants.O_NOFOLLOW);
      opened.push({ fd, hostPath, target, readOnly });
      const opener = `/proc/self/fd/${fd}`;
      if (readlinkSync(opener) !== hostPath) throw new Error("it leads elsewhere now");
      if (giveToUser) await chown(opener, identity.uid, identity.gid);
    }
    return opened;
  } catch (error) {
    for (const { fd } of opened) closeSync(fd);
    if (error instanceof BerthError) throw error;
    throw new BerthError(
      "NOT_ALLOWED",
      "A host path could not be mounted: it changed while it was being mounted, or may not be given to the sandbox's user.",
      { cause: error },
    );
  }
}
