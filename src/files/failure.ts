import { type ByteString, toText } from "../base/byte-string.ts";
import { BerthError } from "../base/errors.ts";
import { EXIT } from "./script.ts";

/** What an operation was about, for the error when it fails. */
export interface Subject {
  readonly path: ByteString;
  /** What the path has to be, as in "a regular file". */
  readonly wanted?: string;
}

/** How a script ended that did not succeed. */
export interface ScriptFailure {
  readonly code: number;
  /** The end of what it wrote to stderr. */
  readonly stderr: string;
}

/** What tools say at the end of a line, in glibc's words and musl's. */
const WORDS = {
  missing: /: (no such file( or directory)?|nonexistent directory|directory nonexistent)$/im,
  forbidden: /: (permission denied|operation not permitted|read-only file system)$/im,
  noSpace: /: (no space left on device|disk quota exceeded|quota exceeded|file too large)$/im,
  busy: /: ((device or )?resource busy)$/im,
  exhausted:
    /(cannot fork|can't fork|resource temporarily unavailable|(cannot allocate|out of) memory|retry: )/i,
};

/** Tools that vanished files make complain, and that go on. */
const VANISHED = /: no such file or directory$/i;

const MAX_WORDS = 300;

/** Turns the failure of a script into what the caller is told. */
export function scriptError({ path, wanted }: Subject, failure: ScriptFailure): BerthError {
  const name = JSON.stringify(toText(path));
  const { code, stderr } = failure;
  const metadata = { path: toText(path) };
  const error = (reason: BerthError["reason"], message: string): BerthError =>
    new BerthError(reason, `${name}: ${message}`, { metadata });
  const forbidden = () =>
    error("FILE_PERMISSION", "the user has no right to do this, or the file system is read-only.");
  switch (code) {
    case EXIT.missing:
      // A directory behind a link may hide what lies in it.
      return WORDS.forbidden.test(stderr)
        ? forbidden()
        : error("FILE_NOT_FOUND", "there is no such file or directory.");
    case EXIT.notDirectory:
      return error("FILE_KIND", "something on the way is not a directory.");
    case EXIT.forbidden:
      return forbidden();
    case EXIT.kind:
      return error("FILE_KIND", `it is not ${wanted ?? "of the kind that this needs"}.`);
    case EXIT.exists:
      return error("FILE_EXISTS", "something is there already.");
    case EXIT.notEmpty:
      return error("DIRECTORY_NOT_EMPTY", "the directory is not empty.");
    case EXIT.beyondEnd:
      return error("OFFSET_OUT_OF_RANGE", "the offset lies beyond the end of the file.");
    case EXIT.intoItself:
      return error("INVALID_ARGUMENT", "a directory cannot be moved into itself.");
    case EXIT.holes:
      return error(
        "UNSUPPORTED",
        `the file ${JSON.stringify(words(stderr.slice(stderr.lastIndexOf("\n") + 1)))} has large holes, and the image's tar would write them in full. Use an image with GNU tar.`,
      );
    case EXIT.noTool:
      return missingTool(stderr.slice(stderr.lastIndexOf("\n") + 1));
  }
  if (WORDS.noSpace.test(stderr)) return error("NO_SPACE", "no space is left for it in the sandbox.");
  if (WORDS.forbidden.test(stderr)) return forbidden();
  if (WORDS.busy.test(stderr)) return error("FILE_KIND", "it is in use as a mount point.");
  if (WORDS.exhausted.test(stderr)) {
    return error("TOO_MANY_OPERATIONS", "the sandbox has reached its bound of processes or memory.");
  }
  if (WORDS.missing.test(stderr)) return error("FILE_NOT_FOUND", "there is no such file or directory.");
  return error("UNSUPPORTED", `it could not be done in the sandbox (exit code ${code}). ${words(stderr)}`);
}

/** Makes the error for a tool that the image lacks. */
export function missingTool(tool: string): BerthError {
  return new BerthError(
    "UNSUPPORTED",
    `The sandbox's image has no ${words(tool)}, which this needs. Use an image that has it.`,
    { metadata: { tool: words(tool) } },
  );
}

/** What a tool said, without its complaints about files that went meanwhile. */
export function withoutVanished(stderr: string): string {
  return stderr
    .split("\n")
    .filter((line) => line !== "" && !VANISHED.test(line))
    .join("\n");
}

/** What a tool of the sandbox said, fit for a message. */
function words(stderr: string): string {
  return stderr
    .replace(/[^\x20-\x7e]+/g, " ")
    .trim()
    .slice(-MAX_WORDS);
}
