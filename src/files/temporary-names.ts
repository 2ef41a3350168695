import { createHash, randomBytes } from "node:crypto";

/** The prefix of every name. */
const TEMPORARY_PREFIX = ".berth-";
/**
 * The service's own paths are shorter than this. A path from a tar or a sandbox's tool may be megabytes of such names.
 */
const MAX_PATH_BYTES = 16 * 1024;
const NAME = /^\.berth-([0-9a-f]{8})([0-9a-f]{16})([0-9a-f]{16})$/;

/**
 * Names for files and directories in a sandbox until they are moved into place. They are unique, cannot be guessed, and
 * show which run of which service created them: `.berth-`, the run, random digits, and a checksum that only names of
 * this instance match.
 */
export class TemporaryNames {
  readonly #instance: string;
  readonly #run = randomBytes(4).toString("hex");

  constructor(instance: string) {
    this.#instance = instance;
  }

  next(): string {
    const stem = this.#run + randomBytes(8).toString("hex");
    return `${TEMPORARY_PREFIX}${stem}${this.#checksum(stem)}`;
  }

  /** Whether this service generated a name, in this run or an earlier one. */
  isOwn(name: string): boolean {
    const [, run = "", random = "", checksum] = NAME.exec(name) ?? [];
    return checksum !== undefined && checksum === this.#checksum(run + random);
  }

  /** Whether a path leads to something with a temporary name, or below it. */
  hides(path: string): boolean {
    return (
      path.length <= MAX_PATH_BYTES &&
      path.includes(TEMPORARY_PREFIX) &&
      path.split("/").some((name) => this.isOwn(name))
    );
  }

  /** Whether an earlier run of this service generated a name, so that it is no longer in use. */
  isLeftBehind(name: string): boolean {
    return this.isOwn(name) && !name.startsWith(`${TEMPORARY_PREFIX}${this.#run}`);
  }

  #checksum(stem: string): string {
    return createHash("sha256").update(`${this.#instance} ${stem}`).digest("hex").slice(0, 16);
  }
}
