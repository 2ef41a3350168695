import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import net from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { makeCertificate } from "./certificate.ts";
import { eventually } from "./eventually.ts";

/** A proxy of deploy/ in front of several services. */
export interface RunningProxy extends AsyncDisposable {
  /** For gRPC clients: `unix:PATH`. */
  readonly address: string;
  /** The socket it listens on. */
  readonly socket: string;
  /** The certificate in PEM, which signs itself for `localhost`. */
  readonly certificate: Buffer;
}

/** Starts one: `replicas` are `host:port` of each, `tenants` are by the ids of their tokens. */
export type StartProxy = (
  replicas: readonly string[],
  tenants: ReadonlyMap<string, string>,
) => Promise<RunningProxy>;

/** Where a proxy finds what it is made of. */
interface Place {
  /** Its own, and where it runs. */
  readonly directory: string;
  readonly cert: string;
  readonly key: string;
  readonly socket: string;
}

/** A configuration of deploy/, changed in places that must be there. */
export function adapted(file: string, changes: readonly (readonly [RegExp, string])[]): string {
  let text = readFileSync(file, "utf8");
  for (const [place, change] of changes) {
    if (!place.test(text)) throw new Error(`${file} has no ${place}`);
    text = text.replace(place, () => change);
  }
  return text;
}

/**
 * Starts a proxy, with a directory that goes with it.
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

  /** Its socket is there some time before it listens. Throws where it has ended. */
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
