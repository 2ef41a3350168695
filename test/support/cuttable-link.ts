import { once } from "node:events";
import net from "node:net";

/** A way to a service that can be cut, as a network cable or the power of a client's machine. */
export class CuttableLink {
  readonly #server: net.Server;
  readonly #sockets = new Set<net.Socket>();

  private constructor(server: net.Server) {
    this.#server = server;
  }

  /** @param target `host:port` */
  static async to(target: string): Promise<CuttableLink> {
    const { hostname, port } = new URL(`tcp://${target}`);
    const link = new CuttableLink(
      net.createServer((near) => {
        const far = net.connect(Number(port), hostname);
        link.#join(near, far);
        link.#join(far, near);
      }),
    );
    link.#server.listen(0, "127.0.0.1");
    await once(link.#server, "listening");
    return link;
  }

  /** `host:port` for clients. */
  get address(): string {
    return `127.0.0.1:${(this.#server.address() as net.AddressInfo).port}`;
  }

  /** Breaks every connection, and takes no further ones. */
  cut(): void {
    this.#server.close();
    for (const socket of this.#sockets) socket.destroy();
  }

  #join(from: net.Socket, to: net.Socket): void {
    this.#sockets.add(from);
    from.pipe(to);
    // A broken connection is what this is for.
    from.on("error", () => {});
    from.once("close", () => to.destroy());
  }
}
