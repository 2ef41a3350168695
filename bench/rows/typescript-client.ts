import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import type { Figure, Row } from "../row.ts";
import { quantile, type Sample } from "../stats.ts";

const run = promisify(execFile);
const PROGRAM = fileURLToPath(new URL("../clients/typescript-client.ts", import.meta.url));

/** What a call through the TypeScript client costs in addition to the same call on the generated client. */
export const typescriptClient: Row = {
  name: "typescript-client",
  limitSeconds: 120,
  run: async ({ start, scale, progress }) => {
    const service = await start();
    progress("alternating with the generated client");
    const rounds = String(Math.max(100, Math.round(1000 * scale)));
    // Without the caller's environment, so that no proxy is used.
    const { stdout } = await run(process.execPath, [PROGRAM, service.address, rounds], {
      env: {},
      maxBuffer: 64 << 20,
    });
    const samples: Record<string, Sample> = JSON.parse(stdout);
    return Object.entries(samples).map(([name, { berth, raw }]): Figure => {
      const p50 = quantile(berth, 0.5);
      const rawP50 = quantile(raw, 0.5);
      return {
        name: `TypeScript ${name}, against its stub`,
        unit: "ms",
        p50,
        p99: quantile(berth, 0.99),
        rawP50,
        ratio: rawP50 / p50,
        goal: "≤ 1.1 × the stub's p50",
        reached: p50 <= 1.1 * rawP50,
      };
    });
  },
};
