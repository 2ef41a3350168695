import type { Row } from "../row.ts";
import { inTurn, quantile } from "../stats.ts";

const MB = 1_000_000;
const ROUNDS = 7;

/** Large output of one Exec, compared with the stream of a docker exec. */
export const execOutput: Row = {
  name: "output",
  limitSeconds: 240,
  run: async ({ start, raw, scale }) => {
    const service = await start();
    const id = await service.create();
    const container = await raw.start();
    const bytes = Math.round(300 * MB * Math.max(scale, 0.2));
    const zeros = ["head", "-c", String(bytes), "/dev/zero"];
    await service.exec(id, zeros);
    const sample = await inTurn(
      ROUNDS,
      () => service.exec(id, zeros),
      () => raw.exec(container, zeros),
    );
    const p50 = bytes / MB / (quantile(sample.berth, 0.5) / 1000);
    const rawP50 = bytes / MB / (quantile(sample.raw, 0.5) / 1000);
    return [
      {
        name: `Exec output of ${Math.round(bytes / MB)} MB`,
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
