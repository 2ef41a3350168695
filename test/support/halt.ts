import { once } from "node:events";
import net from "node:net";
import { onTestFinished } from "vitest";

/** Halts this thread, as a machine may halt it. */
export function halt(ms: number): void {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);
}

/** The two ends of a connection. What one has written arrives at the other also while this thread halts. */
export async function connection(): Promise<readonly [near: net.Socket, far: net.Socket]> {
  const server = net.createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const far = net.connect((server.address() as net.AddressInfo).port, "127.0.0.1");
  const [[near]] = (await Promise.all([once(server, "connection"), once(far, "connect")])) as [
    [net.Socket],
    [],
  ];
  onTestFinished(() => {
    near.destroy();
    far.destroy();
    server.close();
  });
  return [near, far];
}
