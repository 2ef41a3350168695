import { once } from "node:events";
import net from "node:net";
import { BerthError } from "../base/errors.ts";

/**
 * Keeps a second service on this machine from running as the same instance, as
 * one on a copy of the data directory does: each would remove the containers
 * that the other one created. The name of an abstract socket is held until the
 * process ends, however it ends. Nothing is sent over it.
 * @returns how to release it.
 * @throws `INVALID_ARGUMENT` where another service holds it, saying what to do.
 */
export async function holdInstance(instance: string): Promise<() => void> {
  const server = net.createServer((caller) => caller.destroy());
  server.unref();
  try {
    const listening = once(server, "listening");
    server.listen(`\0berth/${instance}`);
    await listening;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EADDRINUSE") throw error;
    throw new BerthError(
      "INVALID_ARGUMENT",
      `--data-dir: another service on this machine runs as the same instance, ${instance}, probably from a copy of this directory. Each would remove the other's sandboxes. Stop that one first: ss -xlp | grep ${instance}`,
      { cause: error, metadata: { field: "data-dir" } },
    );
  }
  return () => server.close();
}
