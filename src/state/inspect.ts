import { closeSync, existsSync, openSync, readSync, statSync } from "node:fs";
import { DatabaseSync } from "node:sqlite";
import { BerthError } from "../base/errors.ts";
import { unusable } from "./data-dir.ts";
import { isCorrupt } from "./errors.ts";
import { APPLICATION_ID, MIGRATIONS } from "./migrations.ts";

const HEADER_BYTES = 100;
const MAGIC = "SQLite format 3\0";
/** Places in a file's header, where its numbers are big-endian. */
const AT = { userVersion: 60, applicationId: 68 };

/**
 * Looks at a database before anything is done to it.
 * @throws `INVALID_ARGUMENT` where it is broken, something else's or a newer version's. The file is as it was then.
 */
export function inspectFile(file: string): void {
  if (!existsSync(file) || statSync(file).size === 0) return;
  const header = readHeader(file);
  if (header.length < HEADER_BYTES || header.toString("latin1", 0, MAGIC.length) !== MAGIC) {
    throw refused(`${file} is not a database, or a broken one.`);
  }
  const applicationId = header.readUInt32BE(AT.applicationId);
  // 0: the service ended before the first migration did.
  if (applicationId !== APPLICATION_ID && applicationId !== 0) {
    throw refused(`${file} is the database of another program.`);
  }
  const version = header.readUInt32BE(AT.userVersion);
  if (version > MIGRATIONS.length) {
    throw refused(
      `${file} was written by a newer version of Berth (schema ${version}; this one knows ${MIGRATIONS.length}). Run that version, or one after it.`,
    );
  }
  checkPages(file);
}

function readHeader(file: string): Buffer {
  const header = Buffer.alloc(HEADER_BYTES);
  const descriptor = openSync(file, "r");
  try {
    return header.subarray(0, readSync(descriptor, header, 0, HEADER_BYTES, 0));
  } finally {
    closeSync(descriptor);
  }
}

/** Reads every page. A connection that may not write repairs nothing, and leaves the file to whoever is to look at it. */
function checkPages(file: string): void {
  let database: DatabaseSync | undefined;
  try {
    database = new DatabaseSync(file, { readOnly: true });
    const [first] = database.prepare("PRAGMA quick_check(1)").all();
    if (first?.quick_check !== "ok") throw broken(file, new Error(String(first?.quick_check)));
  } catch (error) {
    if (isCorrupt(error)) throw broken(file, error);
    throw error instanceof BerthError ? error : unusable(file, error);
  } finally {
    database?.close();
  }
}

function broken(file: string, cause: unknown): BerthError {
  return refused(
    `${file} is damaged. Bring it back from a backup, or move it away to begin anew; with the --instance it had, sandboxes that are left are removed then.`,
    cause,
  );
}

function refused(message: string, cause?: unknown): BerthError {
  return new BerthError("INVALID_ARGUMENT", `--data-dir: ${message}`, {
    cause,
    metadata: { field: "data-dir" },
  });
}
