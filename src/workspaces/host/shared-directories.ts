import { lstatSync, statSync } from "node:fs";
import { chmod, lstat, mkdir } from "node:fs/promises";
import path from "node:path";
import { BerthError } from "../../base/errors.ts";
import type { Logger } from "../../base/logger.ts";
import { makeDirectories } from "../../base/make-directories.ts";
import { isWithin, realPlace } from "../../base/place.ts";
import {
  type Exposure,
  exposed,
  exposureAt,
  foreignEntry,
  isBehindPrivate,
  isForEverybody,
  makePrivate,
  type PrivateDirectory,
} from "../../base/private-directory.ts";
import { quoteIfNeeded } from "../../base/shell-quote.ts";
import { unlessThere } from "../../base/system-errors.ts";
import { privateDataDir } from "../../state/data-dir.ts";
import type { Quota, WorkspacePlace } from "../workspace.ts";
import type { Layout } from "./layout.ts";
import { DirectoryQuota, ProjectQuota } from "./project-quota.ts";
import type { Tools } from "./tools.ts";

interface SharedDirectoriesParts {
  readonly layout: Layout;
  readonly dataDir: string;
  /** Per directory. Undefined: no limit. */
  readonly quotaBytes: number | undefined;
  readonly tools: Tools;
  readonly logger: Logger;
}

/**
 * The shared directory of each owner: in the shared root for the default owner, in the owner's root for named owners.
 */
export class SharedDirectories {
  readonly #parts: SharedDirectoriesParts;
  /** The directory in the shared root, once it exists. */
  #path: string | undefined;
  /** For the directory in the shared root, and for those of named owners. */
  #rootQuota: DirectoryQuota | undefined;
  #ownersQuota: DirectoryQuota | undefined;
  /** By owner: puts the directory under its quota, once per run of the service. */
  readonly #enforced = new Map<string, Promise<void>>();

  constructor(parts: SharedDirectoriesParts) {
    this.#parts = parts;
  }

  /**
   * Creates the directory in the shared root and finds out how quotas can be enforced.
   * @param projects enforces quotas in the workspaces root; or why that is not possible.
   * @throws `INVALID_ARGUMENT` if the host's other users may enter a root, or sandboxes would share Berth's own files.
   */
  async prepare(projects: ProjectQuota | string): Promise<void> {
    const { layout, quotaBytes, tools, logger } = this.#parts;
    try {
      await this.#openRoot();
    } catch (error) {
      // Any other problem fails the calls that need the directory.
      if (error instanceof BerthError) throw error;
    }
    if (quotaBytes === undefined) return;
    const enforcer = (found: ProjectQuota | string, root: string): DirectoryQuota | undefined => {
      if (typeof found !== "string") return new DirectoryQuota(found, quotaBytes);
      logger.warn({ root }, `the quota of shared directories is watched, not enforced: ${found}`);
      return undefined;
    };
    this.#ownersQuota = enforcer(projects, layout.root);
    if (this.#path === undefined) return;
    const isElsewhere = statSync(this.#path).dev !== statSync(layout.root).dev;
    this.#rootQuota = isElsewhere
      ? enforcer(await ProjectQuota.find(layout.sharedRoot, undefined, tools), layout.sharedRoot)
      : this.#ownersQuota;
  }

  quotaOf(owner: string): Quota {
    const { quotaBytes } = this.#parts;
    if (quotaBytes === undefined) return { quotaBytes, quotaEnforcement: "NONE" };
    return {
      quotaBytes,
      quotaEnforcement: this.#directoryQuotaOf(owner) === undefined ? "WATCHED" : "ENFORCED",
    };
  }

  /** The path of an owner's directory. @throws `WORKSPACE_BROKEN` if it does not exist yet. */
  pathOf(owner: string): string {
    const path = this.#parts.layout.sharedPathOf(owner) ?? this.#path;
    if (path === undefined) throw broken();
    return path;
  }

  /**
   * Creates an owner's directory if necessary, puts it under its quota, and returns its path. @throws
   * `WORKSPACE_BROKEN`.
   */
  async make(place: WorkspacePlace): Promise<string> {
    try {
      const own = this.#parts.layout.sharedPathOf(place.owner);
      const path = own === undefined ? (this.#path ?? (await this.#openRoot())) : await makeOpen(own);
      await this.#enforce(place, path);
      return path;
    } catch (error) {
      throw broken(error);
    }
  }

  async #openRoot(): Promise<string> {
    const { layout, dataDir } = this.#parts;
    this.#path = await makeSharedRoot(layout.sharedRoot, berthsOwn(layout, dataDir));
    return this.#path;
  }

  #directoryQuotaOf(owner: string): DirectoryQuota | undefined {
    const isInRoot = this.#parts.layout.sharedPathOf(owner) === undefined;
    return isInRoot ? this.#rootQuota : this.#ownersQuota;
  }

  async #enforce(place: WorkspacePlace, path: string): Promise<void> {
    const quota = this.#directoryQuotaOf(place.owner);
    if (quota === undefined) return;
    let enforced = this.#enforced.get(place.owner);
    if (enforced === undefined) {
      // Existing content does not enter the project, and could not be moved within the directory.
      const isEmpty = foreignEntry(path, () => false) === undefined;
      enforced = isEmpty ? quota.enforce(place, path) : quota.limit(place);
      this.#enforced.set(place.owner, enforced);
    }
    try {
      await enforced;
    } catch (error) {
      this.#enforced.delete(place.owner);
      throw error;
    }
  }
}

function broken(cause?: unknown): BerthError {
  return new BerthError(
    "WORKSPACE_BROKEN",
    "The server's shared directory (--shared-root) cannot be used. Ask the operator to fix this.",
    { cause },
  );
}

/** Sandboxes may run as different users, several on one directory. */
export const SANDBOX_DIRECTORY_MODE = 0o777;

const OPTION = "shared-root";
/** Name of the shared directory, if it is inside a root that had to be closed. */
const INSIDE = "shared";

/** The directories of Berth that sandboxes must not share. */
export function berthsOwn(layout: Layout, dataDir: string): readonly PrivateDirectory[] {
  return [privateDataDir(dataDir), layout.privateRoot];
}

/**
 * Creates the directory that sandboxes share, and returns it. All users of all sandboxes write to it, so some directory
 * above it must be closed to the host's users. If none above the root is, the root is closed, and the shared directory
 * is inside.
 * @param own directories of Berth that must not be shared.
 * @throws `INVALID_ARGUMENT`, with what to do, if the root cannot be closed or overlaps with Berth's own; errors of the
 *   file system.
 */
export async function makeSharedRoot(root: string, own: readonly PrivateDirectory[]): Promise<string> {
  const overlap = overlapOf(root, own);
  if (overlap !== undefined) throw exposed(OPTION, overlap);
  makeDirectories(root, 0o700);
  if (isShared(root)) return makeOpen(root);
  const unmoved = unmovedContent(root);
  if (unmoved !== undefined) throw exposed(OPTION, unmoved);
  makePrivate(asPrivate(root));
  return makeOpen(path.join(root, INSIDE));
}

/** Why {@link makeSharedRoot} would refuse the root. Undefined: it would not. Changes nothing. */
export function sharedRootExposure(root: string, own: readonly PrivateDirectory[]): Exposure | undefined {
  try {
    const overlap = overlapOf(root, own);
    if (overlap !== undefined) return overlap;
    return isShared(root) ? undefined : (unmovedContent(root) ?? exposureAt(asPrivate(root)));
  } catch {
    // It will be created at the start, or there is another problem.
    return undefined;
  }
}

/** Creates a directory to which every sandbox may write, whatever the umask is. */
async function makeOpen(directory: string): Promise<string> {
  await mkdir(directory).catch(unlessThere);
  const stats = await lstat(directory);
  if (!stats.isDirectory()) throw new Error("it is not a directory");
  const { mode } = stats;
  if ((mode & SANDBOX_DIRECTORY_MODE) !== SANDBOX_DIRECTORY_MODE)
    await chmod(directory, SANDBOX_DIRECTORY_MODE);
  return directory;
}

/** Whether sandboxes share the root itself. A root that was closed once stays closed, whatever is above it now. */
function isShared(root: string): boolean {
  return !wasClosed(root) && isBehindPrivate(realPlace(root));
}

/** Whether the root is closed, and sandboxes share a directory in it. */
function wasClosed(root: string): boolean {
  return hasInside(root) && (statSync(root).mode & 0o077) === 0;
}

/** Entries of Berth's own directories that sandboxes may share: the default shared root, and where workspaces would be. */
const ROOTS = ["workspaces", INSIDE];

/** Why sandboxes of one owner would reach files of Berth, or workspaces of others, in what they share. */
function overlapOf(root: string, own: readonly PrivateDirectory[]): Exposure | undefined {
  const shared = wasClosed(root) ? path.join(root, INSIDE) : root;
  const place = realPlace(shared);
  for (const { path: directory, option, isOwn } of own) {
    const real = realPlace(directory);
    const [entry = ""] = path.relative(real, place).split(path.sep);
    const isInside = isWithin(place, real) && isOwn(entry) && !ROOTS.includes(entry);
    if (!isInside && !isWithin(real, place)) continue;
    const where = isInside
      ? `which is Berth's own in ${directory}`
      : `and ${directory} is ${real === place ? "the same directory" : "in it"}`;
    return {
      found: `sandboxes would share ${shared}, ${where} (--${option})`,
      fix: `Name a directory that is apart from it with --${OPTION}, or another with --${option}.`,
    };
  }
  return undefined;
}

/** Content from a time when sandboxes shared the root itself. They would no longer see it. */
function unmovedContent(root: string): Exposure | undefined {
  const content = hasInside(root) ? undefined : foreignEntry(root, () => false);
  if (content === undefined) return undefined;
  const found = `other users can reach ${root}, so sandboxes would share a directory in it, ${INSIDE}, and it holds ${JSON.stringify(content)}`;
  const another = `Name an empty directory or one behind a closed one with --${OPTION}`;
  if (isForEverybody(realPlace(root), statSync(root).mode)) return { found, fix: `${another}.` };
  const script = `cd "$0"; mkdir ${INSIDE}; find . -mindepth 1 -maxdepth 1 ! -name ${INSIDE} ! -name lost+found -exec mv -t ${INSIDE} -- {} +; chmod 700 .`;
  return {
    found,
    fix: `${another}, or move what it holds: ${process.geteuid?.() === 0 ? "sudo " : ""}sh -ec '${script}' ${quoteIfNeeded(root)}`,
  };
}

function hasInside(root: string): boolean {
  return lstatSync(path.join(root, INSIDE), { throwIfNoEntry: false })?.isDirectory() ?? false;
}

function asPrivate(root: string): PrivateDirectory {
  return { path: root, option: OPTION, isOwn: (name) => name === INSIDE };
}
