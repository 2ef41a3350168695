import { setTimeout as sleep } from "node:timers/promises";
import { SandboxService } from "../../gen/ts/berth/v1/sandbox_pb.js";
import { WorkspaceService } from "../../gen/ts/berth/v1/workspace_pb.js";
import type { Row } from "../row.ts";
import type { BenchService } from "../service.ts";
import { quantile, timed } from "../stats.ts";

const POOL = 8;
const MAX_ENSURE_MS = 60;
const MAX_REUSE_MS = 3;

/** Sandboxes of workspaces: new ones from a warm pool, and existing ones. */
export const workspaces: Row = {
  name: "workspaces",
  limitSeconds: 240,
  run: async ({ image, scale, start, progress }) => {
    const service = await start(["--warm-pool", `${image}=${POOL}`]);
    const made: number[] = [];
    const reused: number[] = [];
    const rounds = Math.max(3, Math.round(10 * scale));
    for (let round = 1; round <= rounds; round++) {
      await filled(service);
      const ids = Array.from({ length: POOL }, (_, index) => `bench-${round}-${index}`);
      for (const id of ids) made.push(await timed(() => ensure(service, id, false)));
      for (const id of ids) {
        for (let time = 0; time < 5; time++) reused.push(await timed(() => ensure(service, id, true)));
      }
      for (const id of ids) {
        const request = { workspaceId: id, force: true, grace: {} };
        await service.client.unary(WorkspaceService.method.cleanupWorkspace, request);
      }
      progress(`${round} of ${rounds}`);
    }
    const figure = (name: string, values: readonly number[], mostMs: number) => ({
      name,
      unit: "ms" as const,
      p50: quantile(values, 0.5),
      p99: quantile(values, 0.99),
      goal: `p50 ≤ ${mostMs} ms`,
      reached: quantile(values, 0.5) <= mostMs,
    });
    return [
      figure("ensure, warm claim", made, MAX_ENSURE_MS),
      figure("ensure, reused", reused, MAX_REUSE_MS),
    ];
  },
};

async function ensure(service: BenchService, workspaceId: string, isReused: boolean): Promise<void> {
  const answer = await service.client.unary(WorkspaceService.method.ensureWorkspaceSandbox, { workspaceId });
  if (answer.sandbox === undefined || answer.reused !== isReused)
    throw new Error("ensure did something else");
}

async function filled(service: BenchService): Promise<void> {
  for (let i = 0; i < 600; i++) {
    const { warmPools } = await service.client.unary(SandboxService.method.getStats, {});
    if (warmPools.every(({ ready, target }) => ready === target)) return sleep(500);
    await sleep(100);
  }
  throw new Error("the warm pool does not fill");
}
