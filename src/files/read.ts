import { type ByteString, toText } from "../base/byte-string.ts";
import { BerthError } from "../base/errors.ts";
import { type FileInfo, parseStatLine, STAT_FORMAT, strangeAnswer } from "./file-info.ts";
import type { Operation } from "./operation.ts";
import type { RunningScript } from "./running-script.ts";
import { assign, EXIT, script } from "./script.ts";

/** A part of a file. */
export interface FilePart {
  readonly data: Buffer;
  readonly info: FileInfo;
  /** Whether the part reaches the end of the file. */
  readonly endOfFile: boolean;
}

export type DownloadItem =
  | { readonly type: "header"; readonly info: FileInfo; readonly offset: number }
  | { readonly type: "chunk"; readonly data: Buffer };

const WANTED = "a regular file";
const NEWLINE = 0x0a;
const MAX_STAT_LINE = 256;

/**
 * Opens a file, reports its attributes, and copies it from the offset on. Anything
 * but a regular file is refused before it is opened, since opening a FIFO would
 * block. The offset is that of the open file, which the copying tool inherits.
 */
function readScript(path: ByteString, offset: number, tool: string, options: string): string {
  return script(
    assign("p", path),
    `regular "$p"; [ -r "$p" ] || { reach "$p"; exit ${EXIT.forbidden}; }\n`,
    `{ i=$(stat -L -c '${STAT_FORMAT}' /proc/self/fd/0) || fail stat "$p"\n`,
    offset > 0
      ? `set -- $i; [ ${offset} -le $2 ] || exit ${EXIT.beyondEnd}; dd bs=1 skip=${offset} count=0 2>/dev/null || fail dd "$p"\n`
      : "",
    `echo "$i"; ${tool} ${options} || fail ${tool} "$p"; exit 0; } <"$p"; fail stat "$p"\n`,
  );
}

/** Reads up to `limit` bytes of a regular file. @throws `FILE_NOT_FOUND`, `FILE_KIND`, `OFFSET_OUT_OF_RANGE`. */
export async function readFile(
  op: Operation,
  path: ByteString,
  offset: number,
  limit: number,
): Promise<FilePart> {
  // One byte more shows whether the end was reached, even for files without a known size.
  const running = await op.start(readScript(path, offset, "head", `-c ${limit + 1}`));
  const { info, rest } = await readHeader(op, running, path);
  const data = Buffer.concat([rest, await op.collect(running, { path, wanted: WANTED })]);
  return { data: data.subarray(0, limit), info, endOfFile: data.length <= limit };
}

/** Streams a regular file of any size: a header, then its bytes. @throws as {@link readFile}. */
export async function* downloadFile(
  op: Operation,
  path: ByteString,
  offset: number,
): AsyncGenerator<DownloadItem> {
  const running = await op.start(readScript(path, offset, "dd", "bs=256k"));
  const { info, rest } = await readHeader(op, running, path);
  yield { type: "header", info, offset };
  for (let data: Buffer | undefined = rest; data !== undefined; data = await running.read()) {
    op.progressed();
    if (data.length > 0) yield { type: "chunk", data };
  }
  await op.succeed(running, { path, wanted: WANTED });
}

/** Reads the line that comes before the file's bytes. */
async function readHeader(
  op: Operation,
  running: RunningScript,
  path: ByteString,
): Promise<{ info: FileInfo; rest: Buffer }> {
  let head: Buffer = Buffer.alloc(0);
  let end = -1;
  while (end < 0) {
    const chunk = await running.read();
    if (chunk === undefined || head.length > MAX_STAT_LINE) {
      await op.succeed(running, { path, wanted: WANTED });
      throw strangeAnswer("stat");
    }
    head = Buffer.concat([head, chunk]);
    end = head.indexOf(NEWLINE);
  }
  const info = parseStatLine(head.toString("latin1", 0, end));
  if (info.kind !== "REGULAR") {
    throw new BerthError("FILE_KIND", `${JSON.stringify(toText(path))}: it is not ${WANTED}.`);
  }
  return { info, rest: head.subarray(end + 1) };
}
