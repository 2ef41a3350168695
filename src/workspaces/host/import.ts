import { mkdir, mkdtemp, rename } from "node:fs/promises";
import path from "node:path";
import { type ByteString, fromText, toText } from "../../base/byte-string.ts";
import { BerthError } from "../../base/errors.ts";
import { codeOf } from "../../base/system-errors.ts";
import { finishDirectories, unpackEntries } from "../../files/unpack-entries.ts";
import type { StagedImport, StageOptions } from "../storage.ts";
import type { WorkspacePlace } from "../workspace.ts";
import { diskError, onDisk } from "./disk-errors.ts";
import type { Layout } from "./layout.ts";
import { PinnedDirectory } from "./pinned.ts";
import type { DirectoryQuota } from "./project-quota.ts";
import type { Tools } from "./tools.ts";
import { openToOwner, type Trash } from "./trees.ts";

interface StageParts {
  readonly layout: Layout;
  readonly tools: Tools;
  readonly trash: Trash;
  /** Undefined if the file system enforces no quotas. */
  readonly quota: DirectoryQuota | undefined;
  /** Limit for the files of an archive, because no quota limits root's own writes. Undefined: no limit. */
  readonly maxBytes: number | undefined;
}

/** Unpacks a tar into its own directory on the workspaces' disk, where no sandbox sees it. */
export async function stageImport(
  { layout, tools, trash, quota, maxBytes }: StageParts,
  place: WorkspacePlace,
  chunks: AsyncIterable<Uint8Array>,
  { admit, take, signal }: StageOptions,
): Promise<StagedImport> {
  const staging = await onDisk(() => mkdtemp(path.join(layout.staging, "import-")));
  const tree = path.join(staging, "tree");
  const target = layout.pathOf(place);
  let room = quota;
  const discard = async (): Promise<void> => {
    const taken = room;
    room = undefined;
    try {
      await trash.purge(staging);
    } finally {
      await taken?.endImport(place);
    }
  };
  try {
    await quota?.beginImport(place);
    const { uid, gid, mode } = await ownerOf(target);
    await mkdir(tree, { mode: 0o700 });
    await quota?.enforce(place, tree);
    const { directories, entryCount, sizeBytes } = await unpackEntries(fromText(tree), chunks, {
      signal,
      exactModes: true,
      take,
      onSize: (bytes) => {
        if (maxBytes !== undefined && bytes > maxBytes) throw tooLarge(maxBytes);
        return admit(bytes);
      },
    });
    if (uid !== process.getuid?.() || gid !== process.getgid?.())
      await give(tools, tree, `${uid}:${gid}`, signal);
    // An ordinary user could not move a directory that is closed to its owner.
    if (process.getuid?.() === 0) await finishDirectories(directories, fromText(tree));
    return {
      entryCount,
      sizeBytes,
      merge: () => onDisk(() => merge(tree, target).catch(unlessClosed)),
      replace: () => onDisk(() => replace(layout, trash, place, { tree, mode })),
      discard,
    };
  } catch (error) {
    await discard();
    throw signal.aborted ? signal.reason : diskError(error);
  }
}

function tooLarge(maxBytes: number): BerthError {
  return new BerthError(
    "NO_SPACE",
    `Nothing was imported: the archive's files take more than ${maxBytes} bytes, the quota of a workspace.`,
    { metadata: { quota_bytes: String(maxBytes) } },
  );
}

/** Imported files get the owner of the workspace: the user of its last sandbox. */
async function ownerOf(target: string): Promise<{ uid: number; gid: number; mode: number }> {
  await using directory = await PinnedDirectory.open(path.dirname(target));
  const stats = await directory.stat(fromText(path.basename(target)));
  return { uid: stats?.uid ?? 0, gid: stats?.gid ?? 0, mode: (stats?.mode ?? 0) & 0o1777 };
}

async function give(tools: Tools, tree: string, owner: string, signal: AbortSignal): Promise<void> {
  const argv = ["chown", "--no-dereference", "--recursive", "--", owner, "."] as const;
  const { code, stderr } = await tools.run({ argv, directory: tree, capabilities: ["chown"], signal });
  // An ordinary user cannot change owners, and the sandboxes run as that user anyway.
  if (code !== 0 && process.getuid?.() === 0) throw new Error(`chown ended with ${code}: ${stderr}`);
}

async function merge(tree: string, target: string): Promise<void> {
  await using from = await PinnedDirectory.open(tree);
  await using to = await PinnedDirectory.open(target);
  const clash = await findClash(from, to);
  if (clash !== undefined) {
    throw new BerthError(
      "FILE_KIND",
      `Nothing was imported: the archive's entry ${JSON.stringify(clash)} would replace something of another kind, or go through a link.`,
      { metadata: { entry: clash } },
    );
  }
  await mergeTree(from, to);
}

/** An ordinary user cannot enter a directory that a sandbox closed to its own user. */
function unlessClosed(error: unknown): never {
  if (codeOf(error) !== "EACCES") throw error;
  throw new BerthError(
    "FILE_PERMISSION",
    "Not all was imported: a sandbox has closed a directory of the workspace to its own user. Open it there (chmod u+rwx), and import again.",
    { cause: error },
  );
}

/** Replaces in two steps. The next start completes a replacement that a crash interrupted in between. */
async function replace(
  layout: Layout,
  trash: Trash,
  place: WorkspacePlace,
  { tree, mode }: { readonly tree: string; readonly mode: number },
): Promise<void> {
  const target = layout.pathOf(place);
  const old = layout.oldOf(place);
  await trash.purge(old);
  await using handle = await PinnedDirectory.open(tree);
  await handle.setMode(mode);
  await handle.openToOwner();
  await openToOwner(target);
  await rename(target, old);
  try {
    await rename(tree, target);
  } catch (error) {
    await rename(old, target);
    throw error;
  }
  // The replacement is done. The next start removes what is left of the old directory.
  await trash.purge(old).catch(() => {});
}

/**
 * Finds an entry that cannot be moved from one tree into another, because it would replace something of another kind or
 * go through a link. Goes no deeper than both trees do. Returns its path. Undefined: there is none.
 */
async function findClash(
  from: PinnedDirectory,
  to: PinnedDirectory,
  prefix: ByteString = "",
): Promise<string | undefined> {
  for (const name of await from.names()) {
    const [comes, stands] = [await from.stat(name), await to.stat(name)];
    if (comes === undefined || stands === undefined) continue;
    const fits = comes.isDirectory()
      ? stands.isDirectory()
      : comes.isSymbolicLink()
        ? stands.isSymbolicLink()
        : stands.isFile();
    if (!fits) return toText(prefix + name);
    if (!comes.isDirectory()) continue;
    await using below = await from.child(name);
    await using into = await to.child(name);
    const clash = await findClash(below, into, `${prefix}${name}/`);
    if (clash !== undefined) return clash;
  }
  return undefined;
}

/** Moves everything in one tree into another. Files replace files of the same name; other files stay. */
async function mergeTree(from: PinnedDirectory, to: PinnedDirectory): Promise<void> {
  for (const name of await from.names()) {
    const isDirectory = (await from.stat(name))?.isDirectory();
    const stands = isDirectory && (await to.stat(name)) !== undefined;
    try {
      if (!stands) await from.moveTo(name, to);
      else {
        await using below = await from.child(name);
        await using into = await to.child(name);
        await mergeTree(below, into);
      }
    } catch (error) {
      if (CHANGED.has(codeOf(error) ?? "")) throw changed(name, error);
      throw error;
    }
  }
}

/** Error codes if a sandbox replaces something meanwhile. */
const CHANGED = new Set(["ENOTDIR", "EISDIR", "ENOTEMPTY", "EEXIST", "ELOOP", "ENOENT"]);

function changed(name: ByteString, cause: unknown): BerthError {
  return new BerthError(
    "FILE_KIND",
    `A sandbox changed ${JSON.stringify(toText(name))} while the archive was moved into place: a part of it is there. Import it again.`,
    { metadata: { entry: toText(name) }, cause },
  );
}
