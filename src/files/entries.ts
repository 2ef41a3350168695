import { type ByteString, toText } from "../base/byte-string.ts";
import { BerthError, invalidArgument } from "../base/errors.ts";
import { type FileInfo, parseStatAnswer, STAT_FORMAT } from "./file-info.ts";
import type { Operation } from "./operation.ts";
import { isWithin } from "./path.ts";
import { assign, EXIT, script } from "./script.ts";

/** Returns the attributes of a file. @throws `FILE_NOT_FOUND` and the errors that any path may cause. */
export async function statFile(op: Operation, path: ByteString, followLink: boolean): Promise<FileInfo> {
  const text = script(
    assign("p", path),
    `stat ${followLink ? "-L " : ""}-c '${STAT_FORMAT}' "$p" || fail stat "$p"\n`,
    followLink ? "" : `[ ! -L "$p" ] || { need readlink; readlink -n "$p"; }\n`,
  );
  return parseStatAnswer(await op.run(text, { path }));
}

/**
 * Resolves all symbolic links in a path. The part that does not exist yet is kept as it is. @throws the errors that any
 * path may cause.
 */
export async function realPath(op: Operation, path: ByteString): Promise<ByteString> {
  const text = script(
    assign("p", path),
    `i=0 t=; while :; do\n`,
    `if [ -L "$p" ]; then need readlink; i=$((i+1)); [ $i -le 40 ] || exit ${EXIT.missing}\n`,
    `r=$(readlink -n "$p"; echo /); r=\${r%/}; case $r in /*) p=$r;; *) p=\${p%/*}/$r;; esac; continue; fi\n`,
    `[ -d "$p/" ] && break; t=/\${p##*/}$t p=\${p%/*}; done\n`,
    `cd -P "$p/" || exit ${EXIT.forbidden}; pwd -P; printf '\\0%s' "$t"\n`,
  );
  const answer = await op.run(text, { path });
  const [existing = "", rest = ""] = answer.split("\0");
  const directory = existing.slice(0, -1);
  if (rest.split("/").includes("..")) {
    throw new BerthError(
      "FILE_NOT_FOUND",
      `${JSON.stringify(toText(path))}: there is no such file or directory.`,
    );
  }
  return (directory === "/" ? rest : directory + rest) || "/";
}

export interface MakeDirectoryOptions {
  /** 0 to 07777 octal. */
  readonly mode: number;
  /** Whether to create missing parents and accept an existing directory. */
  readonly createParents: boolean;
}

/** Creates a directory. @throws `FILE_EXISTS`, `FILE_NOT_FOUND`, `NO_SPACE` and the errors that any path may cause. */
export async function makeDirectory(
  op: Operation,
  path: ByteString,
  { mode, createParents }: MakeDirectoryOptions,
): Promise<FileInfo> {
  const text = script(
    assign("p", path),
    `if [ -e "$p" ] || [ -L "$p" ]; then ${createParents ? `[ -d "$p" ] || ` : ""}exit ${EXIT.exists}; else\n`,
    createParents ? `parents "$p"\n` : "",
    `place "$p"; mkdir -m ${mode.toString(8)} "$p" || {\n`,
    `need mkdir; [ ! -e "$p" ]${createParents ? ` || [ -d "$p" ]` : ""} || exit ${EXIT.exists}; [ -d "$p" ] || exit 1; }\n`,
    `fi; stat -c '${STAT_FORMAT}' "$p" || fail stat "$p"\n`,
  );
  return parseStatAnswer(await op.run(text, { path }));
}

export interface MoveOptions {
  /** Whether to replace a file, or an empty directory, at the target. */
  readonly overwrite: boolean;
  readonly createParents: boolean;
}

/**
 * Moves a file, a symbolic link itself, or a directory.
 * @throws `INVALID_ARGUMENT` for a target inside the source, `FILE_NOT_FOUND`, `FILE_EXISTS`, `FILE_KIND`,
 *   `DIRECTORY_NOT_EMPTY`, `NO_SPACE` and the errors that any path may cause.
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
  // `mv -n` does not report that it kept an existing target, but then the source still exists too.
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
    // busybox treats a link to a directory as the directory.
    overwrite ? `[ -L "$q" ] && [ -d "$q" ] && rm -f "$q" && mv -fT "$1" "$q" && return\n` : "",
    `isdir "$q" && filled "$q" && exit ${EXIT.notEmpty}\n`,
    `place "$p"; place "$q"\n`,
    `r=$(readlink -f "$p"); case $(readlink -f "$q") in "$r"/*) exit ${EXIT.intoItself};; esac; return 1; }\n`,
    overwrite ? "}\n" : `[ ! -e "$1" ] && [ ! -L "$1" ] || return ${EXIT.exists}; }\n`,
    `set -- $(stat -c %d "$p" "\${q%/*}/")\n`,
    // From another file system, copy it to a temporary name first, so that the target appears completely or not at all.
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

export interface RemoveOptions {
  /** Whether to remove a directory with its contents. */
  readonly recursive: boolean;
  /** Whether to succeed if the file does not exist. */
  readonly allowMissing: boolean;
}

/**
 * Removes a file, a symbolic link itself, or a directory.
 * @throws `INVALID_ARGUMENT` for the root, `FILE_NOT_FOUND`, `DIRECTORY_NOT_EMPTY` and the errors that any path may
 * cause.
 */
export async function removeFile(
  op: Operation,
  path: ByteString,
  { recursive, allowMissing }: RemoveOptions,
  field: string,
): Promise<void> {
  if (path === "/") throw invalidArgument(field, "the root directory cannot be removed.");
  const directory = recursive
    ? `rm -rf "$p" || { need rm; exit 1; }`
    : `rmdir "$p" || { need rmdir; filled "$p" && exit ${EXIT.notEmpty}; place "$p"; exit 1; }`;
  const missing = allowMissing
    ? `(reach "$p"); s=$?; [ $s = ${EXIT.missing} ] || exit $s`
    : `reach "$p"; exit ${EXIT.missing}`;
  const text = script(
    assign("p", path),
    `if [ -d "$p" ] && [ ! -L "$p" ]; then ${directory}\n`,
    `elif [ -e "$p" ] || [ -L "$p" ]; then rm -f "$p" || { need rm; place "$p"; exit 1; }\n`,
    `else ${missing}\nfi\n`,
  );
  await op.run(text, { path });
}
