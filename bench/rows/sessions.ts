import { setTimeout as sleep } from "node:timers/promises";
import type { JsonObject } from "@bufbuild/protobuf";
import { SandboxService } from "../../gen/ts/berth/v1/sandbox_pb.js";
import { SessionService } from "../../gen/ts/berth/v1/session_pb.js";
import type { Figure, Row } from "../row.ts";
import type { BenchService } from "../service.ts";
import { quantile, timed } from "../stats.ts";

const POOL = 8;
const WORKER = "bench";

/** Tools on sessions: on an existing one, and on temporary ones from a warm pool. */
export const sessions: Row = {
  name: "sessions",
  limitSeconds: 120,
  run: async ({ image, scale, start, progress }) => {
    const service = await start(["--warm-pool", `${image}=${POOL}`]);
    await service.client.unary(SessionService.method.createSessions, {
      workerId: WORKER,
      resources: [{ resourceType: "bash" }, { resourceType: "python" }],
    });
    const rounds = Math.max(20, Math.round(500 * scale));
    progress("bash");
    const bash = await measure(rounds, () => call(service, WORKER, "bash:run", { command: "true" }));
    progress("python");
    const python = await measure(rounds, () => call(service, WORKER, "python:run", { code: "1+1" }));
    const temporary: number[] = [];
    for (let i = 0; i < Math.max(10, Math.round(40 * scale)); i++) {
      await filled(service);
      temporary.push(await timed(() => call(service, `${WORKER}-${i}`, "bash:run", { command: "true" })));
      progress(`temporary ${i + 1}`);
    }
    return [
      figure("bash:run true, session", bash, 3),
      figure("python:run 1+1, session", python, 5),
      figure("bash:run true, temporary session, warm pool", temporary, 15),
    ];
  },
};

async function measure(rounds: number, run: () => Promise<void>): Promise<number[]> {
  const values: number[] = [];
  for (let i = 0; i < rounds / 10; i++) await run();
  for (let i = 0; i < rounds; i++) values.push(await timed(run));
  return values;
}

async function call(
  service: BenchService,
  workerId: string,
  tool: string,
  params: JsonObject,
): Promise<void> {
  const { code, message } = await service.client.unary(SessionService.method.executeTool, {
    workerId,
    tool,
    params,
  });
  if (code !== 0) throw new Error(message);
}

/** Waits until the pool is full and its shells have had time to open. */
async function filled(service: BenchService): Promise<void> {
  for (let i = 0; i < 600; i++) {
    const { warmPools } = await service.client.unary(SandboxService.method.getStats, {});
    if (warmPools.every(({ ready, target }) => ready === target)) return sleep(300);
    await sleep(50);
  }
  throw new Error("the warm pool does not fill");
}

function figure(name: string, values: readonly number[], goalMs: number): Figure {
  const p50 = quantile(values, 0.5);
  return {
    name,
    unit: "ms",
    p50,
    p99: quantile(values, 0.99),
    goal: `p50 ≤ ${goalMs} ms`,
    reached: p50 <= goalMs,
  };
}
