import { spawn } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { buildProgram } from "../build.ts";
import type { Figure, Row } from "../row.ts";
import { inTurn, quantile } from "../stats.ts";

const path = (relative: string): string => fileURLToPath(new URL(relative, import.meta.url));
const GOAL_MS = 150;

/** How long commands of the built program take, from start to end, compared with Node running nothing. */
export const start: Row = {
  name: "start",
  limitSeconds: 120,
  run: async ({ start, scale, progress }) => {
    progress("building");
    await buildProgram();
    const service = await start();
    const sandbox = await service.create();
    const figures: Figure[] = [];
    for (const args of [["--version"], ["ls"], ["exec", sandbox, "--", "true"]]) {
      progress(`berth ${args[0]}, alternating with Node`);
      const values = await inTurn(
        Math.max(10, Math.round(50 * scale)),
        () => run(path("../../bin/berth"), args, { BERTH_ADDRESS: service.address }),
        () => run(process.execPath, ["-e", "0"]),
      );
      const p50 = quantile(values.berth, 0.5);
      const rawP50 = quantile(values.raw, 0.5);
      figures.push({
        name: `berth ${args[0]}, against node -e 0`,
        unit: "ms",
        p50,
        p99: quantile(values.berth, 0.99),
        rawP50,
        ratio: rawP50 / p50,
        goal: `p50 ≤ ${GOAL_MS} ms`,
        reached: p50 <= GOAL_MS,
      });
    }
    return figures;
  },
};

async function run(file: string, args: readonly string[], env: NodeJS.ProcessEnv = {}): Promise<void> {
  const child = spawn(file, args, { env: { ...process.env, ...env }, stdio: "ignore" });
  const [code] = await once(child, "exit");
  if (code !== 0) throw new Error(`${file} ${args.join(" ")} ended with ${code}`);
}
