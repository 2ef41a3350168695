import { rename } from "node:fs/promises";
import path from "node:path";
import { codeOf } from "./disk-errors.ts";
import { stayOutOfMounts } from "./mounts.ts";
import { PinnedDirectory } from "./pinned.ts";
import type { Tools } from "./tool.ts";
import { toolFailure } from "./tool-failure.ts";

/** What it looks like that there is no directory. */
const NO_DIRECTORY = new Set(["ENOENT", "ENOTDIR", "ELOOP"]);

/** Removes trees that sandboxes made, however deep and many, and whatever they hold. */
export class Trash {
  readonly #tools: Tools;

  constructor(tools: Tools) {
    this.#tools = tools;
  }

  /** Moves a thing out of everybody's sight, then removes it. Idempotent; goes on with what is there already. */
  async discard(victim: string, place: string): Promise<void> {
    await this.purge(place);
    await openToOwner(victim);
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
    const end = await this.#tools.run({
      argv: ["rm", "--recursive", "--force", ...stayOutOfMounts(victim), "--", name],
      directory: path.dirname(victim),
    });
    if (end.code !== 0) throw toolFailure("rm", end, "deleted");
  }
}

/** Whoever is not root could not move a directory that a sandbox has closed. */
export async function openToOwner(place: string): Promise<void> {
  try {
    await using directory = await PinnedDirectory.open(place);
    await directory.openToOwner();
  } catch (error) {
    if (!NO_DIRECTORY.has(codeOf(error) ?? "")) throw error;
  }
}
