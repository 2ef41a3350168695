import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import net from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { makeCertificate } from "./certificate.ts";
import { eventually } from "./eventually.ts";

/** A proxy from deploy/ in front of several services. */
export interface RunningProxy extends AsyncDisposable {
  /** For gRPC clients: `unix:PATH`. */
  readonly address: string;
  /** The socket it listens on. */
  readonly socket: string;
  /** The self-signed certificate for `localhost`, in PEM. */
  readonly certificate: Buffer;
}

/** Starts a proxy. `replicas`: `host:port` of each. `tenants`: by token id. */
export type StartProxy = (
  replicas: readonly string[],
  tenants: ReadonlyMap<string, string>,
) => Promise<RunningProxy>;

/** Where a proxy finds its files. */
interface Place {
  /** Its own directory, in which it runs. */
  readonly directory: string;
  readonly cert: string;
  readonly key: string;
  readonly socket: string;
}

/** A configuration from deploy/, with changes in places that must exist. */
export function adapted(file: string, changes: readonly (readonly [RegExp, string])[]): string {
  let text = readFileSync(file, "utf8");
  for (const [place, change] of changes) {
    if (!place.test(text)) throw new Error(`${file} has no ${place}`);
    text = text.replace(place, () => change);
  }
  return text;
}

/**
 * Starts a proxy in its own directory, which is removed with it.
 * @param write writes the configuration, and returns the command.
 */
export async function startProxy(write: (place: Place) => readonly string[]): Promise<RunningProxy> {
  const directory = mkdtempSync(path.join(tmpdir(), "berth-proxy-"));
  try {
    const files = await makeCertificate(directory, "proxy", "DNS:localhost");
    const place = { directory, ...files, socket: path.join(directory, "socket") };
    const proxy = new ProxyProcess(place, write(place));
    await eventually(() => proxy.takesConnections());
    return proxy;
  } catch (error) {
    rmSync(directory, { recursive: true });
    throw error;
  }
}

class ProxyProcess implements RunningProxy {
  readonly address: string;
  readonly socket: string;
  readonly certificate: Buffer;
  readonly #directory: string;
  readonly #child: ChildProcess;
  #log = "";

  constructor(place: Place, [program = "", ...args]: readonly string[]) {
    this.#directory = place.directory;
    this.certificate = readFileSync(place.cert);
    this.socket = place.socket;
    this.address = `unix:${place.socket}`;
    this.#child = spawn(program, args, { cwd: place.directory, stdio: ["ignore", "ignore", "pipe"] });
    this.#child.stderr?.on("data", (data: Buffer) => {
      this.#log = (this.#log + data).slice(-8192);
    });
  }

  /** Its socket exists some time before it listens. Throws if it has ended. */
  async takesConnections(): Promise<boolean> {
    if (this.#child.exitCode !== null) throw new Error(`the proxy ended: ${this.#log}`);
    const connection = net.connect(this.socket);
    try {
      await once(connection, "connect");
      return true;
    } catch {
      return false;
    } finally {
      connection.destroy();
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#child.exitCode === null) {
      const exit = once(this.#child, "exit");
      // Its workers end with their connections.
      this.#child.kill("SIGTERM");
      await exit;
    }
    rmSync(this.#directory, { recursive: true });
  }
}
