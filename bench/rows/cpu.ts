import { SandboxService } from "../../gen/ts/berth/v1/sandbox_pb.js";
import { processorMsPerCall } from "../processor-time.ts";
import type { BenchContext, Figure, Row } from "../row.ts";
import { quantile } from "../stats.ts";

const TRUE = ["true"];
const ROUNDS = 7;
/** How many calls of each kind a round makes. */
const CALLS = 400;

/** The service's CPU time for an Exec of `true`, alternating with a unary call. */
export const cpu: Row = {
  name: "cpu",
  limitSeconds: 300,
  run: async (context) => [await figure(context, 1, 2), await figure(context, 16, 1.3)],
};

/** @param most the limit, as a multiple of the unary call's. */
async function figure(context: BenchContext, atOnce: number, most: number): Promise<Figure> {
  const { start, scale, progress } = context;
  const service = await start();
  const id = await service.create();
  const exec = () => service.exec(id, TRUE);
  const unary = () => service.client.unary(SandboxService.method.getStats, {});
  const calls = Math.max(100, Math.round(CALLS * scale));
  const ms = { exec: [] as number[], unary: [] as number[] };
  for (let round = -1; round < ROUNDS; round++) {
    const each = {
      exec: await processorMsPerCall(service.pid, calls, atOnce, exec),
      unary: await processorMsPerCall(service.pid, calls, atOnce, unary),
    };
    // The first rounds are a warm-up.
    if (round < 0) continue;
    ms.exec.push(each.exec);
    ms.unary.push(each.unary);
    progress(`${atOnce} at once, round ${round + 1} of ${ROUNDS}`);
  }
  await service.stop();
  const p50 = quantile(ms.exec, 0.5);
  const rawP50 = quantile(ms.unary, 0.5);
  return {
    name: `CPU of the service for an Exec of true, ${atOnce} at once, against a unary call`,
    ...{ unit: "ms", p50, rawP50, ratio: rawP50 / p50 },
    ...{ goal: `≤ ${most} × the unary call`, reached: p50 <= most * rawP50 },
  };
}
