import { setTimeout as sleep } from "node:timers/promises";
import { SandboxService } from "../../gen/ts/berth/v1/sandbox_pb.js";
import type { Row } from "../row.ts";
import type { BenchService } from "../service.ts";
import { quantile, timed } from "../stats.ts";

const POOL = 8;

/** Creates from a warm pool, compared with Docker's create and start. */
export const createWarm: Row = {
  name: "create-warm",
  limitSeconds: 480,
  run: async ({ image, raw, scale, start, progress }) => {
    const service = await start(["--warm-pool", `${image}=${POOL}`]);
    const sample = { berth: [] as number[], raw: [] as number[] };
    const rounds = Math.max(3, Math.round(12 * scale));
    for (let round = 1; round <= rounds; round++) {
      await filled(service);
      const made: string[] = [];
      for (let i = 0; i < POOL; i++)
        sample.berth.push(await timed(async () => made.push(await service.create())));
      for (const id of made) await service.remove(id);
      sample.raw.push(await timed(() => raw.start()));
      await raw.removeAll();
      progress(`${round} of ${rounds}`);
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

/** Waits until the pool is full and its lanes have had time to open. */
async function filled(service: BenchService): Promise<void> {
  for (let i = 0; i < 600; i++) {
    const { warmPools } = await service.client.unary(SandboxService.method.getStats, {});
    if (warmPools.every(({ ready, target }) => ready === target)) return sleep(500);
    await sleep(100);
  }
  throw new Error("the warm pool does not fill");
}
