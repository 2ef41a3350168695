import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import net from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";

const DOCKER_SOCKET = "/var/run/docker.sock";

/** A socket in front of the Docker daemon that can be cut as if the daemon had stopped. */
export class DockerLink {
  /** For the setting `dockerHost`. */
  readonly host: string;
  readonly #directory: string;
  readonly #server: net.Server;
  readonly #sockets = new Set<net.Socket>();

  /**
   * @param unread whether it does not read the stdin of processes, so that their connections close with data in them.
   */
  private constructor(directory: string, unread: boolean) {
    this.#directory = directory;
    this.host = `unix://${path.join(directory, "docker.sock")}`;
    this.#server = net.createServer({ allowHalfOpen: true }, (near) => {
      const far = net.connect({ path: DOCKER_SOCKET, allowHalfOpen: true });
      for (const [from, to] of [
        [near, far],
        [far, near],
      ] as const) {
        this.#sockets.add(from);
        from.pipe(to);
        // Broken connections are the purpose of this class.
        from.on("error", () => {});
        from.once("close", () => {
          this.#sockets.delete(from);
          to.destroy();
        });
      }
      if (unread) far.on("data", (head) => String(head).startsWith("HTTP/1.1 101") && leaveUnread(near, far));
    });
  }

  static async open({ unread = false } = {}): Promise<DockerLink> {
    const link = new DockerLink(await mkdtemp(path.join(tmpdir(), "berth-link-")), unread);
    await link.restore();
    return link;
  }

  /** Breaks every connection, and accepts no more. */
  cut(): void {
    this.#server.close();
    for (const socket of this.#sockets) socket.destroy();
  }

  /** Accepts connections again. */
  async restore(): Promise<void> {
    this.#server.listen(path.join(this.#directory, "docker.sock"));
    await once(this.#server, "listening");
  }

  async close(): Promise<void> {
    this.cut();
    await rm(this.#directory, { recursive: true, force: true });
  }
}

function leaveUnread(near: net.Socket, far: net.Socket): void {
  near.unpipe(far).pause();
  far.once("end", () => near.destroy());
}
