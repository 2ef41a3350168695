import { once } from "node:events";
import net from "node:net";
import { setTimeout as sleep } from "node:timers/promises";

/** Pause between two attempts. */
const PAUSE_MS = 200;

/**
 * Waits until no other test run on this machine holds a lock, and holds it until the result is disposed of or this
 * process ends. For what exists once on a machine, such as its firewall.
 * @param waitMs only against hangs: how long the others may take.
 */
export async function lockMachine(name: string, waitMs: number): Promise<AsyncDisposable> {
  const start = performance.now();
  for (;;) {
    // An abstract socket belongs to one process at a time, in the network namespace whose firewall is meant.
    const server = net.createServer();
    server.listen(`\0berth-test-${name}`);
    const refusal = await once(server, "listening").then(
      () => undefined,
      (error: NodeJS.ErrnoException) => error,
    );
    if (refusal === undefined) {
      return { [Symbol.asyncDispose]: () => new Promise((resolve) => server.close(() => resolve())) };
    }
    if (refusal.code !== "EADDRINUSE" || performance.now() - start > waitMs) throw refusal;
    await sleep(PAUSE_MS);
  }
}
