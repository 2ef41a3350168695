import { isUtf8 } from "node:buffer";
import { setImmediate } from "node:timers/promises";
import type { FileManager, PathRequest } from "../../../files/manager.ts";

/** Lines of a text file. */
interface Lines {
  /** As in the file, with line endings. */
  readonly text: string;
  readonly count: number;
  /** Whether more lines follow in the file. */
  readonly more: boolean;
}

/** How much text is read at once. */
const MAX_BYTES = 1024 * 1024;
const NEWLINE = 0x0a;
const NUMBER_WIDTH = 4;
/** How many lines are counted or numbered in one turn of the event loop. */
const LINES_A_TURN = 10_000;

/**
 * Reads lines of a text file. Stops reading at the end of the last one.
 * @param first from 1.
 * @returns undefined if they are not text.
 */
export async function readLines(
  files: FileManager,
  request: PathRequest,
  { first, limit }: { readonly first: number; readonly limit: number },
  signal: AbortSignal,
): Promise<Lines | undefined> {
  const kept: Buffer[] = [];
  let bytes = 0;
  let line = 1;
  let more = false;
  for await (const item of files.download({ ...request, offset: 0 }, signal)) {
    if (item.type !== "chunk") continue;
    const { data } = item;
    let from = 0;
    let to = 0;
    while (to < data.length && line < first + limit && bytes + to - from < MAX_BYTES) {
      const end = data.indexOf(NEWLINE, to) + 1;
      to = end > 0 ? end : data.length;
      if (line < first) from = to;
      if (end > 0 && ++line % LINES_A_TURN === 0) await setImmediate();
    }
    const part = data.subarray(from, Math.min(to, from + Math.max(MAX_BYTES - bytes, 0)));
    // A copy, because a view would keep the whole chunk.
    if (part.length > 0) kept.push(Buffer.from(part));
    bytes += to - from;
    more = to < data.length;
    if (more) break;
  }
  const data = Buffer.concat(kept);
  const isCut = bytes > MAX_BYTES || (more && bytes === MAX_BYTES);
  const text = isCut ? withoutSplitEnd(data) : data;
  if (!isUtf8(text) || text.includes(0)) return undefined;
  const lines = text.toString();
  return { text: lines, count: countLines(lines), more: more || isCut };
}

/** Adds numbers to lines, starting at `first`: `   1→alpha`. */
export async function numbered(text: string, first: number): Promise<string> {
  let line = first;
  const result = text.replace(
    /[^\n]*\n|[^\n]+$/g,
    (each) => `${String(line++).padStart(NUMBER_WIDTH)}→${each}`,
  );
  // Numbering a hundred thousand lines takes about 30 ms, and sending them takes as long again.
  if (line - first > LINES_A_TURN) await setImmediate();
  return result;
}

/** The number of lines in a text. A last line without a newline counts. */
export function countLines(text: string): number {
  const ends = text.split("\n").length - 1;
  return text === "" || text.endsWith("\n") ? ends : ends + 1;
}

/** Removes an incomplete character at the end. */
function withoutSplitEnd(data: Buffer): Buffer {
  for (let cut = 0; cut < 4; cut++) {
    const part = data.subarray(0, data.length - cut);
    if (isUtf8(part)) return part;
  }
  return data;
}
