import { once } from "node:events";
import { availableParallelism } from "node:os";
import { Worker } from "node:worker_threads";

/** How long to measure. The scheduler distributes a CPU within a few milliseconds. */
const SPIN_MS = 200;
/** The rest is what an idle machine uses by itself. */
const IDLE_SHARE = 0.9;

const SPIN = `
const { parentPort } = require("node:worker_threads");
const begin = performance.now();
const before = process.threadCpuUsage();
while (performance.now() - begin < ${SPIN_MS}) {}
const { user, system } = process.threadCpuUsage(before);
parentPort.postMessage((user + system) / 1_000 / (performance.now() - begin));
`;

/**
 * The share of the machine's CPU time that another process could get: 1 on an idle machine, a half if each CPU runs a
 * busy loop.
 */
export async function processorShare(): Promise<number> {
  const shares = await Promise.all(
    Array.from({ length: availableParallelism() }, async () => {
      const worker = new Worker(SPIN, { eval: true });
      const [share] = (await once(worker, "message")) as [number];
      await worker.terminate();
      return share;
    }),
  );
  const share = shares.reduce((sum, one) => sum + one, 0) / shares.length;
  return share > IDLE_SHARE ? 1 : share;
}
