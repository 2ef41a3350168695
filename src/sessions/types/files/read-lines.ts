import { isUtf8 } from "node:buffer";
import type { FileManager, PathRequest } from "../../../files/manager.ts";

/** Lines of a text file. */
export interface Lines {
  /** As they are in the file, with their ends. */
  readonly text: string;
  readonly count: number;
  /** Whether the file has more behind them. */
  readonly more: boolean;
}

/** As much text is read at once. */
const MAX_BYTES = 1024 * 1024;
const NEWLINE = 0x0a;
const NUMBER_WIDTH = 4;

/**
 * Reads lines of a text file, without reading further than to their end.
 * @param first from 1.
 * @returns undefined where they are not text.
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
  const enough = new AbortController();
  for await (const item of files.download(
    { ...request, offset: 0 },
    AbortSignal.any([signal, enough.signal]),
  )) {
    if (item.type !== "chunk") continue;
    let rest = item.data;
    while (rest.length > 0 && !more) {
      if (line >= first + limit || bytes >= MAX_BYTES) {
        more = true;
        break;
      }
      const at = rest.indexOf(NEWLINE) + 1;
      const part = at > 0 ? rest.subarray(0, at) : rest;
      if (line >= first) {
        kept.push(part.subarray(0, MAX_BYTES - bytes));
        bytes += part.length;
      }
      if (at > 0) line++;
      rest = rest.subarray(part.length);
    }
    if (more) break;
  }
  const data = Buffer.concat(kept);
  const text = bytes > MAX_BYTES ? withoutSplitEnd(data) : data;
  if (!isUtf8(text) || text.includes(0)) return undefined;
  const lines = text.toString();
  return { text: lines, count: countLines(lines), more: more || bytes > MAX_BYTES };
}

/** Lines with their numbers, the first of which is `first`: `   1→alpha`. */
export function numbered(text: string, first: number): string {
  let line = first;
  return text.replace(/[^\n]*\n|[^\n]+$/g, (each) => `${String(line++).padStart(NUMBER_WIDTH)}→${each}`);
}

/** Lines of a text; what follows its last end of a line is one too. */
export function countLines(text: string): number {
  const ends = text.split("\n").length - 1;
  return text === "" || text.endsWith("\n") ? ends : ends + 1;
}

/** Without the beginning of a character that a cut has split. */
function withoutSplitEnd(data: Buffer): Buffer {
  for (let cut = 0; cut < 4; cut++) {
    const part = data.subarray(0, data.length - cut);
    if (isUtf8(part)) return part;
  }
  return data;
}
