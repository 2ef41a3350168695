import { setTimeout as sleep } from "node:timers/promises";
import type { Row } from "../row.ts";
import { BenchService } from "../service.ts";

/** What the service holds for sandboxes that nobody uses. */
export const idleMemory: Row = {
  name: "memory",
  run: async ({ image, scale }) => {
    const count = Math.max(20, Math.round(200 * scale));
    const service = await BenchService.start(image, ["--max-sandboxes", String(count)]);
    try {
      // The first ones fill caches that the others share.
      for (let i = 0; i < 5; i++) await service.remove(await service.create());
      await sleep(2000);
      const before = service.memory();
      for (let i = 0; i < count; i++) await service.create();
      await sleep(5000);
      const each = (service.memory() - before) / count / 1024;
      return [
        {
          name: `service memory per idle sandbox, of ${count}`,
          unit: "KiB",
          p50: each,
          goal: "≤ 150 KiB",
          reached: each <= 150,
        },
      ];
    } finally {
      await service.stop();
    }
  },
};
