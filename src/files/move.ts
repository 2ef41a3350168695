import type { ByteString } from "../base/byte-string.ts";
import { invalidArgument } from "../base/errors.ts";
import { type FileInfo, STAT_FORMAT } from "./file-info.ts";
import type { Operation } from "./operation.ts";
import { isWithin } from "./path.ts";
import { EXIT, script } from "./script.ts";
import { assign } from "./shell-words.ts";
import { parseStatAnswer } from "./stat.ts";

/** What {@link moveFile} is to do. */
export interface MoveOptions {
  /** Whether a file, or an empty directory, at the target is replaced. */
  readonly overwrite: boolean;
  readonly createParents: boolean;
}

/**
 * Gives a file, a symbolic link itself or a directory another path.
 * @throws `INVALID_ARGUMENT` for a target inside the source, `FILE_NOT_FOUND`, `FILE_EXISTS`, `FILE_KIND`,
 *   `DIRECTORY_NOT_EMPTY`, `NO_SPACE` and what any path may end in.
 */
export async function moveFile(
  op: Operation,
  source: ByteString,
  target: ByteString,
  { overwrite, createParents }: MoveOptions,
  targetField: string,
): Promise<FileInfo> {
  if (source !== target && isWithin(target, source)) {
    throw invalidArgument(targetField, "it lies inside the source.");
  }
  await op.run(
    script(assign("p", source), `[ -e "$p" ] || [ -L "$p" ] || { reach "$p"; exit ${EXIT.missing}; }\n`),
    { path: source },
  );
  // `mv -n` tells nothing when it keeps what is there; then the source is still there too.
  const text = script(
    assign("p", source),
    assign("q", target),
    createParents ? `parents "$q"\n` : "",
    `reach "$q"\n`,
    `isdir() { [ -d "$1" ] && [ ! -L "$1" ]; }\n`,
    `if [ -e "$q" ] || [ -L "$q" ]; then\n`,
    overwrite
      ? `if isdir "$p"; then isdir "$q" || exit ${EXIT.kind}; else isdir "$q" && exit ${EXIT.kind}; fi\n`
      : `exit ${EXIT.exists}\n`,
    `fi\n`,
    `move() { mv -${overwrite ? "f" : "n"}T "$1" "$q" || { need mv\n`,
    // busybox takes a link to a directory for the directory.
    overwrite ? `[ -L "$q" ] && [ -d "$q" ] && rm -f "$q" && mv -fT "$1" "$q" && return\n` : "",
    `isdir "$q" && filled "$q" && exit ${EXIT.notEmpty}\n`,
    `place "$p"; place "$q"\n`,
    `r=$(readlink -f "$p"); case $(readlink -f "$q") in "$r"/*) exit ${EXIT.intoItself};; esac; return 1; }\n`,
    overwrite ? "}\n" : `[ ! -e "$1" ] && [ ! -L "$1" ] || return ${EXIT.exists}; }\n`,
    `set -- $(stat -c %d "$p" "\${q%/*}/")\n`,
    // From another file system it comes under another name first, so that it is there whole or not at all.
    `if [ "$1" = "$2" ]; then [ "$p" = "$q" ] || move "$p" || exit\n`,
    `else t=\${q%/*}/${op.temporaryName()}; trap 'rm -rf "$t"; exit 1' HUP INT TERM\n`,
    `cp -a "$p" "$t" && move "$t" || { s=$?; need cp; rm -rf "$t"; exit $s; }; rm -rf "$p" || exit; fi\n`,
    `stat -c '${STAT_FORMAT}' "$q" || fail stat "$q"; [ ! -L "$q" ] || readlink -n "$q"\n`,
  );
  return parseStatAnswer(
    await op.run(text, {
      path: target,
      wanted: "of the same kind as the source: only one of the two is a directory",
    }),
  );
}
