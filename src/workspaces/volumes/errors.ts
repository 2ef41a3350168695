import { BerthError } from "../../base/errors.ts";
import { EXIT, type ScriptFailure, scriptError } from "../../files/script.ts";

const MAX_WORDS = 300;
/** The error of a tar that does not support sparse files. */
const UNKNOWN_OPTION = /(unrecognized|invalid|unknown|illegal) option/i;
const NO_SPACE = /: (no space left on device|disk quota exceeded|file too large)$/im;

/** The error for a script that failed on the files of a workspace. */
export function volumeFailure({ code, stderr }: ScriptFailure, done: "read" | "imported"): BerthError {
  if (NO_SPACE.test(stderr)) {
    return new BerthError(
      "NO_SPACE",
      "The workspace's volume is full. Delete files in a sandbox that mounts it, or clean it up with force.",
    );
  }
  if (code === EXIT.noTool) {
    const tool = stderr.slice(stderr.lastIndexOf("\n") + 1).slice(0, MAX_WORDS);
    return new BerthError(
      "UNSUPPORTED",
      `The server's default image has no ${tool}, which work on workspaces needs. Ask the operator for an image that has it.`,
      { metadata: { tool } },
    );
  }
  if (code === EXIT.kind) {
    const entry = stderr.slice(stderr.lastIndexOf("\n") + 1);
    return new BerthError(
      "FILE_KIND",
      `Nothing was imported: the archive's entry ${JSON.stringify(entry)} would replace something of another kind, or go through a link.`,
      { metadata: { entry } },
    );
  }
  const cause = scriptError({ path: "." }, { code, stderr });
  const words = stderr.trim().split("\n").at(-1)?.slice(0, MAX_WORDS) ?? "";
  return new BerthError("WORKSPACE_BROKEN", `Not all files of the workspace can be ${done}: ${words}`, {
    cause,
  });
}

/** @throws `UNSUPPORTED` if tar's messages say that it does not know an option, such as the one for sparse files. */
export function assertKnowsOptions(stderr: string, lack = "knows no holes in files"): void {
  if (!UNKNOWN_OPTION.test(stderr)) return;
  throw new BerthError(
    "UNSUPPORTED",
    `The tar of the server's default image ${lack}. Ask the operator for an image with GNU tar.`,
    { metadata: { tool: "tar" } },
  );
}
