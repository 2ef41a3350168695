import type { ByteString } from "../base/byte-string.ts";
import { scriptError } from "./failure.ts";
import type { Operation } from "./operation.ts";
import type { RunningScript } from "./running-script.ts";
import { EXIT, script } from "./script.ts";
import { assign } from "./shell-words.ts";
import { complaintsOf, LAST_CODE_OF_TAR } from "./tar/tar-complaints.ts";

export const WANTED = "a directory or a regular file";

/**
 * A script that writes a tar of a directory, as `.`, or of one file.
 * @param options of the tool, beside those to create and to follow a link to the file
 * @param before runs first, with the options and the file for `find` as its arguments; it is the name of a function
 *   of `functions`, or `:`
 */
export function archiveScript(path: ByteString, options: string, before = ":", functions = ""): string {
  return script(
    functions,
    assign("p", path),
    `if [ -d "$p" ]; then enter "$p"; need tar; ${before} .; exec tar -c${options}f - .\n`,
    `elif [ -f "$p" ]; then [ -r "$p" ] || exit ${EXIT.forbidden}\n`,
    `cd "\${p%/*}/" || exit ${EXIT.forbidden}; need tar; f=./\${p##*/}; ${before} -L "$f"; exec tar -ch${options}f - "$f"\n`,
    `elif [ -e "$p" ]; then exit ${EXIT.kind}; else reach "$p"; exit ${EXIT.missing}; fi\n`,
  );
}

/**
 * What a tar in the sandbox writes; where it writes nothing, why.
 * @param first what was read of it already; undefined: nothing
 * @throws unless all that it complained of is what it rightly left out.
 */
export async function* tarOutput(
  op: Operation,
  running: RunningScript,
  path: ByteString,
  first: Buffer | undefined,
): AsyncGenerator<Buffer> {
  let chunk = first ?? (await running.read());
  if (chunk === undefined) await op.succeed(running, { path, wanted: WANTED });
  for (; chunk !== undefined; chunk = await running.read()) {
    op.progressed();
    yield chunk;
  }
  const end = await running.ended;
  if (end.code === 0) return;
  const complaints = complaintsOf(end.stderr);
  if (end.code > LAST_CODE_OF_TAR || complaints.length > 0) {
    throw scriptError({ path, wanted: WANTED }, { code: end.code, stderr: complaints.join("\n") });
  }
}
