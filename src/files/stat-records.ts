import type { ByteString } from "../base/byte-string.ts";
import { STAT_FORMAT, strangeAnswer } from "./file-info.ts";

/**
 * What `stat -c` is to tell of many files named `.` or `./…`. No such name
 * holds two slashes in a row, so these are safe marks between the records,
 * whatever the files are called; a newline follows each name.
 */
export const RECORD_FORMAT = `//${STAT_FORMAT}//%n`;

const MARK = "//";

/** One file: the line of {@link STAT_FORMAT}, still to be read, and its name without the `./`. */
export interface StatRecord {
  readonly line: string;
  readonly name: ByteString;
}

/** Takes apart what `stat` wrote with {@link RECORD_FORMAT}. The directory itself has the name ".". */
export function* parseRecords(text: ByteString): Generator<StatRecord> {
  if (text === "") return;
  if (!text.startsWith(MARK)) throw strangeAnswer("stat");
  for (let at = MARK.length; at < text.length; ) {
    const middle = text.indexOf(MARK, at);
    if (middle < 0) throw strangeAnswer("stat");
    const next = text.indexOf(MARK, middle + MARK.length);
    const end = next < 0 ? text.length : next;
    const path = text.slice(middle + MARK.length, end - 1);
    if (text[end - 1] !== "\n" || !/^\.(\/|$)/.test(path)) throw strangeAnswer("stat");
    yield { line: text.slice(at, middle), name: path === "." ? path : path.slice(2) };
    at = end + MARK.length;
  }
}
