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
 * Maximum length of a format. A longer one would make the script too long for a lane, so the content goes through
 * stdin.
 */
const MAX_INLINE = 24 * 1024;
/** Size of the marker that follows uploaded content. */
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
  const format = inlineFormat(data);
  if (format === undefined) return uploadFile(op, path, [data], undefined, options);
  const text = replaceScript(
    path,
    options,
    op.temporaryName(),
    `w() { printf ${format}; }\nw >"$t" || w | cat`,
    "",
  );
  return parseStatAnswer(await op.run(text, { path, wanted: WANTED }));
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
  const format = inlineFormat(data);
  const source = format === undefined ? "cat" : `printf ${format} | cat`;
  const running = await op.start(appendScript(path, options, source), { stdin: format === undefined });
  if (format === undefined) {
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
  chunks: AsyncIterable<Uint8Array> | Iterable<Uint8Array>,
  sizeBytes: number | undefined,
  options: WriteOptions,
): Promise<FileInfo> {
  const nonce = op.temporaryName();
  const running = await op.start(replaceScript(path, options, nonce, "cat", checkMark(nonce)), {
    stdin: true,
  });
  try {
    let written = 0;
    for await (const chunk of until(chunks, running.ended)) {
      written += chunk.length;
      if (sizeBytes !== undefined && written > sizeBytes) throw wrongSize(sizeBytes, "more than that came");
      if (chunk.length > 0) await running.write(chunk);
      op.progressed();
    }
    if (sizeBytes !== undefined && written < sizeBytes && !running.over) {
      throw wrongSize(sizeBytes, `${written} bytes came`);
    }
    await running.write(Buffer.from(`${nonce} ${written}`.padEnd(MARK_BYTES)));
    running.closeStdin();
    op.progressed();
    return await answerOf(op, running, path);
  } catch (error) {
    await op.abandon(running, script(assign("p", path), FOLLOW_LINKS, `rm -f "\${p%/*}/${nonce}"\n`));
    throw error;
  }
}

const WANTED = "a regular file";

async function answerOf(op: Operation, running: RunningScript, path: ByteString): Promise<FileInfo> {
  return parseStatAnswer(fromBytes(await op.collect(running, { path, wanted: WANTED })));
}

/** The content as a format for `printf`; undefined if it is too long. */
function inlineFormat(data: Uint8Array): string | undefined {
  if (data.length > MAX_INLINE) return undefined;
  const format = printfFormat(Buffer.from(data.buffer, data.byteOffset, data.byteLength));
  return format.length > MAX_INLINE ? undefined : format;
}

/**
 * Sets $p to the target of its symbolic links, which need not exist. busybox's `readlink -f` is wrong for dangling
 * relative links.
 */
const FOLLOW_LINKS = `i=0; while [ -L "$p" ]; do need readlink; i=$((i+1)); [ $i -le 40 ] || exit ${EXIT.missing}
r=$(readlink -n "$p"; echo /); r=\${r%/}; case $r in /*) p=$r;; *) p=\${p%/*}/$r;; esac; done
`;

/**
 * Writes a temporary file next to the target and renames it. A shell's builtin `printf` does not report why it failed,
 * so `cat` repeats the write.
 */
function replaceScript(
  path: ByteString,
  options: WriteOptions,
  temporary: string,
  source: string,
  check: string,
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
    `${source} >"$t" || give_up cat\n`,
    check,
    `[ -z "$o" ] || { [ -O "$p" ] && [ -G "$p" ]; } || chown $o "$t" 2>/dev/null\n`,
    `[ "$m" = 644 ] || chmod $m "$t" || give_up chmod\n`,
    `stat -c '${STAT_FORMAT}' "$t" || give_up stat\nmv -fT "$t" "$p" || give_up mv\n`,
  );
}

/**
 * Checks for the marker at the end, which proves that the upload is complete: EOF on stdin may also mean a broken
 * connection or server. The marker is cut off.
 */
function checkMark(nonce: string): string {
  return (
    `s=$(tail -c ${MARK_BYTES} "$t"); case $s in ${nonce}\\ *) ;; *) give_up tail ${EXIT.incomplete};; esac\n` +
    `set -- \${s#* }; dd if=/dev/null of="$t" bs=1 seek=$1 || give_up dd\n`
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
