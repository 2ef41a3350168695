import { type ByteString, toText } from "../base/byte-string.ts";
import { BerthError, throwIfAborted } from "../base/errors.ts";
import type { OpenFile } from "../engine/port.ts";
import { type FileInfo, MAX_STAT_LINE, parseStatLine, STAT_FORMAT, strangeAnswer } from "./file-info.ts";
import type { Operation } from "./operation.ts";
import type { RunningScript } from "./running-script.ts";
import { assign, EXIT, script, scriptError } from "./script.ts";

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
/** The descriptor of the file while it is read. */
const CONTENT_FD = 0;
/**
 * From this size on, a file is opened from outside: that, and ending the script, takes about as long as copying this
 * much.
 */
const DIRECT_FROM_BYTES = 16 * 1024 * 1024;
const CHUNK_BYTES = 512 * 1024;

/**
 * Opens a file, reports its attributes, and copies it from the offset on. Refuses anything but a regular file before
 * opening it, because opening a FIFO would block. The offset is set on the open file, which the copying tool inherits.
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
  // One more byte shows whether the end was reached, even for files without a known size.
  const running = await op.start(readScript(path, offset, "head", `-c ${limit + 1}`));
  const { info, rest } = await readHeader(op, running, path);
  const data = Buffer.concat([rest, await op.collect(running, { path, wanted: WANTED }, limit + 1)]);
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
  const isLarge = info.sizeBytes - offset >= DIRECT_FROM_BYTES;
  // If it cannot be opened, read everything through the pipe.
  const file = isLarge ? await running.openFile(CONTENT_FD).catch(() => undefined) : undefined;
  if (file !== undefined) {
    void running.leave(file, new BerthError("CANCELED", "The file is read past its script."));
    return yield* readDirectly(op, file, offset, path);
  }
  for (let data: Buffer | undefined = rest; data !== undefined; data = await running.read()) {
    op.progressed();
    if (data.length > 0) yield { type: "chunk", data };
  }
  await op.succeed(running, { path, wanted: WANTED });
}

/** Reads an open file to its end, and closes it. */
async function* readDirectly(
  op: Operation,
  file: OpenFile,
  from: number,
  path: ByteString,
): AsyncGenerator<DownloadItem> {
  const read = async (at: number): Promise<Buffer> => {
    try {
      return await file.read(at, CHUNK_BYTES, op.signal);
    } catch (error) {
      throwIfAborted(op.signal);
      throw scriptError({ path, wanted: WANTED }, { code: 1, stderr: (error as Error).message });
    }
  };
  try {
    let at = from;
    let next = read(at);
    for (let data = await next; data.length > 0; data = await next) {
      op.progressed();
      at += data.length;
      next = read(at);
      // The caller may have left before it fails.
      next.catch(() => {});
      yield { type: "chunk", data };
    }
  } finally {
    // Do not await this: a disk that does not answer must not block the caller.
    file.close().catch(() => {});
  }
}

/** Reads the header line before the file's bytes. */
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
