import { setTimeout as sleep } from "node:timers/promises";
import type { Row } from "../row.ts";

/** How long the service may clean up before it is measured. */
const REST_MS = 5_000;

/** The memory of the service for idle sandboxes. Without a warm-up, so that the cost of the first ones is included. */
export const idleMemory: Row = {
  name: "memory",
  limitSeconds: 600,
  run: async ({ start, scale, progress }) => {
    const count = Math.max(20, Math.round(200 * scale));
    const quarter = Math.round(count / 4);
    const service = await start(["--max-sandboxes", String(count)]);
    const restingBytes = async (): Promise<number> => {
      await sleep(REST_MS);
      progress(`${Math.round(service.memory() / 1e6)} MB`);
      return service.memory();
    };
    const none = await restingBytes();
    for (let i = 0; i < quarter; i++) await service.create();
    const some = await restingBytes();
    for (let i = quarter; i < count; i++) await service.create();
    const all = await restingBytes();
    const each = (all - none) / count / 1024;
    return [
      {
        name: `service memory per idle sandbox, of ${count}`,
        unit: "KiB",
        p50: each,
        goal: "≤ 150 KiB",
        reached: each <= 150,
      },
      {
        name: "of these, once the first quarter is there",
        unit: "KiB",
        p50: (all - some) / (count - quarter) / 1024,
        goal: "for comparison",
      },
    ];
  },
};
