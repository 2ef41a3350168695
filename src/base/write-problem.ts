import { stat, utimes } from "node:fs/promises";

/**
 * Why nothing can be written on the disk of a file or directory: `EROFS` or `EIO`. Undefined: it can, or this does not
 * show it. Sets the times that it has: a disk that failed refuses that, while the file's mode and the mount options
 * still permit writing.
 */
export async function writeProblem(place: string): Promise<string | undefined> {
  try {
    const { atime, mtime } = await stat(place);
    await utimes(place, atime, mtime);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === "EROFS" || code === "EIO") return code;
  }
  return undefined;
}
