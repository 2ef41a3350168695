import type { OpenVolume } from "../../engine/port.ts";
import { script } from "../../files/script.ts";
import { assertFits } from "../bounded.ts";
import { volumeFailure } from "./errors.ts";
import { measureVolume, sweepVolume } from "./measure.ts";
import { runOn } from "./script.ts";

/** How names of marks begin. They stand at the top of a volume, where no sandbox can make one. */
const MARK = ".berth-clone-";

/** Puts a mark on a volume. Clones that are made from then on have it, and no other volume has. */
export async function markVolume(volume: OpenVolume, token: string, signal: AbortSignal): Promise<void> {
  const text = script(
    `need find; need sync; cd ${volume.path} || exit\n`,
    // Those of yesterday are nobody's any more.
    `find . -maxdepth 1 -name '${MARK}*' -mtime +0 -exec rm -f {} +\n`,
    // A clone is made of what is on the disk.
    `: >./${MARK}${token} && sync\n`,
  );
  const end = await runOn(volume, text, signal);
  if (end.code !== 0) throw volumeFailure(end, "read");
}

/**
 * Makes a workspace of a volume that no sandbox has yet, if it is a clone of one with that mark: its tree gets its name,
 * and what a copy leaves out goes.
 * @returns the bytes that it takes; undefined: it is not a clone.
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
    // What no sandbox has mounted yet holds nothing.
    `[ -d ${from} ] || { mkdir ${from} && chmod 777 ${from}; } || exit\n`,
    from === to ? "" : `mv -T ${from} ${to} || exit\n`,
    `find ${to} '(' -type s -o -type b -o -type c ')' -exec rm -f {} +\n`,
    // It is on the disk before the store says that it is whole.
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
