import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { newId } from "../../src/base/ids.ts";
import { Store } from "../../src/store.ts";
import { buildProgram } from "../build.ts";
import type { BenchContext, Row } from "../row.ts";
import { quantile } from "../stats.ts";
import { multiply, prepareRecords } from "./lists.ts";

const FEW = 10;
const MANY = 10_000;
const ROUNDS = 5;
const GOAL_MS = 1_000;
const OUTPUT_BYTES = 1000;

/**
 * How long the built service takes to listen with 10,000 ended sandboxes, processes and runs in its database, compared
 * with 10.
 */
export const restart: Row = {
  name: "restart",
  limitSeconds: 300,
  run: async ({ scale, ...context }) => {
    const many = Math.max(FEW, Math.round(MANY * Math.min(1, scale)));
    const roots = mkdtempSync(path.join(tmpdir(), "berth-bench-restart-"));
    try {
      const [few, full] = [FEW, many].map((count) => path.join(roots, String(count)));
      if (few === undefined || full === undefined) throw new Error("there are two");
      await fill(few, FEW, context);
      await fill(full, many, context);
      const values = { full: [] as number[], few: [] as number[] };
      const measure = async (times: number[], dataDir: string): Promise<void> => {
        const begun = performance.now();
        const service = await context.start(["--data-dir", dataDir], true);
        times.push(performance.now() - begun);
        await service.stop();
      };
      context.progress("building");
      await buildProgram();
      for (let round = 0; round < ROUNDS; round++) {
        await measure(values.full, full);
        await measure(values.few, few);
      }
      const [p50, rawP50] = [quantile(values.full, 0.5), quantile(values.few, 0.5)];
      return [
        {
          name: `start with ${many} sandboxes, processes and runs, against ${FEW}`,
          ...{ unit: "ms", p50, rawP50, ratio: rawP50 / p50 },
          goal: `p50 ≤ ${GOAL_MS} ms`,
          reached: p50 <= GOAL_MS,
        },
      ];
    } finally {
      rmSync(roots, { recursive: true, force: true });
    }
  },
};

/** Creates a database with this many of each. */
async function fill(
  dataDir: string,
  count: number,
  { start, progress }: Pick<BenchContext, "start" | "progress">,
): Promise<void> {
  progress(`${count} of each`);
  const service = await start(["--data-dir", dataDir]);
  await prepareRecords(service);
  const sandbox = await service.create();
  await service.exec(sandbox, ["head", "-c", String(OUTPUT_BYTES), "/dev/zero"]);
  await service.remove(sandbox);
  await service.stop();
  multiply(dataDir, count);
  const store = Store.open(dataDir);
  try {
    const [ended] = store.processes.ended();
    const process = ended && store.processes.get(ended.processId);
    if (process === undefined) throw new Error("the service kept no process");
    store.transaction(() => {
      for (let copy = 1; copy < count; copy++) store.processes.put({ ...process, processId: newId("prc") });
    });
  } finally {
    store.close();
  }
}
