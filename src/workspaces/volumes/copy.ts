import type { OpenVolume } from "../../engine/port.ts";
import { script } from "../../files/script.ts";
import { complaintsOf, LAST_CODE_OF_TAR } from "../../files/tar/restate.ts";
import { assertFits, bounded, copyFailure, isLeftOut } from "../copy.ts";
import { measureVolume, sweepVolume } from "./measure.ts";
import { assertKnowsOptions, runOn, volumeFailure } from "./script.ts";

/** How many bytes of the end of tar's messages are read. */
const MAX_WORDS_BYTES = 64 * 1024;
/** Harmless lines, which are dropped: a changing tree may cause so many that they would push out the others. */
const HARMLESS = ": (file removed before we read it|file changed as we read it|socket ignored)$";

/** Copies a tree from another volume, which sandboxes may write to, into a volume that no sandbox has mounted. */
export async function copyVolume(
  volume: OpenVolume & { readonly otherPath: string },
  trees: { readonly from: string; readonly to: string },
  isOwn: (name: string) => boolean,
  { maxBytes, signal }: { readonly maxBytes: number; readonly signal: AbortSignal },
): Promise<number> {
  const measure = async (either: AbortSignal): Promise<number> =>
    (await measureVolume(volume, trees.to, () => false, either)).sizeBytes;
  const sizeBytes = await bounded((either) => copyTree(volume, trees, either), { maxBytes, measure, signal });
  await sweepVolume(volume, `${volume.path}/${trees.to}`, isOwn, signal);
  return sizeBytes;
}

async function copyTree(
  volume: OpenVolume & { readonly otherPath: string },
  { from, to }: { readonly from: string; readonly to: string },
  signal: AbortSignal,
): Promise<void> {
  const text = script(
    `need tar; need tail; need grep; need sync; mkdir ${volume.path}/${to} && cd ${volume.path}/${to} || exit\n`,
    // A volume that no sandbox ever mounted is empty.
    `[ -d ${volume.otherPath}/${from} ] || { chmod 777 . && echo 0 0; exit; }\n`,
    `{ tar -C ${volume.otherPath}/${from} --format=posix --numeric-owner -cSf - . 2>/tmp/words; echo $? >/tmp/code; } |\n`,
    `tar --numeric-owner -xpf -; written=$?\n`,
    // Sync before the store records the workspace as complete.
    `sync; echo "$(cat /tmp/code) $written"; grep -avEi '${HARMLESS}' /tmp/words | tail -c ${MAX_WORDS_BYTES}\n`,
  );
  const end = await runOn(volume, text, signal);
  const [, read, written] = /^(\d+) (\d+)\n/.exec(end.stdout) ?? [];
  if (end.code !== 0 || read === undefined || written === undefined) throw volumeFailure(end, "read");
  assertCopied(Number(written), end.stderr, (line) => line !== "" && !isLeftOut(line));
  const tail = end.stdout.slice(end.stdout.indexOf("\n") + 1);
  // Drop a truncated first line: it would look like another message.
  const words = tail.length < MAX_WORDS_BYTES ? tail : tail.slice(tail.indexOf("\n") + 1);
  assertKnowsOptions(words);
  assertCopied(Number(read), words, (line) => complaintsOf(line).length > 0);
}

/** Accepts a failed tar if it only left out what copies leave out. */
function assertCopied(code: number, stderr: string, isComplaint: (line: string) => boolean): void {
  if (code === 0) return;
  const complaints = stderr.split("\n").filter(isComplaint).join("\n");
  if (code <= LAST_CODE_OF_TAR && complaints === "") return;
  throw copyFailure(complaints) ?? volumeFailure({ code, stderr: complaints || stderr }, "read");
}

/**
 * The prefix of marks: files at the top of a volume, where sandboxes cannot create any. It is not the prefix of temporary
 * names, because imports remove those that are left over, and a clone may be made after an import.
 */
const MARK = "berth-clone-";

/** Puts a mark on a volume. Only clones created from now on have it too. */
export async function markVolume(volume: OpenVolume, token: string, signal: AbortSignal): Promise<void> {
  const text = script(
    `need find; need sync; cd ${volume.path} || exit\n`,
    // Marks older than a day are no longer needed.
    `find . -maxdepth 1 -name '${MARK}*' -mtime +0 -exec rm -f {} +\n`,
    // A clone contains only what is on the disk.
    `: >./${MARK}${token} && sync\n`,
  );
  const end = await runOn(volume, text, signal);
  if (end.code !== 0) throw volumeFailure(end, "read");
}

/**
 * Turns a new volume, which no sandbox has mounted, into a workspace if it is a clone with that mark: renames its tree,
 * and removes what copies leave out.
 * @returns its size in bytes. Undefined: it is not a clone.
 * @throws `NO_SPACE`
 */
export async function adoptClone(
  volume: OpenVolume,
  token: string,
  trees: { readonly from: string; readonly to: string },
  isOwn: (name: string) => boolean,
  { maxBytes, signal }: { readonly maxBytes: number; readonly signal: AbortSignal },
): Promise<number | undefined> {
  const { from, to } = trees;
  const text = script(
    `need find; need mv; need sync; cd ${volume.path} || exit\n`,
    `[ -e ./${MARK}${token} ] || { echo none; exit; }\n`,
    `find . -mindepth 1 -maxdepth 1 ! -name ${from} ! -name lost+found -exec rm -rf {} + || exit\n`,
    // A volume that no sandbox ever mounted is empty.
    `[ -d ${from} ] || { mkdir ${from} && chmod 777 ${from}; } || exit\n`,
    from === to ? "" : `mv -T ${from} ${to} || exit\n`,
    `find ${to} '(' -type s -o -type b -o -type c ')' -exec rm -f {} +\n`,
    // Sync before the store records the workspace as complete.
    `sync; echo clone\n`,
  );
  const end = await runOn(volume, text, signal);
  if (end.code !== 0) throw volumeFailure(end, "read");
  if (end.stdout !== "clone\n") return undefined;
  await sweepVolume(volume, `${volume.path}/${to}`, isOwn, signal);
  const { sizeBytes } = await measureVolume(volume, to, () => false, signal);
  assertFits(sizeBytes, maxBytes);
  return sizeBytes;
}
