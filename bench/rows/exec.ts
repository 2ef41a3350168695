import { setTimeout as sleep } from "node:timers/promises";
import type { BenchContext, Figure, Row } from "../row.ts";
import { inTurn, perSecond, quantile, timed } from "../stats.ts";

const TRUE = ["true"];
const AT_ONCE = 16;
const MB = 1_000_000;

/** One command after another, in a lane and beside the lanes, against docker exec and inspect. */
export const execLatency: Row = {
  name: "exec",
  run: async ({ service, raw, scale }) => {
    const id = await service.create();
    const container = await raw.start();
    for (let i = 0; i < 200; i++) await service.exec(id, TRUE);
    const lane = await inTurn(
      Math.max(20, 100 * scale),
      () => service.exec(id, TRUE),
      () => raw.exec(container, TRUE),
    );
    // The lanes' own figure needs more rounds for a p99 than raw Docker has patience for.
    for (let i = 0; i < 900 * scale; i++) lane.berth.push(await timed(() => service.exec(id, TRUE)));
    const plain = await inTurn(
      Math.max(10, 40 * scale),
      () => service.exec(id, TRUE, "0:0"),
      () => raw.exec(container, TRUE),
    );
    await service.remove(id);
    await raw.removeAll();
    const p50 = quantile(lane.berth, 0.5);
    const p99 = quantile(lane.berth, 0.99);
    const rawP50 = quantile(lane.raw, 0.5);
    const plainP50 = quantile(plain.berth, 0.5);
    const plainRaw = quantile(plain.raw, 0.5);
    return [
      {
        name: "Exec of true, to exited",
        unit: "ms",
        p50,
        p99,
        rawP50,
        ratio: rawP50 / p50,
        goal: "p50 ≤ 2.5 ms, p99 ≤ 12 ms, ≥ 15 × raw",
        reached: p50 <= 2.5 && p99 <= 12 && rawP50 / p50 >= 15,
        values: lane,
      },
      {
        name: "Exec of true, no lane",
        unit: "ms",
        p50: plainP50,
        p99: quantile(plain.berth, 0.99),
        rawP50: plainRaw,
        ratio: plainRaw / plainP50,
        goal: "for comparison",
        reached: true,
        values: plain,
      },
    ];
  },
};

/** Large output through one exec, against the stream of a docker exec. */
export const execOutput: Row = {
  name: "output",
  run: async ({ service, raw, scale }) => {
    const id = await service.create();
    const container = await raw.start();
    const bytes = Math.round(300 * MB * Math.max(scale, 0.2));
    const zeros = ["head", "-c", String(bytes), "/dev/zero"];
    await service.exec(id, zeros);
    const sample = await inTurn(
      5,
      () => service.exec(id, zeros),
      () => raw.exec(container, zeros),
    );
    await service.remove(id);
    await raw.removeAll();
    const p50 = bytes / MB / (quantile(sample.berth, 0.5) / 1000);
    const rawP50 = bytes / MB / (quantile(sample.raw, 0.5) / 1000);
    return [
      {
        name: "Exec output",
        unit: "MB/s",
        p50,
        rawP50,
        ratio: p50 / rawP50,
        goal: "≥ 0.8 × raw",
        reached: p50 >= 0.8 * rawP50,
      },
    ];
  },
};

/** How many commands a second, many at once. */
export const execThroughput: Row = {
  name: "throughput",
  run: async (context) => [await throughput(context, 1), await throughput(context, AT_ONCE)],
};

async function throughput({ service, raw, scale }: BenchContext, sandboxes: number): Promise<Figure> {
  const ids: string[] = [];
  const containers: Awaited<ReturnType<typeof raw.start>>[] = [];
  for (let i = 0; i < sandboxes; i++) {
    ids.push(await service.create());
    containers.push(await raw.start());
  }
  const ms = Math.max(1000, 4000 * scale);
  const exec = (worker: number) => service.exec(ids[worker % sandboxes] ?? "", TRUE);
  await perSecond(AT_ONCE, 1000, exec);
  // Lanes that the warm-up asked for are still being opened.
  await sleep(1000);
  const p50 = await perSecond(AT_ONCE, ms, exec);
  const rawP50 = await perSecond(AT_ONCE, ms, (worker) => {
    const container = containers[worker % sandboxes];
    return container ? raw.exec(container, TRUE) : Promise.resolve();
  });
  for (const id of ids) await service.remove(id);
  await raw.removeAll();
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
