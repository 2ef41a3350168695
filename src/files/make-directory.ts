import type { ByteString } from "../base/byte-string.ts";
import { type FileInfo, STAT_FORMAT } from "./file-info.ts";
import type { Operation } from "./operation.ts";
import { EXIT, script } from "./script.ts";
import { assign } from "./shell-words.ts";
import { parseStatAnswer } from "./stat.ts";

/** What {@link makeDirectory} is to do. */
export interface MakeDirectoryOptions {
  /** 0 to 07777 octal. */
  readonly mode: number;
  /** Whether missing parents are made, and a directory that is there is no error. */
  readonly createParents: boolean;
}

/** Makes a directory. @throws `FILE_EXISTS`, `FILE_NOT_FOUND`, `NO_SPACE` and what any path may end in. */
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
