import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { SandboxService } from "../../gen/ts/berth/v1/sandbox_pb.js";
import { BenchClient } from "../client.ts";
import type { Row } from "../row.ts";
import { quantile, timed } from "../stats.ts";

const WARM_UP = 3000;
const ROUNDS = 30;
const CALLS_A_ROUND = 300;

interface Target {
  readonly process: ChildProcess;
  readonly client: BenchClient;
  readonly latencies: number[];
}

/**
 * A unary call that does nothing, compared with a bare grpc-js server and with the Connect library's own handler. They
 * alternate in short rounds.
 */
export const unary: Row = {
  name: "unary",
  limitSeconds: 240,
  run: async ({ scale }) => {
    const targets: Target[] = [];
    try {
      for (const name of ["berth", "bare", "library"]) targets.push(await launch(name));
      for (const target of targets) await calls(target, WARM_UP * Math.max(0.3, Math.min(1, scale)));
      for (const { latencies } of targets) latencies.length = 0;
      for (let round = 0; round < Math.max(3, ROUNDS * scale); round++)
        for (const target of targets) await calls(target, CALLS_A_ROUND);
    } finally {
      for (const { client, process } of targets) {
        client.close();
        process.kill();
      }
    }
    const [berth = [], bare = [], library = []] = targets.map(({ latencies }) => latencies);
    const p50 = quantile(berth, 0.5);
    return (
      [
        ["bare grpc-js", bare, "≤ 1.5 × its p50"],
        ["the Connect library", library, "for comparison"],
      ] as const
    ).map(([name, against, goal], index) => ({
      name: `unary call, against ${name}`,
      unit: "ms" as const,
      p50,
      p99: quantile(berth, 0.99),
      rawP50: quantile(against, 0.5),
      ratio: quantile(against, 0.5) / p50,
      goal,
      ...(index === 0 && { reached: p50 <= 1.5 * quantile(against, 0.5) }),
    }));
  },
};

async function launch(name: string): Promise<Target> {
  const child = fork(new URL(`../rpc/${name}-server.ts`, import.meta.url));
  const [port] = await once(child, "message", { signal: AbortSignal.timeout(20_000) });
  return { process: child, client: new BenchClient(`127.0.0.1:${port}`), latencies: [] };
}

async function calls({ client, latencies }: Target, count: number): Promise<void> {
  for (let i = 0; i < count; i++)
    latencies.push(await timed(() => client.unary(SandboxService.method.getStats, {})));
}
