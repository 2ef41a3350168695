import { untilAborted, within } from "../base/async.ts";
import { type ByteString, fromBytes } from "../base/byte-string.ts";
import { type BerthError, invalidArgument } from "../base/errors.ts";
import { type FileInfo, parseStatAnswer, STAT_FORMAT } from "./file-info.ts";
import type { Operation } from "./operation.ts";
import type { RunningScript } from "./running-script.ts";
import { assign, EXIT, printfFormat, script } from "./script.ts";
import { until } from "./until.ts";

export interface WriteOptions {
  /** 0 to 07777 octal; undefined: the existing file's mode, or 0644 for a new file. */
  readonly mode: number | undefined;
  /** Whether to create missing parents. */
  readonly createParents: boolean;
}

/**
 * Maximum length of content in a script's environment, and of its format. A longer one would be too long for a lane, so
 * the content goes through stdin.
 */
const MAX_INLINE = 24 * 1024;
/** The variable with content as a format. */
const CONTENT = "BERTH_CONTENT";
const PRINT_CONTENT = `printf "$${CONTENT}"`;
/** How long an upload waits for the end of short content. */
const MOMENT_MS = 5;
/** Size of the marker that follows uploaded content of unknown size. */
const MARK_BYTES = 64;

/**
 * Creates a file or replaces its content, in one step.
 * @throws `FILE_NOT_FOUND`, `FILE_KIND`, `NO_SPACE` and the errors that any path may cause. The old content is kept
 * then.
 */
export async function writeFile(
  op: Operation,
  path: ByteString,
  data: Uint8Array,
  options: WriteOptions,
): Promise<FileInfo> {
  const short = shortContent(data);
  if (short !== undefined) return replaceFile(op, path, short, options);
  return replaceThroughStdin(op, path, new Content([data], data.length), options);
}

/**
 * Appends content to a file, or creates it. @throws as {@link writeFile}; part of the content may have been appended.
 */
export async function appendFile(
  op: Operation,
  path: ByteString,
  data: Uint8Array,
  options: WriteOptions,
): Promise<FileInfo> {
  const short = shortContent(data);
  const running = await op.start(
    appendScript(path, options, short === undefined ? "cat" : `${PRINT_CONTENT} | cat`),
    short === undefined ? { stdin: true } : { env: { [CONTENT]: short.format } },
  );
  if (short === undefined) {
    await running.write(data);
    running.closeStdin();
  }
  return answerOf(op, running, path);
}

/**
 * Like {@link writeFile}, with a stream of content. Nothing is written if the source fails or its size is not
 * `sizeBytes`.
 */
export async function uploadFile(
  op: Operation,
  path: ByteString,
  chunks: AsyncIterable<Uint8Array>,
  sizeBytes: number | undefined,
  options: WriteOptions,
): Promise<FileInfo> {
  const content = new Content(chunks, sizeBytes);
  try {
    // A script that finds the content in its environment takes less than half the time of one that reads stdin.
    const small = await content.small(op);
    const short = small && shortContent(small);
    if (short !== undefined) return await replaceFile(op, path, short, options);
    return await replaceThroughStdin(op, path, content, options);
  } finally {
    content.close();
  }
}

async function replaceFile(
  op: Operation,
  path: ByteString,
  { format, sizeBytes }: ShortContent,
  options: WriteOptions,
): Promise<FileInfo> {
  const source = { text: `w() { ${PRINT_CONTENT}; }\nw >"$t" || w | cat`, sizeBytes };
  const text = replaceScript(path, options, op.temporaryName(), source);
  return parseStatAnswer(await op.run(text, { path, wanted: WANTED }, { env: { [CONTENT]: format } }));
}

async function replaceThroughStdin(
  op: Operation,
  path: ByteString,
  content: Content,
  options: WriteOptions,
): Promise<FileInfo> {
  const { sizeBytes } = content;
  const temporary = op.temporaryName();
  const text = replaceScript(path, options, temporary, { text: "cat", sizeBytes });
  const running = await op.start(text, { stdin: true });
  try {
    let written = 0;
    let writing = Promise.resolve();
    for await (const chunk of content.chunks(running.ended)) {
      await writing;
      // The next chunk arrives meanwhile.
      writing = running.write(chunk);
      writing.catch(() => {});
      written += chunk.length;
      op.progressed();
    }
    await writing;
    if (!running.over) content.assertWhole();
    if (sizeBytes === undefined)
      await running.write(Buffer.from(`${temporary} ${written}`.padEnd(MARK_BYTES)));
    running.closeStdin();
    op.progressed();
    return await answerOf(op, running, path);
  } catch (error) {
    await op.abandon(running, script(assign("p", path), FOLLOW_LINKS, `rm -f "\${p%/*}/${temporary}"\n`));
    throw error;
  }
}

/** The content of an upload, as it arrives. The last byte of an announced size comes only if no more follows it. */
class Content {
  /** As announced. */
  readonly sizeBytes: number | undefined;
  readonly #source: AsyncIterableIterator<Uint8Array, undefined>;
  readonly #over = Promise.withResolvers<void>();
  /** What {@link small} has read. */
  readonly #start: Uint8Array[] = [];
  /** The next chunk, if it was asked for and not taken. */
  #arriving: Promise<Uint8Array | undefined> | undefined;
  #received = 0;

  constructor(chunks: AsyncIterable<Uint8Array> | Iterable<Uint8Array>, sizeBytes: number | undefined) {
    this.#source = until(chunks, this.#over.promise);
    this.sizeBytes = sizeBytes;
  }

  /**
   * All of it, if it is short enough for {@link shortContent} and comes within a moment: a caller that sends slowly should
   * not wait to learn that there is no such directory. Otherwise undefined.
   */
  async small(op: Operation): Promise<Uint8Array | undefined> {
    if (this.sizeBytes !== undefined && this.sizeBytes > MAX_INLINE) return undefined;
    const deadline = performance.now() + MOMENT_MS;
    while (this.#received <= MAX_INLINE) {
      let isHere = false;
      const arriving = this.#peek().then(() => {
        isHere = true;
      });
      await within(untilAborted(arriving, op.signal), Math.max(0, deadline - performance.now()));
      if (!isHere) return undefined;
      const chunk = await this.#take();
      op.progressed();
      if (chunk === undefined) {
        this.assertWhole();
        return Buffer.concat(this.#start);
      }
      if (chunk.length > 0) this.#start.push(chunk);
    }
    return undefined;
  }

  /** All chunks, also those that {@link small} has read, until a promise settles. */
  async *chunks(over: Promise<unknown>): AsyncGenerator<Uint8Array> {
    const onOver = (): void => this.#over.resolve();
    over.then(onOver, onOver);
    yield* this.#start.splice(0);
    for (let chunk = await this.#take(); chunk !== undefined; chunk = await this.#take()) {
      if (chunk.length > 0) yield chunk;
    }
  }

  /** @throws `INVALID_ARGUMENT` if less came than was announced. */
  assertWhole(): void {
    if (this.sizeBytes !== undefined && this.#received < this.sizeBytes)
      throw wrongSize(this.sizeBytes, `${this.#received} bytes came`);
  }

  /** Closes the source. */
  close(): void {
    void this.#source.return?.();
  }

  #peek(): Promise<Uint8Array | undefined> {
    this.#arriving ??= this.#next();
    return this.#arriving;
  }

  #take(): Promise<Uint8Array | undefined> {
    const chunk = this.#peek();
    this.#arriving = undefined;
    return chunk;
  }

  async #next(): Promise<Uint8Array | undefined> {
    const chunk = await this.#receive();
    if (chunk !== undefined && this.#received === this.sizeBytes)
      while ((await this.#receive()) !== undefined);
    return chunk;
  }

  async #receive(): Promise<Uint8Array | undefined> {
    const { value } = await this.#source.next();
    this.#received += value?.length ?? 0;
    if (this.sizeBytes !== undefined && this.#received > this.sizeBytes)
      throw wrongSize(this.sizeBytes, "more arrived");
    return value;
  }
}

const WANTED = "a regular file";

async function answerOf(op: Operation, running: RunningScript, path: ByteString): Promise<FileInfo> {
  return parseStatAnswer(fromBytes(await op.collect(running, { path, wanted: WANTED })));
}

/** Content that fits into a script's environment. */
interface ShortContent {
  /** For `printf`. */
  readonly format: string;
  readonly sizeBytes: number;
}

/** Undefined if the content is too long. */
function shortContent(data: Uint8Array): ShortContent | undefined {
  if (data.length > MAX_INLINE) return undefined;
  const format = printfFormat(Buffer.from(data.buffer, data.byteOffset, data.byteLength));
  return format.length > MAX_INLINE ? undefined : { format, sizeBytes: data.length };
}

/**
 * Sets $p to the target of its symbolic links, which need not exist. busybox's `readlink -f` is wrong for dangling
 * relative links.
 */
const FOLLOW_LINKS = `i=0; while [ -L "$p" ]; do need readlink; i=$((i+1)); [ $i -le 40 ] || exit ${EXIT.missing}
r=$(readlink -n "$p"; echo /); r=\${r%/}; case $r in /*) p=$r;; *) p=\${p%/*}/$r;; esac; done
`;

/** What a script writes. */
interface Source {
  /** Writes it to stdout. */
  readonly text: string;
  /** Undefined: it ends with a marker. */
  readonly sizeBytes: number | undefined;
}

/**
 * Writes a temporary file next to the target, and renames it if it is complete: EOF on stdin may also mean a broken
 * connection or server. A shell's builtin `printf` does not report why it failed, so `cat` repeats the write.
 */
function replaceScript(
  path: ByteString,
  options: WriteOptions,
  temporary: string,
  { text, sizeBytes }: Source,
): string {
  return script(
    assign("p", path),
    options.createParents ? `parents "$p"\n` : "",
    FOLLOW_LINKS,
    `m=644 o=; if [ -f "$p" ]; then [ -w "$p" ] || exit ${EXIT.forbidden}\n`,
    `set -- $(stat -c '%a %u:%g' "$p"); m=$1 o=$2\n`,
    `elif [ -e "$p" ]; then exit ${EXIT.kind}; fi; place "$p"\n`,
    options.mode === undefined ? "" : `m=${options.mode.toString(8)}\n`,
    `t=\${p%/*}/${temporary}; trap 'rm -f "$t"; exit 1' HUP INT TERM\n`,
    `give_up() { trap '' HUP INT TERM; rm -f "$t"; need $1; place "$p"; exit \${2:-1}; }\n`,
    `[ "$m" = 644 ] || umask 077\n`,
    `${text} >"$t" || give_up cat\n`,
    sizeBytes === undefined ? cutMark(temporary) : `n=${sizeBytes}\n`,
    `[ -z "$o" ] || { [ -O "$p" ] && [ -G "$p" ]; } || chown $o "$t" 2>/dev/null\n`,
    `[ "$m" = 644 ] || chmod $m "$t" || give_up chmod\n`,
    `i=$(stat -c '${STAT_FORMAT}' "$t") || give_up stat\n`,
    `set -- $i; [ $2 = $n ] || give_up cat ${EXIT.incomplete}; echo "$i"\n`,
    `mv -fT "$t" "$p" || give_up mv\n`,
  );
}

/** Cuts off the marker at the end, and sets $n to the size without it. */
function cutMark(nonce: string): string {
  return (
    `s=$(tail -c ${MARK_BYTES} "$t"); case $s in ${nonce}\\ *) ;; *) give_up tail ${EXIT.incomplete};; esac\n` +
    `n=\${s#* }; n=\${n%% *}; dd if=/dev/null of="$t" bs=1 seek=$n || give_up dd\n`
  );
}

function appendScript(path: ByteString, options: WriteOptions, source: string): string {
  const mode = options.mode?.toString(8);
  return script(
    assign("p", path),
    options.createParents ? `parents "$p"\n` : "",
    `if [ -f "$p" ]; then [ -w "$p" ] || exit ${EXIT.forbidden}\n`,
    `elif [ -e "$p" ]; then exit ${EXIT.kind}\n`,
    `else [ -L "$p" ] || place "$p"; ${mode === undefined ? "" : "umask 077"}\nfi\n`,
    `${source} >>"$p" || { need cat; reach "$p"; exit 1; }\n`,
    mode === undefined ? "" : `chmod ${mode} "$p" || { need chmod; exit 1; }\n`,
    `stat -L -c '${STAT_FORMAT}' "$p" || fail stat "$p"\n`,
  );
}

function wrongSize(sizeBytes: number, came: string): BerthError {
  return invalidArgument(
    "size_bytes",
    `${sizeBytes} bytes were announced, and ${came}. Nothing was written.`,
  );
}
