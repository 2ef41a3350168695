import type { ByteString } from "../base/byte-string.ts";
import type { Operation } from "./operation.ts";
import { smallTarItems } from "./small-tar.ts";
import { restateItems } from "./tar/restate.ts";
import { readTar, type TarItem } from "./tar/tar-reader.ts";
import { archiveScript, tarOutput } from "./tar-output.ts";

/** What a tar says that knows no holes, before it writes anything. */
const UNKNOWN_OPTION = /(unrecognized|invalid|unknown|illegal) option/i;

/**
 * Streams a directory, or one file, as a tar of the standard dialect, whatever
 * the image's tar writes: names are relative to the directory, or the file's
 * own. What changes meanwhile is there as it was read, or left out.
 * @throws `FILE_NOT_FOUND`, `FILE_KIND`, `FILE_PERMISSION` for a file that may not be read, `UNSUPPORTED` without tar
 *   and for large holes that the image's tar does not know.
 */
export function downloadArchive(op: Operation, path: ByteString): AsyncGenerator<Buffer> {
  return restateItems(itemsOf(op, path), "the sandbox's image");
}

async function* itemsOf(op: Operation, path: ByteString): AsyncGenerator<TarItem> {
  const running = await op.start(archiveScript(path, "S"));
  const first = await running.read();
  const knowsHoles = first !== undefined || !UNKNOWN_OPTION.test((await running.ended).stderr);
  yield* knowsHoles ? readTar(tarOutput(op, running, path, first)) : smallTarItems(op, path);
}
