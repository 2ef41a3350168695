import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { type FileHandle, open } from "node:fs/promises";
import type { Server } from "node:net";
import { BerthError } from "../../base/errors.ts";
import { tooManyFiles } from "../../base/system-errors.ts";

const OPEN_TIMEOUT_MS = 20_000;

/** Descriptors of the helper. Node reads the number of its channel from the environment. */
const NETWORK_FD = 3;

/** Listens in its own network namespace, passes the socket to the service, and ends. */
const HELPER = `
const server = require("node:net").createServer();
const tell = (...message) => process.send(...message, () => process.exit());
server.on("error", ({ code }) => tell({ code }));
server.listen({ host: "127.0.0.1", port: Number(process.argv[1]) }, () => tell({}, server));
`;

/** The sandbox whose loopback interface to use. */
interface LoopbackOwner {
  /** The host's pid of its main process. */
  readonly pid: number;
  /** Whether that process still belongs to the sandbox; called once its namespace is open. */
  readonly isOwn: () => boolean;
  /** The file of the user namespace that owns the other namespaces. A service that is not root must enter it. */
  readonly userNamespace?: string;
}

/**
 * Opens a TCP port on 127.0.0.1 of a sandbox; this process accepts its connections. A socket keeps the network
 * namespace that it was created in. So a helper enters only the sandbox's network namespace, creates the socket, and
 * passes it here. Nothing runs inside the sandbox, which needs neither an interface nor a route to the host.
 * @throws `UNSUPPORTED` if the namespace cannot be entered, `SANDBOX_START_FAILED` if the port is taken,
 *   `TOO_MANY_OPERATIONS` if no more files may be open.
 */
export async function openLoopbackPort(
  { pid, isOwn, userNamespace }: LoopbackOwner,
  port: number,
  signal?: AbortSignal,
): Promise<Server> {
  const network = await openNamespace(pid);
  try {
    const own = await network.stat();
    const host = await openNamespace("self");
    const { ino } = await host.stat().finally(() => host.close());
    if (!isOwn() || own.ino === ino) throw noEntry();
    const enter = [
      ...(userNamespace === undefined ? [] : [`--user=${userNamespace}`, "--preserve-credentials"]),
      `--net=/proc/self/fd/${NETWORK_FD}`,
    ];
    const limit = AbortSignal.timeout(OPEN_TIMEOUT_MS);
    const helper = spawn("nsenter", [...enter, "--", process.execPath, "-e", HELPER, String(port)], {
      stdio: ["ignore", "ignore", "ignore", network.fd, "ipc"],
      env: { PATH: "/usr/sbin:/usr/bin:/sbin:/bin" },
      cwd: "/",
      signal: signal === undefined ? limit : AbortSignal.any([signal, limit]),
      killSignal: "SIGKILL",
    });
    return await listenerFrom(helper, port);
  } finally {
    await network.close();
  }
}

function openNamespace(of: number | "self"): Promise<FileHandle> {
  return open(`/proc/${of}/ns/net`).catch((error: unknown) => {
    throw noEntry(error);
  });
}

async function listenerFrom(helper: ChildProcess, port: number): Promise<Server> {
  const { promise, resolve, reject } = Promise.withResolvers<Server>();
  helper.once("message", (message: { readonly code?: string }, server: unknown) => {
    if (server !== undefined) resolve(server as Server);
    else if (message.code === "EADDRINUSE") reject(taken(port));
    else reject(noEntry(new Error(message.code)));
  });
  helper.once("error", (error) =>
    reject(error.name === "AbortError" ? (error.cause ?? error) : noEntry(error)),
  );
  const exited = once(helper, "close").catch(() => {});
  void exited.then(() => reject(noEntry(new Error(`nsenter ended with code ${helper.exitCode}`))));
  try {
    return await promise;
  } finally {
    await exited;
  }
}

function taken(port: number): BerthError {
  return new BerthError(
    "SANDBOX_START_FAILED",
    `The sandbox cannot reach its egress_domains: something in it listens on port ${port} already.`,
  );
}

function noEntry(cause?: unknown): BerthError {
  const unable = new BerthError(
    "UNSUPPORTED",
    "This server cannot give a sandbox egress_domains: it cannot enter the sandbox's network namespace.",
    { metadata: { capability: "egress_domains" }, cause },
  );
  return tooManyFiles(cause) ?? unable;
}
