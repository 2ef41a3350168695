import { type ByteString, toText } from "../base/byte-string.ts";
import { BerthError } from "../base/errors.ts";
import type { Operation } from "./operation.ts";
import { EXIT, script } from "./script.ts";
import { assign } from "./shell-words.ts";

/**
 * Where a path really leads, every symbolic link followed; what is not there
 * yet is taken by its name. @throws what any path may end in.
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
  const [told = "", rest = ""] = answer.split("\0");
  const directory = told.slice(0, -1);
  if (rest.split("/").includes("..")) {
    throw new BerthError(
      "FILE_NOT_FOUND",
      `${JSON.stringify(toText(path))}: there is no such file or directory.`,
    );
  }
  return (directory === "/" ? rest : directory + rest) || "/";
}
