import type { OpenVolume } from "../../engine/port.ts";
import { script } from "../../files/script.ts";
import { assertFits } from "../bounded.ts";
import { volumeFailure } from "./errors.ts";
import { measureVolume, sweepVolume } from "./measure.ts";
import { runOn } from "./script.ts";

/** The prefix of marks: files at the top of a volume, where sandboxes cannot create any. */
const MARK = ".berth-clone-";

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
