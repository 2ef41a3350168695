import { mkdir, mkdtemp, rename } from "node:fs/promises";
import path from "node:path";
import { complaintsOf, isHarmless, LAST_CODE_OF_TAR } from "../../files/tar/restate.ts";
import type { TemporaryNames } from "../../files/temporary-names.ts";
import { bounded, copyFailure, isLeftOut } from "../copy.ts";
import { contentReplaced, type WorkspacePlace } from "../workspace.ts";
import { diskError, onDisk } from "./disk-errors.ts";
import type { Layout } from "./layout.ts";
import { stayOutOfMounts } from "./mountinfo.ts";
import { identityOf } from "./pinned.ts";
import type { DirectoryQuota } from "./project-quota.ts";
import { type ToolEnd, type Tools, toolFailure } from "./tools.ts";
import { measureDirectory, openToOwner, sweepDirectory, type Trash } from "./trees.ts";

/** Capabilities to give files to any owner with any mode. */
const OWNING = ["chown", "fsetid"];

interface CopyParts {
  readonly layout: Layout;
  readonly tools: Tools;
  readonly trash: Trash;
  readonly names: TemporaryNames;
  /** Undefined if the file system enforces no quotas. */
  readonly quota: DirectoryQuota | undefined;
}

/**
 * Copies a directory that sandboxes write to. The copy is made where no sandbox sees it, and then replaces the target's
 * empty directory. Where sandboxes can make changes, tar works on open directories instead of paths.
 */
export async function copyDirectory(
  { layout, tools, trash, names, quota }: CopyParts,
  source: WorkspacePlace,
  target: WorkspacePlace,
  { maxBytes, signal }: { readonly maxBytes: number; readonly signal: AbortSignal },
): Promise<number> {
  const from = layout.pathOf(source);
  const staging = await onDisk(() => mkdtemp(path.join(layout.staging, "fork-")));
  const tree = path.join(staging, "tree");
  try {
    await mkdir(tree, { mode: 0o700 });
    await quota?.enforce(target, tree);
    const before = await identityOf(from);
    const sizeBytes = await bounded((either) => copyTree(tools, from, tree, either), {
      maxBytes,
      measure: (either) => measureDirectory(tools, tree, either),
      signal,
    });
    // While a directory is replaced, its files seem to vanish.
    if ((await identityOf(from)) !== before) throw contentReplaced(source, "copied");
    await sweepDirectory(tools, tree, (name) => names.isOwn(name), signal);
    await openToOwner(tree);
    await rename(tree, layout.pathOf(target));
    return sizeBytes;
  } catch (error) {
    throw signal.aborted ? signal.reason : diskError(error);
  } finally {
    await trash.purge(staging);
  }
}

async function copyTree(tools: Tools, from: string, tree: string, signal: AbortSignal): Promise<void> {
  const pack = ["tar", "--create", "--file=-", "--format=posix", "--sparse", "--numeric-owner"] as const;
  const unpack = ["tar", "--extract", "--file=-", "--preserve-permissions", "--numeric-owner"] as const;
  const [packed, unpacked] = await tools.pipe(
    { argv: [...pack, ...stayOutOfMounts(from), "."], directory: from, signal, isNoise: isHarmless },
    { argv: unpack, directory: tree, capabilities: OWNING, signal, isNoise: isLeftOut },
  );
  const failed = unpacked.stderr.split("\n").filter((line) => line !== "" && !isLeftOut(line));
  if (unpacked.code !== 0 && (failed.length > 0 || unpacked.code === undefined))
    throw copyFailure(failed.join("\n")) ?? toolFailure("tar", unpacked, "read");
  assertRead(packed);
}

function assertRead(end: ToolEnd): void {
  const complaints = complaintsOf(end.stderr);
  const isWhole = end.code === 0 || (end.code !== undefined && end.code <= LAST_CODE_OF_TAR);
  if (!isWhole || (end.code !== 0 && complaints.length > 0)) throw toolFailure("tar", end, "read");
}
