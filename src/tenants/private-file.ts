import { isUtf8 } from "node:buffer";
import { constants } from "node:fs";
import { open } from "node:fs/promises";
import { quoteIfNeeded } from "../base/shell-quote.ts";
import { MAX_FILE_BYTES, TokenFileError } from "./token-file.ts";

const GROUP_WRITE_OR_OTHERS = 0o027;
const OTHERS_AT_ALL = 0o077;

/** A file's text, and its owner. */
export interface PrivateText {
  readonly text: string;
  readonly uid: number;
  readonly gid: number;
}

/** What to do about a file that is too large, and what to type if it does not exist; by what it holds. */
const ADVICE = {
  tokens: {
    tooLarge: "revoke tokens that nobody uses",
    missing: (path: string) => `berth token create --tenant default --tokens ${path}`,
  },
  secrets: {
    tooLarge: "a directory with one file per secret may hold more",
    missing: (path: string) => `(umask 077; echo 'secrets: {}' >${path})`,
  },
};

/**
 * Reads a file that decides who may call, or with which secrets. Anyone who can write it can grant access, so it must
 * belong to this user or to root, and be closed to others. A group may read root's file, because Kubernetes shares
 * secrets in that way.
 * @throws TokenFileError that says what is wrong and what to type
 */
export async function readPrivateFile(path: string, holds: keyof typeof ADVICE): Promise<PrivateText> {
  // Without O_NONBLOCK, opening a FIFO waits for a writer.
  const file = await open(path, constants.O_RDONLY | constants.O_NONBLOCK).catch((error: unknown) => {
    throw unreadable(path, holds, error);
  });
  try {
    const stat = await file.stat();
    const { uid, gid, mode, size } = stat;
    if (!stat.isFile()) throw new TokenFileError(`${path} is not a file`);
    const own = process.geteuid?.() ?? uid;
    if (uid !== own && uid !== 0) {
      throw new TokenFileError(
        `${path} belongs to the user ${uid}, who could let anybody in, and this is user ${own}`,
        { fix: `sudo chown ${own} ${quoteIfNeeded(path)}` },
      );
    }
    const forbidden = uid === 0 && own !== 0 ? GROUP_WRITE_OR_OTHERS : OTHERS_AT_ALL;
    if ((mode & forbidden) !== 0) {
      const sudo = uid === own ? "" : "sudo ";
      const octal = (mode & 0o777).toString(8).padStart(4, "0");
      throw new TokenFileError(`${path} is open to other users (mode ${octal})`, {
        fix: `${sudo}chmod 600 ${quoteIfNeeded(path)}`,
      });
    }
    if (size > MAX_FILE_BYTES) throw tooLarge(path, holds);
    // It may grow while it is read.
    const { buffer, bytesRead } = await file.read(Buffer.alloc(MAX_FILE_BYTES + 1), 0, MAX_FILE_BYTES + 1, 0);
    if (bytesRead > MAX_FILE_BYTES) throw tooLarge(path, holds);
    const bytes = buffer.subarray(0, bytesRead);
    // Otherwise names and values would differ from those in the file.
    if (!isUtf8(bytes)) throw new TokenFileError(`${path} is not UTF-8 text`);
    // Without the byte order mark that some editors of Windows write.
    return { text: new TextDecoder().decode(bytes), uid, gid };
  } catch (error) {
    throw error instanceof TokenFileError ? error : unreadable(path, holds, error);
  } finally {
    await file.close();
  }
}

function tooLarge(path: string, holds: keyof typeof ADVICE): TokenFileError {
  return new TokenFileError(`${path} is larger than ${MAX_FILE_BYTES >> 20} MiB; ${ADVICE[holds].tooLarge}`);
}

/** The error for a file that cannot be opened or read. */
export function unreadable(path: string, holds: keyof typeof ADVICE, cause: unknown): TokenFileError {
  const { code } = cause as NodeJS.ErrnoException;
  const quoted = quoteIfNeeded(path);
  switch (code) {
    case "ENOENT":
      return new TokenFileError(`${path} does not exist`, {
        fix: ADVICE[holds].missing(quoted),
        cause,
      });
    case "EACCES":
      return new TokenFileError(`this user may not read ${path}`, {
        fix: `sudo chown ${process.geteuid?.()} ${quoted}`,
        cause,
      });
    default:
      return new TokenFileError(`${path} cannot be read (${code ?? "unknown error"})`, { cause });
  }
}
