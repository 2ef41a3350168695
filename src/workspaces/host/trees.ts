import { rename } from "node:fs/promises";
import path from "node:path";
import type { ByteString } from "../../base/byte-string.ts";
import { BerthError } from "../../base/errors.ts";
import { codeOf } from "../../base/system-errors.ts";
import { complaintsOf, isHarmless, LAST_CODE_OF_TAR, restateTar } from "../../files/tar/restate.ts";
import { holdsMounts, stayOutOfMounts } from "./mountinfo.ts";
import { PinnedDirectory } from "./pinned.ts";
import { forbidden, type Tools, toolFailure } from "./tools.ts";

/** Error codes that mean there is no directory. */
const NO_DIRECTORY = new Set(["ENOENT", "ENOTDIR", "ELOOP"]);

/** Removes trees that sandboxes created, however deep, large or hostile. */
export class Trash {
  readonly #tools: Tools;

  constructor(tools: Tools) {
    this.#tools = tools;
  }

  /**
   * Moves a tree to where nobody sees it, and removes it. First removes what an earlier call left there. Idempotent.
   */
  async discard(victim: string, place: string): Promise<void> {
    await this.purge(place);
    await openToOwner(victim);
    try {
      await rename(victim, place);
    } catch (error) {
      if (codeOf(error) === "ENOENT") return;
      throw error;
    }
    await this.purge(place);
  }

  /** Removes a tree from a directory that no sandbox can write to. Idempotent. */
  async purge(victim: string): Promise<void> {
    const name = `./${path.basename(victim)}`;
    const end = await this.#tools.run({
      argv: ["rm", "--recursive", "--force", ...stayOutOfMounts(victim), "--", name],
      directory: path.dirname(victim),
    });
    if (end.code !== 0) throw toolFailure("rm", end, "deleted");
  }
}

/** Opens a directory that a sandbox closed to its owner: otherwise an ordinary user could not move it. */
export async function openToOwner(place: string): Promise<void> {
  try {
    await using directory = await PinnedDirectory.open(place);
    await directory.openToOwner();
  } catch (error) {
    if (!NO_DIRECTORY.has(codeOf(error) ?? "")) throw error;
  }
}

/** How often to retry a walk that was cut off because a directory was moved. */
const MAX_TRIES = 5;
/** The error of du if the directory it was in has been moved. It then prints no sum. */
const CUT_OFF =
  /^du: fts_read failed: .*: (No such file or directory|Not a directory|Too many levels of symbolic links)$/m;

/** The disk space of a directory in bytes, while sandboxes write to it. Ignores files that vanish meanwhile. */
export async function measureDirectory(
  tools: Tools,
  directory: string,
  signal: AbortSignal | undefined,
): Promise<number> {
  const argv = ["du", "--summarize", ...stayOutOfMounts(directory), "--block-size=1", "."] as const;
  for (let tries = 1; ; tries++) {
    const { stdout, ...end } = await tools.run({ argv, directory, signal });
    if (forbidden(end) !== undefined) throw toolFailure("du", end, "read");
    const bytes = /^(\d+)\t/.exec(stdout)?.[1];
    if (bytes !== undefined) return Number(bytes);
    // GNU du aborts without a message if a directory was replaced by a link just when du returned to it.
    const hasAborted = end.code === undefined;
    if (!hasAborted && !CUT_OFF.test(end.stderr)) throw toolFailure("du", end, "read");
    if (tries === MAX_TRIES) {
      throw new BerthError(
        "WORKSPACE_BROKEN",
        `The workspace cannot be measured: a sandbox moved its directories each of ${MAX_TRIES} times. Measure it again when that has ended.`,
      );
    }
  }
}

/**
 * Streams a directory that sandboxes write to as a standard tar, without entries that `isHidden` accepts. Follows no
 * link and opens no FIFO.
 */
export async function* exportDirectory(
  tools: Tools,
  directory: string,
  isHidden: (name: ByteString) => boolean,
  signal: AbortSignal,
): AsyncGenerator<Buffer> {
  yield* restateTar(archiveDirectory(tools, directory, signal), {
    whose: "the server",
    isHidden,
    importable: true,
  });
}

/** Streams a directory that sandboxes write to as GNU tar archives it. */
export async function* archiveDirectory(
  tools: Tools,
  directory: string,
  signal: AbortSignal,
  options: readonly string[] = [],
): AsyncGenerator<Buffer> {
  const argv = [
    "tar",
    "--create",
    "--file=-",
    "--format=gnu",
    "--sparse",
    "--numeric-owner",
    ...options,
    ...stayOutOfMounts(directory),
    ".",
  ] as const;
  const end = yield* tools.stream({ argv, directory, signal, isNoise: isHarmless });
  const complaints = complaintsOf(end.stderr);
  const isWhole = end.code === 0 || (end.code !== undefined && end.code <= LAST_CODE_OF_TAR);
  if (!isWhole || (end.code !== 0 && complaints.length > 0)) throw toolFailure("tar", end, "read");
}

/** How many names one sweep removes. The next sweep finds the rest. */
const MAX_NAMES = 10_000;
const NAMES_AT_ONCE = 100;

/**
 * Removes every entry whose name `isLeftBehind` accepts from a tree that sandboxes write to. `find` and `rm` work on
 * open directories, so they follow no link that a sandbox puts in the way. Returns how many names it found.
 */
export async function sweepDirectory(
  tools: Tools,
  directory: string,
  isLeftBehind: (name: string) => boolean,
  signal: AbortSignal,
): Promise<number> {
  const start = ["find", ".", ...(holdsMounts(directory) ? ["-xdev"] : [])] as const;
  const names = new Set<string>();
  let rest = "";
  const candidates = tools.stream({
    argv: [...start, "-name", ".berth-*", "-printf", "%f\\0"],
    directory,
    signal,
  });
  for await (const chunk of candidates) {
    const found = (rest + chunk.toString("latin1")).split("\0");
    rest = found.pop() ?? "";
    for (const name of found) if (names.size < MAX_NAMES && isLeftBehind(name)) names.add(name);
  }
  const all = [...names];
  for (let at = 0; at < all.length; at += NAMES_AT_ONCE) {
    const either = all.slice(at, at + NAMES_AT_ONCE).flatMap((name) => ["-o", "-name", name]);
    const argv = [
      ...start,
      "(",
      ...either.slice(1),
      ")",
      "-prune",
      "-execdir",
      "rm",
      "-rf",
      "--",
      "{}",
      "+",
    ] as const;
    await tools.run({ argv, directory, signal });
  }
  return names.size;
}
