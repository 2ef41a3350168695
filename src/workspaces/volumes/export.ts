import type { ByteString } from "../../base/byte-string.ts";
import type { OpenVolume } from "../../engine/port.ts";
import { script } from "../../files/script.ts";
import { complaintsOf, isHarmless, LAST_CODE_OF_TAR, restateTar } from "../../files/tar/restate.ts";
import { assertKnowsOptions, VolumeScript, volumeFailure } from "./script.ts";

/** Streams a workspace that sandboxes write to as a standard tar, without entries that `isHidden` accepts. */
export async function* exportVolume(
  volume: OpenVolume,
  tree: string,
  isHidden: (name: ByteString) => boolean,
  signal: AbortSignal,
): AsyncGenerator<Buffer> {
  yield* restateTar(archiveVolume(volume, tree, signal), {
    whose: "the server's default image",
    isHidden,
    importable: true,
  });
}

/** Streams a workspace that sandboxes write to as the image's tar archives it. */
export async function* archiveVolume(
  volume: OpenVolume,
  tree: string,
  signal: AbortSignal,
  options: readonly string[] = [],
): AsyncGenerator<Buffer> {
  const text = script(
    // A volume that no sandbox ever mounted is empty.
    `need tar; cd ${volume.path}/${tree} 2>/dev/null || { mkdir /tmp/empty; cd /tmp/empty; } || exit\n`,
    `exec tar ${options.join(" ")} -cSf - .\n`,
  );
  const running = await VolumeScript.start(volume, text, { signal, isNoise: isHarmless });
  try {
    for (let chunk = await running.read(); chunk !== undefined; chunk = await running.read()) yield chunk;
    const end = await running.finish();
    assertKnowsOptions(end.stderr, options.length > 0 ? "cannot sort what it packs" : undefined);
    const complaints = complaintsOf(end.stderr);
    if (end.code > LAST_CODE_OF_TAR || (end.code !== 0 && complaints.length > 0))
      throw volumeFailure({ code: end.code, stderr: complaints.join("\n") || end.stderr }, "read");
  } finally {
    running.close();
  }
}
