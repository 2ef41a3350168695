import { BerthError } from "../../base/errors.ts";
import { stayOutOfMounts } from "./mounts.ts";
import type { Tools } from "./tool.ts";
import { forbidden, toolFailure } from "./tool-failure.ts";

/** A walk that a moved directory has cut off is begun again so many times. */
const MAX_TRIES = 5;
/** What du says where the directory that it was in has been moved. It gives no sum then. */
const CUT_OFF =
  /^du: fts_read failed: .*: (No such file or directory|Not a directory|Too many levels of symbolic links)$/m;

/** Bytes that a directory takes on the disk, while sandboxes write to it. Files that vanish meanwhile are left out. */
export async function measureDirectory(
  tools: Tools,
  directory: string,
  signal: AbortSignal | undefined,
): Promise<number> {
  const argv = ["du", "--summarize", ...stayOutOfMounts(directory), "--block-size=1", "."] as const;
  for (let tries = 1; ; tries++) {
    const { stdout, ...end } = await tools.run({ argv, directory, signal });
    if (forbidden(end) !== undefined) throw toolFailure("du", end, "read");
    const bytes = /^(\d+)\t/.exec(stdout)?.[1];
    if (bytes !== undefined) return Number(bytes);
    if (!CUT_OFF.test(end.stderr)) throw toolFailure("du", end, "read");
    if (tries === MAX_TRIES) {
      throw new BerthError(
        "WORKSPACE_BROKEN",
        `The workspace cannot be measured: a sandbox moved its directories each of ${MAX_TRIES} times. Measure it again when that has ended.`,
      );
    }
  }
}
