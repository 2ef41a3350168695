import { setTimeout as sleep } from "node:timers/promises";
import type { BenchContext, Figure, Row } from "../row.ts";
import { perSecond, quantile } from "../stats.ts";

const TRUE = ["true"];
const AT_ONCE = 16;
/** Berth and raw Docker alternate. */
const TURNS = 3;

/** How many commands run per second, with many at once. */
export const execThroughput: Row = {
  name: "throughput",
  limitSeconds: 480,
  run: async (context) => [await throughput(context, 1), await throughput(context, AT_ONCE)],
};

async function throughput(context: BenchContext, sandboxes: number): Promise<Figure> {
  const { start, raw, scale, progress } = context;
  const service = await start();
  const ids: string[] = [];
  const containers: Awaited<ReturnType<typeof raw.start>>[] = [];
  for (let i = 0; i < sandboxes; i++) {
    ids.push(await service.create());
    containers.push(await raw.start());
  }
  const ms = Math.max(1000, 4000 * scale);
  const exec = (worker: number) => service.exec(ids[worker % sandboxes] ?? "", TRUE);
  await perSecond(AT_ONCE, 1000, exec);
  // The warm-up has requested lanes that are still opening.
  await sleep(1000);
  const rates = { berth: [] as number[], raw: [] as number[] };
  for (let turn = 1; turn <= TURNS; turn++) {
    rates.berth.push(await perSecond(AT_ONCE, ms, exec));
    rates.raw.push(
      await perSecond(AT_ONCE, ms, (worker) => {
        const container = containers[worker % sandboxes];
        return container ? raw.exec(container, TRUE) : Promise.resolve();
      }),
    );
    progress(`turn ${turn} of ${TURNS} in ${sandboxes}`);
  }
  await service.stop();
  await raw.removeAll();
  const p50 = quantile(rates.berth, 0.5);
  const rawP50 = quantile(rates.raw, 0.5);
  return {
    name: `execs, ${AT_ONCE} at once in ${sandboxes === 1 ? "one sandbox" : `${sandboxes} sandboxes`}`,
    unit: "per second",
    p50,
    rawP50,
    ratio: p50 / rawP50,
    goal: "≥ 600/s, ≥ 20 × raw",
    reached: p50 >= 600 && p50 / rawP50 >= 20,
  };
}
