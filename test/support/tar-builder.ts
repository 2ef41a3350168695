/** An entry of a hand-made tar. Everything is written as given. */
export interface RawEntry {
  readonly name: string | Buffer;
  /** The character for the kind. Default: "0", a regular file. */
  readonly type?: string;
  readonly linkName?: string | Buffer;
  readonly content?: string | Buffer;
  readonly mode?: number;
  readonly mtime?: number;
  /** The size in the header, if it differs from the content's length. */
  readonly size?: number;
  /** Default: ustar. */
  readonly magic?: string;
  readonly prefix?: string;
}

/** Creates a tar by hand, so that the test does not depend on the code under test. */
export function makeTar(entries: readonly RawEntry[], end: Buffer = Buffer.alloc(1024)): Buffer {
  return Buffer.concat([...entries.flatMap(blocksOf), end]);
}

/** A pax header for the next entry. */
export function pax(records: Readonly<Record<string, string | Buffer>>, type = "x"): RawEntry {
  const lines = Object.entries(records).map(([key, value]) => {
    const rest = Buffer.concat([Buffer.from(` ${key}=`), Buffer.from(value), Buffer.from("\n")]);
    let length = rest.length;
    while (String(length).length + rest.length > length) length++;
    return Buffer.concat([Buffer.from(String(length)), rest]);
  });
  return { name: "PaxHeader", type, content: Buffer.concat(lines) };
}

/** GNU's form of a long name ("L") or link target ("K") for the next entry. */
export function gnuLong(type: "L" | "K", name: string): RawEntry {
  return { name: "././@LongLink", type, content: `${name}\0`, magic: "ustar  \0" };
}

function blocksOf(entry: RawEntry): Buffer[] {
  const { type = "0", mode = 0o644, mtime = 1_600_000_000, magic = "ustar\x0000", prefix = "" } = entry;
  const content = Buffer.from(entry.content ?? "");
  const block = Buffer.alloc(512);
  Buffer.from(entry.name).copy(block, 0, 0, 100);
  block.write(`${mode.toString(8).padStart(7, "0")}\0`, 100);
  block.write("0001750\0", 108);
  block.write("0001750\0", 116);
  block.write(`${(entry.size ?? content.length).toString(8).padStart(11, "0")} `, 124);
  block.write(`${mtime.toString(8).padStart(11, "0")} `, 136);
  block.write("        ", 148);
  block.write(type, 156);
  Buffer.from(entry.linkName ?? "").copy(block, 157, 0, 100);
  block.write(magic, 257, "latin1");
  block.write(prefix, 345);
  block.write(
    `${block
      .reduce((sum, byte) => sum + byte, 0)
      .toString(8)
      .padStart(6, "0")}\0 `,
    148,
  );
  return [block, content, Buffer.alloc((512 - (content.length % 512)) % 512)];
}
