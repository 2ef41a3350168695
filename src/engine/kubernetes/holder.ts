import { readFile, writeFile } from "node:fs/promises";
import { hostname } from "node:os";
import path from "node:path";
import { randomBase32 } from "../../base/ids.ts";

/** Name of the file in the data directory that contains the holder's id. */
const FILE = "holder";

/**
 * The name under which services with this data directory take leases: the machine's name, and an id that stays with the
 * directory, which only one service uses at a time. So a service that crashed gets its lease back at once.
 */
export async function holderOf(dataDir: string): Promise<string> {
  const file = path.join(dataDir, FILE);
  const id = await readFile(file, "utf8").catch(async (error: NodeJS.ErrnoException) => {
    if (error.code !== "ENOENT") throw error;
    const made = randomBase32(12);
    await writeFile(file, made, { mode: 0o600 });
    return made;
  });
  return `${hostname()}_${id.trim()}`;
}
