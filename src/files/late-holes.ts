import { type ByteString, toBytes, toText } from "../base/byte-string.ts";
import { BerthError } from "../base/errors.ts";
import type { PlainTarEntry, SparseMap } from "./tar/tar-entry.ts";

/** Of all files together; each costs a process in the sandbox. */
const MAX_PARTS = 10_000;
const OWNER_FILE_BITS = 0o600;

/**
 * Files with holes, whose data is unpacked without them, since not every tar
 * knows holes, and put in its place once all is unpacked.
 */
export class LateHoles {
  readonly #files = new Map<ByteString, { readonly mode: number; readonly map: SparseMap }>();
  #parts = 0;

  /** The entry as it is to be unpacked first. @throws `ARCHIVE_REJECTED` for too many parts. */
  close(entry: PlainTarEntry): PlainTarEntry {
    const { name, mode, sparse: map } = entry;
    // A tar may tell of a file twice; the last one counts.
    this.#files.delete(name);
    if (map === undefined) return entry;
    this.#parts += map.segments.length;
    if (this.#parts > MAX_PARTS) {
      throw new BerthError(
        "ARCHIVE_REJECTED",
        `The archive was refused, and nothing of it unpacked: its sparse files have more than ${MAX_PARTS} parts.`,
        { metadata: { entry: toText(name) } },
      );
    }
    this.#files.set(name, { mode, map });
    return { ...entry, mode: mode | OWNER_FILE_BITS, sparse: undefined };
  }

  /** What a shell is to run in the target, with the name of nothing there in `$t`. */
  script(): Buffer {
    const lines = Array.from(this.#files).flatMap(([name, { mode, map }]) => {
      let skip = 0;
      const moves = map.segments.map(({ offset, length }) => {
        const move = `dd if=$t.d of="$f" bs=64k iflag=skip_bytes,count_bytes oflag=seek_bytes conv=notrunc status=none skip=${skip} count=${length} seek=${offset} || return\n`;
        skip += length;
        return move;
      });
      return [
        `f='./${name.replaceAll("'", "'\\''")}'; cat "$f" >$t.d && touch -r "$f" $t.m && : >"$f" || return\n`,
        ...moves,
        `dd if=/dev/null of="$f" bs=1 seek=${map.realSize} status=none && touch -r $t.m "$f" && chmod ${mode.toString(8)} "$f" || return\n`,
      ];
    });
    if (lines.length > 0) lines.push("rm -f $t.d $t.m\n");
    return toBytes(lines.join(""));
  }
}
