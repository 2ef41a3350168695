import { download, upload } from "../file-transfer.ts";
import type { Row } from "../row.ts";
import { quantile, timed } from "../stats.ts";

const MIB = 1024 * 1024;
const MB = 1_000_000;
const ROUNDS = 7;

/** One large file, into a sandbox and out of it. */
export const files: Row = {
  name: "files",
  limitSeconds: 240,
  run: async ({ start, scale }) => {
    const service = await start();
    const file = { sandboxId: await service.create(), path: "/workspace/big" };
    const bytes = Math.round(100 * MIB * Math.max(scale, 0.2));
    const times = { up: [] as number[], down: [] as number[] };
    for (let round = 0; round <= ROUNDS; round++) {
      const up = await timed(() => upload(service.client, file, bytes));
      const down = await timed(() => download(service.client, file, bytes));
      if (round === 0) continue;
      times.up.push(up);
      times.down.push(down);
    }
    return (["up", "down"] as const).map((way) => {
      const p50 = bytes / MB / (quantile(times[way], 0.5) / 1000);
      return {
        name: `file of ${Math.round(bytes / MIB)} MiB ${way}`,
        unit: "MB/s" as const,
        p50,
        goal: "≥ 200 MB/s",
        reached: p50 >= 200,
      };
    });
  },
};
