import { complaintsOf, LAST_CODE_OF_TAR, restateTar } from "../../files/tar/restate.ts";
import { stayOutOfMounts } from "./mounts.ts";
import type { Tools } from "./tool.ts";
import { toolFailure } from "./tool-failure.ts";

/** Streams a directory that sandboxes write to as a tar of the standard dialect. Follows no link, opens no FIFO. */
export async function* exportDirectory(
  tools: Tools,
  directory: string,
  signal: AbortSignal,
): AsyncGenerator<Buffer> {
  yield* restateTar(archive(tools, directory, signal), "the server");
}

async function* archive(tools: Tools, directory: string, signal: AbortSignal): AsyncGenerator<Buffer> {
  const argv = [
    "tar",
    "--create",
    "--file=-",
    "--format=gnu",
    "--sparse",
    "--numeric-owner",
    ...stayOutOfMounts(directory),
    ".",
  ] as const;
  const end = yield* tools.stream({ argv, directory, signal });
  const complaints = complaintsOf(end.stderr);
  const isWhole = end.code === 0 || (end.code !== undefined && end.code <= LAST_CODE_OF_TAR);
  if (!isWhole || (end.code !== 0 && complaints.length > 0)) throw toolFailure("tar", end, "read");
}
