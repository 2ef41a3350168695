import type { Row } from "../row.ts";
import { quantile, timed } from "../stats.ts";

/**
 * Creates, first commands and many creates at once on the embedded engine. There is no raw equivalent to compare with.
 */
export const createBubblewrap: Row = {
  name: "create-bubblewrap",
  limitSeconds: 200,
  run: async ({ start, scale }) => {
    const atOnce = Math.max(20, Math.round(200 * scale));
    const service = await start(["--engine", "bubblewrap", "--max-sandboxes", String(atOnce)]);
    const creates: number[] = [];
    const execs: number[] = [];
    for (let i = 0; i < Math.max(10, 100 * scale); i++) {
      let id = "";
      creates.push(
        await timed(async () => {
          id = await service.create();
        }),
      );
      // The first command waits for a lane to open, which is not what is measured.
      await service.exec(id, ["true"]);
      for (let j = 0; j < 5; j++) execs.push(await timed(() => service.exec(id, ["true"])));
      await service.remove(id);
    }
    const begun = performance.now();
    const made = await Promise.all(Array.from({ length: atOnce }, () => service.create()));
    await Promise.all(made.map((id) => service.exec(id, ["true"])));
    const seconds = (performance.now() - begun) / 1000;
    await Promise.all(made.map((id) => service.remove(id)));
    const latency = (name: string, values: readonly number[], goalMs: number) => ({
      name,
      unit: "ms" as const,
      p50: quantile(values, 0.5),
      p99: quantile(values, 0.99),
      goal: `p50 ≤ ${goalMs} ms`,
      reached: quantile(values, 0.5) <= goalMs,
    });
    return [
      latency("create, bubblewrap", creates, 15),
      latency("exec of true, bubblewrap", execs, 3),
      {
        name: `${atOnce} sandboxes made at once, each with a command`,
        unit: "per second",
        p50: atOnce / seconds,
        goal: "for comparison",
      },
    ];
  },
};
