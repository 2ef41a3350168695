import fs from "node:fs/promises";
import net from "node:net";
import { dirname } from "node:path";
import { BerthError } from "../base/errors.ts";

const PROBE_MS = 1000;

/**
 * Removes a Unix socket that a dead server left behind.
 *
 * @throws BerthError `INVALID_ARGUMENT` if a server answers on it, if the path is something else, or if its directory
 *   is missing
 */
export async function clearStaleSocket(path: string): Promise<void> {
  const directory = dirname(path);
  if (!(await fs.stat(directory).catch(() => undefined))?.isDirectory()) {
    // Node would report a missing permission.
    throw new BerthError(
      "INVALID_ARGUMENT",
      `${directory}, where the socket should be, is not a directory. Create it first.`,
    );
  }
  const stat = await fs.lstat(path).catch((error: NodeJS.ErrnoException) => {
    if (error.code === "ENOENT") return undefined;
    throw error;
  });
  if (!stat) return;
  if (!stat.isSocket()) {
    throw new BerthError(
      "INVALID_ARGUMENT",
      `${path} exists and is not a socket. Remove it, or choose another path for the socket.`,
    );
  }
  if (await answers(path)) {
    throw new BerthError(
      "INVALID_ARGUMENT",
      `Another server answers on ${path}. Stop it, or choose another path for the socket.`,
    );
  }
  await fs.rm(path, { force: true });
}

/** Listens on a Unix socket that only the user of this process may open. */
export function listenOnSocket(server: net.Server, path: string): void {
  // The socket must never exist with wider permissions, not even before a chmod.
  const umask = process.umask(0o177);
  try {
    server.listen(path);
  } finally {
    process.umask(umask);
  }
}

async function answers(path: string): Promise<boolean> {
  const { promise, resolve } = Promise.withResolvers<boolean>();
  const socket = net.connect(path);
  socket.setTimeout(PROBE_MS);
  socket.once("connect", () => resolve(true));
  // Only a refused connection proves that no one listens: a server may be slow to accept.
  socket.once("timeout", () => resolve(true));
  socket.once("error", (error: NodeJS.ErrnoException) =>
    resolve(error.code !== "ECONNREFUSED" && error.code !== "ENOENT"),
  );
  try {
    return await promise;
  } finally {
    socket.destroy();
  }
}
