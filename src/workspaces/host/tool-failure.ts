import { BerthError } from "../../base/errors.ts";
import type { ToolEnd } from "./tool.ts";

/** What tools say of files that they may not touch. */
const FORBIDDEN =
  /^\w+: (.*(?:Permission denied|Operation not permitted|Device or resource busy|different device))$/m;
const MAX_SAID = 300;

/** What a tool said of the first file that it may not touch; undefined: it said nothing of the kind. */
export function forbidden({ stderr }: Pick<ToolEnd, "stderr">): string | undefined {
  return FORBIDDEN.exec(stderr)?.[1]?.slice(0, MAX_SAID);
}

/** Makes the error for a tool that could not do what it was to do with the files of a workspace. */
export function toolFailure(tool: string, end: ToolEnd, done: "deleted" | "read"): Error {
  const cause = new Error(`${tool} ended with ${end.code}: ${end.stderr.slice(-1000)}`);
  const complaint = forbidden(end);
  if (complaint === undefined) return cause;
  return new BerthError(
    "WORKSPACE_BROKEN",
    `Not all files of the workspace can be ${done} (${complaint}): they belong to somebody else than the server's user, or something is mounted on them. The operator has to mend that, or to run the server as root.`,
    { cause },
  );
}
