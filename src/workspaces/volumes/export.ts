import type { ByteString } from "../../base/byte-string.ts";
import type { OpenVolume } from "../../engine/port.ts";
import { script } from "../../files/script.ts";
import { complaintsOf, isHarmless, LAST_CODE_OF_TAR, restateTar } from "../../files/tar/restate.ts";
import { assertKnowsHoles, volumeFailure } from "./errors.ts";
import { VolumeScript } from "./script.ts";

/** Streams a workspace that sandboxes write to as a tar of the standard dialect, without what `isHidden` accepts. */
export async function* exportVolume(
  volume: OpenVolume,
  tree: string,
  isHidden: (name: ByteString) => boolean,
  signal: AbortSignal,
): AsyncGenerator<Buffer> {
  yield* restateTar(archive(volume, tree, signal), { whose: "the server's default image", isHidden });
}

async function* archive(volume: OpenVolume, tree: string, signal: AbortSignal): AsyncGenerator<Buffer> {
  const text = script(
    // What no sandbox has mounted yet holds nothing.
    `need tar; cd ${volume.path}/${tree} 2>/dev/null || { mkdir /tmp/empty; cd /tmp/empty; } || exit\n`,
    `exec tar -cSf - .\n`,
  );
  const running = await VolumeScript.start(volume, text, { signal, isNoise: isHarmless });
  try {
    for (let chunk = await running.read(); chunk !== undefined; chunk = await running.read()) yield chunk;
    const end = await running.finish();
    assertKnowsHoles(end.stderr);
    const complaints = complaintsOf(end.stderr);
    if (end.code > LAST_CODE_OF_TAR || (end.code !== 0 && complaints.length > 0))
      throw volumeFailure({ code: end.code, stderr: complaints.join("\n") || end.stderr }, "read");
  } finally {
    running.close();
  }
}
