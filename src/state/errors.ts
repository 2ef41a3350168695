import { BerthError } from "../base/errors.ts";

/** Result codes of SQLite; the lower byte of an extended one is its primary. */
const CODE = { busy: 5, ioError: 10, corrupt: 11, full: 13, cannotOpen: 14, readOnly: 8, notADatabase: 26 };

/** The primary result code of an error that SQLite raised, else undefined. */
export function sqliteCode(error: unknown): number | undefined {
  const code = (error as { readonly errcode?: unknown } | null)?.errcode;
  return typeof code === "number" ? code & 0xff : undefined;
}

/** Whether another connection holds what was asked for. */
export function isBusy(error: unknown): boolean {
  return sqliteCode(error) === CODE.busy;
}

/** Whether a file is no database, or a broken one. */
export function isCorrupt(error: unknown): boolean {
  const code = sqliteCode(error);
  return code === CODE.corrupt || code === CODE.notADatabase;
}

/** Turns what SQLite raises into a `BerthError` for the caller whose change could not be kept. Other errors stay. */
export function translateError(error: unknown): unknown {
  switch (sqliteCode(error)) {
    case undefined:
      return error;
    case CODE.full:
      return new BerthError(
        "NO_SPACE",
        "The disk of the server's data directory is full. Nothing was changed; the operator has to make room there.",
        { cause: error },
      );
    case CODE.ioError:
    case CODE.readOnly:
    case CODE.cannotOpen:
      return new BerthError(
        "NO_SPACE",
        "The server's data directory cannot be written. Nothing was changed; the operator has to look at its disk.",
        { cause: error },
      );
    default:
      return new BerthError("INTERNAL", "The server's database failed; the server's log has the details.", {
        cause: error,
      });
  }
}
