import { lstatSync, realpathSync } from "node:fs";
import { chmod, lstat, mkdir } from "node:fs/promises";
import path from "node:path";
import {
  type Exposure,
  exposed,
  exposureAt,
  foreignEntry,
  isBehindPrivate,
  makePrivate,
  type PrivateDirectory,
} from "../../base/private-directory.ts";
import { quoteIfNeeded } from "../../base/shell-quote.ts";

/** Sandboxes may have users of their own, several at one directory. */
export const SANDBOX_DIRECTORY_MODE = 0o777;

const OPTION = "shared-root";
/** What sandboxes share, in a root that is closed for its sake. */
const INSIDE = "shared";

/**
 * Makes the directory that sandboxes share, and returns it. All users of all
 * sandboxes write to it, so a directory above it has to be closed to the host's
 * users. Where none above the root is, the root is that directory, and holds
 * the shared one.
 * @throws `INVALID_ARGUMENT` where the root cannot be closed, with what to type; errors of the file system.
 */
export async function makeSharedRoot(root: string): Promise<string> {
  await mkdir(root, { recursive: true, mode: 0o700 });
  if (isShared(root)) return makeOpen(root);
  const unmoved = unmovedContent(root);
  if (unmoved !== undefined) throw exposed(OPTION, unmoved);
  makePrivate(asPrivate(root));
  return makeOpen(path.join(root, INSIDE));
}

/** Looks whether {@link makeSharedRoot} would refuse the root. Changes nothing. */
export function sharedRootExposure(root: string): Exposure | undefined {
  try {
    return isShared(root) ? undefined : (unmovedContent(root) ?? exposureAt(asPrivate(root)));
  } catch {
    // Made at the start, or a failure of another kind.
    return undefined;
  }
}

/** Makes a directory to which every sandbox may write, whatever the umask. */
export async function makeOpen(directory: string): Promise<string> {
  await mkdir(directory, { recursive: true });
  const stats = await lstat(directory);
  if (!stats.isDirectory()) throw new Error("it is no directory");
  const { mode } = stats;
  if ((mode & SANDBOX_DIRECTORY_MODE) !== SANDBOX_DIRECTORY_MODE)
    await chmod(directory, SANDBOX_DIRECTORY_MODE);
  return directory;
}

/** Whether sandboxes share the root itself. A root that was closed before stays so, whatever is above it by now. */
function isShared(root: string): boolean {
  const wasClosed = hasInside(root) && (lstatSync(root).mode & 0o077) === 0;
  return !wasClosed && isBehindPrivate(realpathSync(root));
}

/** What a root holds of a time when sandboxes shared it itself, and would not see any more. */
function unmovedContent(root: string): Exposure | undefined {
  const content = hasInside(root) ? undefined : foreignEntry(root, () => false);
  if (content === undefined) return undefined;
  const script = `cd "$0"; mkdir ${INSIDE}; find . -mindepth 1 -maxdepth 1 ! -name ${INSIDE} ! -name lost+found -exec mv -t ${INSIDE} -- {} +; chmod 700 .`;
  return {
    found: `other users may come to ${root}, so sandboxes are to share a directory in it, ${INSIDE}, and it holds ${JSON.stringify(content)}`,
    mend: `Name an empty directory or one behind a closed one with --${OPTION}, or move what it holds: ${process.geteuid?.() === 0 ? "sudo " : ""}sh -ec '${script}' ${quoteIfNeeded(root)}`,
  };
}

function hasInside(root: string): boolean {
  return lstatSync(path.join(root, INSIDE), { throwIfNoEntry: false })?.isDirectory() ?? false;
}

function asPrivate(root: string): PrivateDirectory {
  return { path: root, option: OPTION, isOwn: (name) => name === INSIDE };
}
