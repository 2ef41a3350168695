import path from "node:path";
import { DatabaseSync } from "node:sqlite";
import { readBlocks } from "../../src/processes/stored-blocks.ts";
import { Seal } from "../../src/state/seal.ts";
import { eventually } from "./eventually.ts";

/**
 * Waits until the store of a service has its processes' output so far, as the service leaves it if it is killed.
 * @param stdoutBytes how much each has written
 * @param ended whether their ends, and all their output, must be stored too
 */
export async function untilStored(
  dataDir: string,
  ids: readonly string[],
  stdoutBytes: number,
  { ended = false } = {},
): Promise<void> {
  const seal = Seal.ofFile(path.join(dataDir, "key"));
  const store = new DatabaseSync(path.join(dataDir, "berth.db"), { readOnly: true });
  const find = store.prepare("SELECT facts, ended_at, transcript FROM processes WHERE process_id = ?");
  const isStored = (id: string): boolean => {
    const row = find.get(id);
    if (row === undefined || (ended && row.ended_at === null)) return false;
    const { written } = JSON.parse(seal.openText(row.facts));
    if (!ended) return written.stdout >= stdoutBytes;
    const blocks = readBlocks(seal.open(row.transcript as Uint8Array));
    const stored = blocks.reduce((sum, { length }) => sum + length, 0);
    return stored === written.stdout + written.stderr;
  };
  await eventually(() => ids.every(isStored)).finally(() => store.close());
}
