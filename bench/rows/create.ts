import { setTimeout as sleep } from "node:timers/promises";
import { SandboxService } from "../../gen/ts/berth/v1/sandbox_pb.js";
import type { Row } from "../row.ts";
import { BenchService } from "../service.ts";
import { inTurn, quantile, timed } from "../stats.ts";

const POOL = 8;

/** Creates from the image, against Docker's create and start. */
export const createCold: Row = {
  name: "create",
  run: async ({ service, raw, scale }) => {
    const made: string[] = [];
    const sample = await inTurn(
      Math.max(5, 20 * scale),
      async () => made.push(await service.create()),
      () => raw.start(),
    );
    for (const id of made) await service.remove(id);
    await raw.removeAll();
    const p50 = quantile(sample.berth, 0.5);
    const rawP50 = quantile(sample.raw, 0.5);
    return [
      {
        name: "create, cold",
        unit: "ms",
        p50,
        p99: quantile(sample.berth, 0.99),
        rawP50,
        ratio: rawP50 / p50,
        goal: "≤ 1.10 × raw",
        reached: p50 <= 1.1 * rawP50,
        values: sample,
      },
    ];
  },
};

/** Creates from a warm pool, against the same. */
export const createWarm: Row = {
  name: "create-warm",
  run: async ({ image, raw, scale }) => {
    const service = await BenchService.start(image, ["--warm-pool", `${image}=${POOL}`]);
    const sample = { berth: [] as number[], raw: [] as number[] };
    try {
      for (let round = 0; round < Math.max(3, 12 * scale); round++) {
        await filled(service);
        const made: string[] = [];
        for (let i = 0; i < POOL; i++)
          sample.berth.push(await timed(async () => made.push(await service.create())));
        for (const id of made) await service.remove(id);
        sample.raw.push(await timed(() => raw.start()));
        await raw.removeAll();
      }
    } finally {
      await service.stop();
    }
    const p50 = quantile(sample.berth, 0.5);
    const rawP50 = quantile(sample.raw, 0.5);
    return [
      {
        name: "create, warm claim",
        unit: "ms",
        p50,
        p99: quantile(sample.berth, 0.99),
        rawP50,
        ratio: rawP50 / p50,
        goal: "p50 ≤ 5 ms, ≥ 40 × raw",
        reached: p50 <= 5 && rawP50 / p50 >= 40,
        values: sample,
      },
    ];
  },
};

async function filled(service: BenchService): Promise<void> {
  for (let i = 0; i < 600; i++) {
    const { warmPools } = await service.client.unary(SandboxService.method.getStats, {});
    if (warmPools.every(({ ready, target }) => ready === target)) return;
    await sleep(100);
  }
  throw new Error("the warm pool does not fill");
}
