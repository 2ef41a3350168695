import { once } from "node:events";
import { availableParallelism } from "node:os";
import { Worker } from "node:worker_threads";

/** How long it is measured. The scheduler shares a CPU out in a few milliseconds. */
const SPIN_MS = 200;
/** What an idle machine's own business takes. */
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
 * How much of the machine's processor time whoever wants all of it gets beside what runs already: 1 on an idle machine,
 * a half beside a busy loop on each CPU.
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
