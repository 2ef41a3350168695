import { type ByteString, toText } from "../../base/byte-string.ts";
import { BerthError } from "../../base/errors.ts";
import { codeOf } from "./disk-errors.ts";
import type { PinnedDirectory } from "./pinned.ts";

/**
 * Looks for an entry that cannot be moved from one tree into another: it would
 * take the place of something of another kind, or go through a link. Looks no
 * deeper than both trees are. Returns its path; undefined: there is none.
 */
export async function findClash(
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

/** Moves all that is in one tree into another: files replace files of the same name, others stay. */
export async function mergeTree(from: PinnedDirectory, to: PinnedDirectory): Promise<void> {
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

/** What it looks like when a sandbox puts something else in place meanwhile. */
const CHANGED = new Set(["ENOTDIR", "EISDIR", "ENOTEMPTY", "EEXIST", "ELOOP", "ENOENT"]);

function changed(name: ByteString, cause: unknown): BerthError {
  return new BerthError(
    "FILE_KIND",
    `A sandbox changed ${JSON.stringify(toText(name))} while the archive was moved into place: a part of it is there. Import it again.`,
    { metadata: { entry: toText(name) }, cause },
  );
}
