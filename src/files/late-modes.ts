import { type ByteString, toBytes } from "../base/byte-string.ts";
import type { PlainTarEntry } from "./tar/tar-entry.ts";

/** What lets the owner of a directory put something into it. */
const OWNER_DIRECTORY_BITS = 0o700;
/** Directories that one `chmod` is given. */
const AT_ONCE = 100;

/**
 * Modes that directories get once all is unpacked: not every tar waits until a
 * directory is filled before it closes it to its owner, nor gives another mode
 * to one that is there.
 */
export class LateModes {
  readonly #seen = new Set<ByteString>();
  readonly #late = new Map<ByteString, number>();

  /** The entry as it is to be unpacked first. */
  open(entry: PlainTarEntry): PlainTarEntry {
    if (entry.kind !== "directory") return entry;
    const mode = entry.mode | OWNER_DIRECTORY_BITS;
    if (mode !== entry.mode || this.#seen.has(entry.name)) this.#late.set(entry.name, entry.mode);
    this.#seen.add(entry.name);
    return { ...entry, mode };
  }

  /** What a shell is to run in the target to give the modes, what lies deeper first. */
  script(): Buffer {
    const lines: string[] = [];
    const names = [...this.#late.keys()].sort().reverse();
    for (let at = 0; at < names.length; ) {
      const mode = this.#late.get(names[at] ?? "") ?? 0;
      let end = at + 1;
      while (end < names.length && end - at < AT_ONCE && this.#late.get(names[end] ?? "") === mode) end++;
      const words = names.slice(at, end).map((name) => `'./${name.replaceAll("'", "'\\''")}'`);
      lines.push(`chmod ${mode.toString(8)} ${words.join(" ")} || return\n`);
      at = end;
    }
    return toBytes(lines.join(""));
  }
}
