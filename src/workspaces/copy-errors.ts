import { BerthError } from "../base/errors.ts";

/** What an unpacking tar prints about devices, which copies leave out, and as its last line. */
const LEFT_OUT = /Cannot mknod: Operation not permitted$|Exiting with failure status/;
const NO_SPACE = /: (No space left on device|Disk quota exceeded|File too large)$/im;
const TOO_LONG = /: File name too long$/im;

/** Whether a message of an unpacking tar is about something that copies leave out. */
export function isLeftOut(line: string): boolean {
  return LEFT_OUT.test(line);
}

/** The error for a copy that could not be written. Undefined: tar's messages do not say why. */
export function copyFailure(complaints: string): BerthError | undefined {
  if (NO_SPACE.test(complaints)) {
    return new BerthError(
      "NO_SPACE",
      "Nothing was copied: the new workspace's quota, or the disk that holds workspaces, leaves no room for it.",
    );
  }
  if (TOO_LONG.test(complaints)) {
    return new BerthError(
      "UNSUPPORTED",
      "Nothing was copied: the workspace holds a path of more than 4095 bytes. Move its directories up, or export it.",
    );
  }
  return undefined;
}
