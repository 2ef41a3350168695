import type { ByteString } from "./byte-string.ts";
import { scriptError } from "./failure.ts";
import type { Operation } from "./operation.ts";
import type { RunningScript } from "./running-script.ts";
import { EXIT, script } from "./script.ts";
import { assign } from "./shell-words.ts";
import { restateTar } from "./tar/restate.ts";
import { complaintsOf, LAST_CODE_OF_TAR } from "./tar/tar-complaints.ts";

const WANTED = "a directory or a regular file";

/**
 * Streams a directory, or one file, as a tar of the standard dialect, whatever
 * the image's tar writes: names are relative to the directory, or the file's own.
 * @throws `FILE_NOT_FOUND`, `FILE_KIND`, `UNSUPPORTED` without tar, `FILE_PERMISSION` for a file that may not be read.
 */
export async function* downloadArchive(op: Operation, path: ByteString): AsyncGenerator<Buffer> {
  const running = await op.start(
    script(
      assign("p", path),
      `if [ -d "$p" ]; then enter "$p"; need tar; exec tar -cf - .\n`,
      `elif [ -f "$p" ]; then [ -r "$p" ] || exit ${EXIT.forbidden}\n`,
      `cd "\${p%/*}/" || exit ${EXIT.forbidden}; need tar; exec tar -chf - "./\${p##*/}"\n`,
      `elif [ -e "$p" ]; then exit ${EXIT.kind}; else reach "$p"; exit ${EXIT.missing}; fi\n`,
    ),
  );
  yield* restateTar(outputOf(op, running, path), "the sandbox's image");
}

/** What the tar writes; where it writes nothing, why. */
async function* outputOf(op: Operation, running: RunningScript, path: ByteString): AsyncGenerator<Buffer> {
  let chunk = await running.read();
  if (chunk === undefined) await op.succeed(running, { path, wanted: WANTED });
  for (; chunk !== undefined; chunk = await running.read()) {
    op.progressed();
    yield chunk;
  }
  await finish(running, path);
}

/** Fails unless all that the tar complained of is what it rightly left out. */
async function finish(running: RunningScript, path: ByteString): Promise<void> {
  const end = await running.ended;
  if (end.code === 0) return;
  const complaints = complaintsOf(end.stderr);
  if (end.code > LAST_CODE_OF_TAR || complaints.length > 0) {
    throw scriptError({ path, wanted: WANTED }, { code: end.code, stderr: complaints.join("\n") });
  }
}
