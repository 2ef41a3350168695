import type { ByteString } from "../base/byte-string.ts";
import { type FileInfo, parseStatLine, STAT_FORMAT } from "./file-info.ts";
import type { Operation } from "./operation.ts";
import { script } from "./script.ts";
import { assign } from "./shell-words.ts";

/** Reads what is known of a file. @throws `FILE_NOT_FOUND` and what any path may end in. */
export async function statFile(op: Operation, path: ByteString, followLink: boolean): Promise<FileInfo> {
  const text = script(
    assign("p", path),
    `stat ${followLink ? "-L " : ""}-c '${STAT_FORMAT}' "$p" || fail stat "$p"\n`,
    followLink ? "" : `[ ! -L "$p" ] || { need readlink; readlink -n "$p"; }\n`,
  );
  return parseStatAnswer(await op.run(text, { path }));
}

/** Reads a line of {@link STAT_FORMAT} and, after it, the target of a symbolic link. */
export function parseStatAnswer(answer: ByteString): FileInfo {
  const end = answer.indexOf("\n");
  return parseStatLine(answer.slice(0, end), answer.slice(end + 1));
}
