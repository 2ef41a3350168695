import type { Row } from "../row.ts";
import { inTurn, quantile } from "../stats.ts";

/** Creates from the image, against Docker's create and start. */
export const createCold: Row = {
  name: "create",
  limitSeconds: 240,
  run: async ({ start, raw, scale }) => {
    const service = await start();
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
