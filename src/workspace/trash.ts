import { rename } from "node:fs/promises";
import path from "node:path";
import { codeOf } from "./disk-errors.ts";
import { stayOutOfMounts } from "./mounts.ts";
import type { Tools } from "./tool.ts";

/** Removes trees that sandboxes made, however deep and many, and whatever they hold. */
export class Trash {
  readonly #tools: Tools;

  constructor(tools: Tools) {
    this.#tools = tools;
  }

  /** Moves a thing out of everybody's sight, then removes it. Idempotent; goes on with what is there already. */
  async discard(victim: string, place: string): Promise<void> {
    await this.purge(place);
    try {
      await rename(victim, place);
    } catch (error) {
      if (codeOf(error) === "ENOENT") return;
      throw error;
    }
    await this.purge(place);
  }

  /** Removes what is at a path in a directory that no sandbox can write to. Idempotent. */
  async purge(victim: string): Promise<void> {
    const name = `./${path.basename(victim)}`;
    const { code, stderr } = await this.#tools.run({
      argv: ["rm", "--recursive", "--force", ...stayOutOfMounts(victim), "--", name],
      directory: path.dirname(victim),
    });
    if (code !== 0) throw new Error(`rm ended with ${code}: ${stderr.slice(-1000)}`);
  }
}
