import { closeSync, constants, fchmodSync, fstatSync, opendirSync, openSync, statSync } from "node:fs";
import path from "node:path";
import type { Finding } from "./diagnosis.ts";
import { BerthError } from "./errors.ts";
import { makeDirectories } from "./make-directories.ts";
import { quoteIfNeeded } from "./shell-quote.ts";

/**
 * A directory that only the service's user may enter. Sandboxes write below it, also as root, and the host's users must
 * not be able to execute their set-user-id files.
 */
export interface PrivateDirectory {
  readonly path: string;
  /** The option that names it, without dashes. */
  readonly option: string;
  /**
   * Whether Berth creates an entry with this name there. A directory that contains anything else is not closed
   * automatically.
   */
  readonly isOwn: (name: string) => boolean;
}

/** Why a directory is open to other users, and Berth does not close it. */
export interface Exposure {
  readonly found: string;
  /** What to do about it. */
  readonly fix: string;
}

const OTHERS = 0o077;
const STICKY = 0o1000;
const PRIVATE_MODE = 0o700;

/**
 * Creates the directory if it is missing. Closes it to other users if it certainly belongs to the service: its owner is
 * the service's user, and it contains nothing else.
 * @throws `INVALID_ARGUMENT`, with what to do, if others may still enter it; errors of the file system.
 */
export function makePrivate(directory: PrivateDirectory): void {
  makeDirectories(directory.path, PRIVATE_MODE);
  const fd = openSync(directory.path, constants.O_RDONLY | constants.O_DIRECTORY);
  try {
    const exposure = exposureOf(directory, fd) ?? close(directory, fd);
    if (exposure !== undefined) throw exposed(directory.option, exposure);
  } finally {
    closeSync(fd);
  }
}

/** Checks whether {@link makePrivate} would refuse the directory. Changes nothing. */
export function exposureAt(directory: PrivateDirectory): Exposure | undefined {
  let fd: number;
  try {
    fd = openSync(directory.path, constants.O_RDONLY | constants.O_DIRECTORY);
  } catch {
    // It is missing and will be created, or there is a problem that is not about exposure.
    return undefined;
  }
  try {
    return exposureOf(directory, fd);
  } finally {
    closeSync(fd);
  }
}

/** An exposure as `berth doctor` reports it. */
export function exposureFindings(option: string, exposure: Exposure | undefined): Finding[] {
  return exposure === undefined ? [] : [{ subject: `--${option}`, status: "missing", ...exposure }];
}

/** The error for a directory that an option names. */
export function exposed(option: string, { found, fix }: Exposure): BerthError {
  return new BerthError("INVALID_ARGUMENT", `--${option}: ${found}. ${fix}`, {
    metadata: { field: option },
  });
}

/**
 * Whether a directory above this one is accessible only to root and this user. `place` must be a real path. Those that
 * are missing are created closed.
 */
export function isBehindPrivate(place: string): boolean {
  for (let above = place; above !== path.dirname(above); ) {
    above = path.dirname(above);
    const stats = statSync(above, { throwIfNoEntry: false });
    if (stats === undefined) return true;
    const { uid, mode } = stats;
    if ((mode & OTHERS) === 0 && (uid === 0 || uid === process.geteuid?.())) return true;
  }
  return false;
}

/** Why a directory cannot be closed; undefined if it is closed or can be. */
function exposureOf({ path: place, option, isOwn }: PrivateDirectory, fd: number): Exposure | undefined {
  const { uid, mode } = fstatSync(fd);
  const own = process.geteuid?.();
  const another = `Name a directory of Berth's own with --${option}`;
  const isEverybodys = isForEverybody(place, mode);
  if (own !== undefined && uid !== own) {
    const found = `${place} belongs to the user ${uid}, who could reach what sandboxes leave there, and the service is user ${own}`;
    if (isEverybodys || foreignEntry(`/proc/self/fd/${fd}`, isOwn) !== undefined)
      return { found, fix: `${another}.` };
    const quoted = quoteIfNeeded(place);
    return { found, fix: `${another}, or type: sudo chown ${own} ${quoted} && sudo chmod 700 ${quoted}` };
  }
  if ((mode & OTHERS) === 0) return undefined;
  const foreign = foreignEntry(`/proc/self/fd/${fd}`, isOwn);
  if (foreign === undefined) return undefined;
  const found = `other users may enter ${place} and reach what sandboxes leave there; it holds ${JSON.stringify(foreign)}, which is not Berth's, so it is not closed unasked`;
  // Directories like /tmp are for all users.
  if (isEverybodys) return { found, fix: `${another}.` };
  return { found, fix: `${another}, or type: ${closing(place)}` };
}

/** Directories that the system's programs enter, and those of its users and packages, but not Berth's default. */
const OF_SYSTEM =
  /^\/(?:[^/]*|(?:bin|boot|dev|etc|lib\w*|proc|sbin|sys|usr)\/.*|(?:home|run|var)\/[^/]+|var\/(?:cache|lib|log|spool)\/(?!berth$)[^/]+)$/;

/** Whether a machine breaks when the directory is closed: /etc, /var/lib or /tmp. Nobody is asked to close it. */
export function isForEverybody(place: string, mode: number): boolean {
  return (mode & STICKY) !== 0 || OF_SYSTEM.test(path.resolve(place));
}

/** Closes a directory that other users may enter; returns why that failed. */
function close({ path: place, option }: PrivateDirectory, fd: number): Exposure | undefined {
  if ((fstatSync(fd).mode & OTHERS) === 0) return undefined;
  let problem = "its file system keeps no modes";
  try {
    fchmodSync(fd, PRIVATE_MODE);
    if ((fstatSync(fd).mode & OTHERS) === 0) return undefined;
  } catch (error) {
    problem = (error as NodeJS.ErrnoException).code ?? String(error);
  }
  return {
    found: `other users may enter ${place} and reach what sandboxes leave there, and it could not be closed (${problem})`,
    fix: `Name another with --${option}, or type: ${closing(place)}`,
  };
}

/** Finds an entry of a directory that is not Berth's. Stops at the first one. */
export function foreignEntry(place: string, isOwn: (name: string) => boolean): string | undefined {
  const directory = opendirSync(place);
  try {
    for (let entry = directory.readSync(); entry !== null; entry = directory.readSync()) {
      if (!isOwn(entry.name) && entry.name !== "lost+found") return entry.name;
    }
    return undefined;
  } finally {
    directory.closeSync();
  }
}

function closing(place: string): string {
  return `${process.geteuid?.() === 0 ? "sudo " : ""}chmod 700 ${quoteIfNeeded(place)}`;
}
