import { createHash, randomBytes } from "node:crypto";

const PREFIX = ".berth-";
const NAME = /^\.berth-([0-9a-f]{8})([0-9a-f]{16})([0-9a-f]{16})$/;

/**
 * Names for files and directories of a sandbox until they are moved into place.
 * They are unique, cannot be guessed, and show which run of which service made
 * them: `.berth-`, the run, random digits and a checksum that only names of this
 * instance match.
 */
export class TemporaryNames {
  readonly #instance: string;
  readonly #run = randomBytes(4).toString("hex");

  constructor(instance: string) {
    this.#instance = instance;
  }

  next(): string {
    const stem = this.#run + randomBytes(8).toString("hex");
    return `${PREFIX}${stem}${this.#checksum(stem)}`;
  }

  /** Whether an earlier run of this service made a name, so that nobody uses it any more. */
  isLeftBehind(name: string): boolean {
    const [, run = "", random = "", checksum] = NAME.exec(name) ?? [];
    return run !== this.#run && checksum === this.#checksum(run + random);
  }

  #checksum(stem: string): string {
    return createHash("sha256").update(`${this.#instance} ${stem}`).digest("hex").slice(0, 16);
  }
}
