import { rename } from "node:fs/promises";
import path from "node:path";
import type { ByteString } from "../../base/byte-string.ts";
import { BerthError } from "../../base/errors.ts";
import { codeOf } from "../../base/system-errors.ts";
import { complaintsOf, isHarmless, LAST_CODE_OF_TAR, restateTar } from "../../files/tar/restate.ts";
import { holdsMounts, stayOutOfMounts } from "./mounts.ts";
import { PinnedDirectory } from "./pinned.ts";
import { forbidden, type Tools, toolFailure } from "./tools.ts";

/** Codes of failures where there is no directory. */
const NO_DIRECTORY = new Set(["ENOENT", "ENOTDIR", "ELOOP"]);

/** Removes trees that sandboxes made, however deep and many, and whatever they hold. */
export class Trash {
  readonly #tools: Tools;

  constructor(tools: Tools) {
    this.#tools = tools;
  }

  /** Moves a tree where nobody sees it, then removes it. Idempotent; first removes what an earlier call left there. */
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

  /** Removes a tree in a directory that no sandbox can write to. Idempotent. */
  async purge(victim: string): Promise<void> {
    const name = `./${path.basename(victim)}`;
    const end = await this.#tools.run({
      argv: ["rm", "--recursive", "--force", ...stayOutOfMounts(victim), "--", name],
      directory: path.dirname(victim),
    });
    if (end.code !== 0) throw toolFailure("rm", end, "deleted");
  }
}

/** Opens a directory that a sandbox has closed to its owner: without root it could not be moved. */
export async function openToOwner(place: string): Promise<void> {
  try {
    await using directory = await PinnedDirectory.open(place);
    await directory.openToOwner();
  } catch (error) {
    if (!NO_DIRECTORY.has(codeOf(error) ?? "")) throw error;
  }
}

/** How often a walk is started that a moved directory cuts off. */
const MAX_TRIES = 5;
/** The error of du where the directory that it was in has been moved. It gives no sum then. */
const CUT_OFF =
  /^du: fts_read failed: .*: (No such file or directory|Not a directory|Too many levels of symbolic links)$/m;

/** Bytes that a directory takes on the disk, while sandboxes write to it. Files that vanish meanwhile are left out. */
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
    // GNU du aborts without a word where a directory was exchanged for a link just when it came back to it.
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
 * Streams a directory that sandboxes write to as a tar of the standard dialect, without what `isHidden` accepts.
 * Follows no link, opens no FIFO.
 */
export async function* exportDirectory(
  tools: Tools,
  directory: string,
  isHidden: (name: ByteString) => boolean,
  signal: AbortSignal,
): AsyncGenerator<Buffer> {
  yield* restateTar(archiveDirectory(tools, directory, signal), { whose: "the server", isHidden });
}

/** Streams a directory that sandboxes write to as the tar that GNU's tar makes of it. */
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

/** Names that one sweep removes at most; the next one finds the rest. */
const MAX_NAMES = 10_000;
const NAMES_AT_ONCE = 100;

/**
 * Removes everything with a name that `isLeftBehind` accepts from a tree that
 * sandboxes write to. `find` and `rm` go by open directories: no link that a
 * sandbox puts in the way is followed. Returns how many names it found.
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
