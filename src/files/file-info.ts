import type { ByteString } from "../base/byte-string.ts";
import { BerthError } from "../base/errors.ts";
import { ownValue } from "../base/own-value.ts";

/** The kind of a file. */
export type FileKind =
  | "REGULAR"
  | "DIRECTORY"
  | "SYMLINK"
  | "FIFO"
  | "SOCKET"
  | "CHARACTER_DEVICE"
  | "BLOCK_DEVICE";

/** A time as seconds since 1970, plus nanoseconds. */
interface FileTime {
  readonly seconds: number;
  readonly nanos: number;
}

/** The attributes of a file, without its name. */
export interface FileInfo {
  readonly kind: FileKind;
  readonly sizeBytes: number;
  /** 0 to 07777 octal. */
  readonly mode: number;
  readonly uid: number;
  readonly gid: number;
  /** Identifies the file in its file system while it exists. */
  readonly inode: string;
  readonly modifyTime: FileTime;
  /** Target of a symbolic link; empty for other kinds, and if not requested. */
  readonly linkTarget: ByteString;
}

/** A file and its name in its directory. */
export interface NamedFile {
  readonly name: ByteString;
  readonly info: FileInfo;
}

/** The format for `stat -c`: one line for a file, the same from coreutils and busybox. Times are in UTC. */
export const STAT_FORMAT = "%f %s %u %g %i %y";

/** Limit for the length of such a line, which is far shorter. */
export const MAX_STAT_LINE = 256;

const STAT_LINE =
  /^([0-9a-f]+) (\d+) (\d+) (\d+) (\d+) (-?\d+)-(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)(?:\.(\d{1,9})\d*)? \+0000$/;

/** Type bits of a mode, by the letter of find's `%y`. */
const TYPE_BITS: Readonly<Record<string, number>> = { p: 1, c: 2, d: 4, b: 6, f: 8, l: 10, s: 12 };

/** By the four type bits of a mode. */
const KINDS: Readonly<Record<number, FileKind>> = {
  1: "FIFO",
  2: "CHARACTER_DEVICE",
  4: "DIRECTORY",
  6: "BLOCK_DEVICE",
  8: "REGULAR",
  10: "SYMLINK",
  12: "SOCKET",
};

/** Range of a timestamp on the wire: the years 1 to 9999. */
const FIRST_SECOND = -62_135_596_800;
const LAST_SECOND = 253_402_300_799;

/**
 * Parses a line of {@link STAT_FORMAT}.
 * @throws `UNSUPPORTED` if it is not one, because the sandbox's `stat` is an unknown implementation.
 */
export function parseStatLine(line: string, linkTarget: ByteString = ""): FileInfo {
  const [, modeBits, size, uid, gid, inode, ...time] = STAT_LINE.exec(line) ?? [];
  const mode = Number.parseInt(modeBits ?? "", 16);
  const kind = KINDS[mode >> 12];
  if (inode === undefined || kind === undefined) throw strangeAnswer("stat");
  return {
    kind,
    sizeBytes: Number(size),
    mode: mode & 0o7777,
    uid: Number(uid),
    gid: Number(gid),
    inode,
    modifyTime: parseTime(time),
    linkTarget,
  };
}

/** Parses a line of {@link STAT_FORMAT} and, after it, the target of a symbolic link. */
export function parseStatAnswer(answer: ByteString): FileInfo {
  const end = answer.indexOf("\n");
  return parseStatLine(answer.slice(0, end), answer.slice(end + 1));
}

/** The error for a tool of the sandbox whose output cannot be parsed. */
export function strangeAnswer(tool: string): BerthError {
  return new BerthError("UNSUPPORTED", `The output of the ${tool} of the sandbox's image cannot be parsed.`, {
    metadata: { tool },
  });
}

function parseTime(fields: readonly (string | undefined)[]): FileTime {
  const [year, month, day, hour, minute, second] = fields.map(Number);
  const date = new Date(0);
  date.setUTCFullYear(year ?? 0, (month ?? 1) - 1, day);
  date.setUTCHours(hour ?? 0, minute, second);
  // Beyond the range of a Date, only the sign is known.
  const seconds = Number.isNaN(date.getTime()) ? (year ?? 0) * 1e9 : date.getTime() / 1000;
  if (seconds < FIRST_SECOND) return { seconds: FIRST_SECOND, nanos: 0 };
  if (seconds > LAST_SECOND) return { seconds: LAST_SECOND, nanos: 0 };
  return { seconds, nanos: Number((fields[6] ?? "").padEnd(9, "0")) };
}

/**
 * The format for `stat -c` of many files named `.` or `./…`. Such names never contain two consecutive slashes, so these
 * safely separate the records. A newline follows each name.
 */
export const RECORD_FORMAT = `//${STAT_FORMAT}//%n`;

const MARK = "//";

/**
 * The format for GNU find's `-printf` that makes such records of files in `.`, with other lines: see
 * {@link parseFindLine}. The target of each link follows its record, between two NUL bytes.
 */
export const FIND_ACTIONS = `-printf '//%y %m %s %U %G %i %TY-%Tm-%Td %TH:%TM:%TS +0000//%p\\n' -type l -printf '\\0%l\\0'`;

/** Parses the line of a record of {@link FIND_ACTIONS}. @throws `UNSUPPORTED` like {@link parseStatLine}. */
export function parseFindLine(line: string, linkTarget: ByteString = ""): FileInfo {
  const [, type = "", permissions = "", rest = ""] = /^([a-z]) ([0-7]+) (.*)$/.exec(line) ?? [];
  const mode = ((ownValue(TYPE_BITS, type) ?? 0) << 12) | Number.parseInt(permissions, 8);
  return parseStatLine(`${mode.toString(16)} ${rest}`, linkTarget);
}

/** The record of one file: its unparsed line, and its name without the `./`. */
interface StatRecord {
  readonly line: string;
  readonly name: ByteString;
}

/** Splits the output of `stat` with {@link RECORD_FORMAT}, or of `find`. The directory itself has the name ".". */
export function* parseRecords(text: ByteString): Generator<StatRecord> {
  if (text === "") return;
  if (!text.startsWith(MARK)) throw strangeAnswer("stat");
  for (let at = MARK.length; at < text.length; ) {
    const middle = text.indexOf(MARK, at);
    // A long line, which is no line of stat, takes long to parse.
    if (middle < 0 || middle - at > MAX_STAT_LINE) throw strangeAnswer("stat");
    const next = text.indexOf(MARK, middle + MARK.length);
    const end = next < 0 ? text.length : next;
    const path = text.slice(middle + MARK.length, end - 1);
    if (text[end - 1] !== "\n" || !/^\.(\/|$)/.test(path)) throw strangeAnswer("stat");
    yield { line: text.slice(at, middle), name: path === "." ? path : path.slice(2) };
    at = end + MARK.length;
  }
}
