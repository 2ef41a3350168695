import { createHash, randomBytes } from "node:crypto";

const PREFIX = ".berth-";
const NAME = /^\.berth-([0-9a-f]{8})([0-9a-f]{16})([0-9a-f]{16})$/;

/**
 * Names for what stands in a directory of a sandbox until it takes its place.
 * Nobody else has them, nobody can guess them, and each says which service made
 * it, and in which of its lives: `.berth-`, the life, random digits and a
 * check that only a name of this instance passes.
 */
export class TemporaryNames {
  readonly #instance: string;
  readonly #life = randomBytes(4).toString("hex");

  constructor(instance: string) {
    this.#instance = instance;
  }

  next(): string {
    const stem = this.#life + randomBytes(8).toString("hex");
    return `${PREFIX}${stem}${this.#checkOf(stem)}`;
  }

  /** Whether an earlier life of this service made a name, so that nobody works under it any more. */
  isLeftBehind(name: string): boolean {
    const [, life = "", random = "", check] = NAME.exec(name) ?? [];
    return life !== this.#life && check === this.#checkOf(life + random);
  }

  #checkOf(stem: string): string {
    return createHash("sha256").update(`${this.#instance} ${stem}`).digest("hex").slice(0, 16);
  }
}
