import { once } from "node:events";
import net from "node:net";
import { ownLoopback } from "./settings.ts";

/** A connection to a service that can be cut, like a network cable or the power of a client's machine. */
export class CuttableLink {
  /** `host:port` for clients. */
  readonly address: string;
  readonly #server: net.Server;
  readonly #sockets: Set<net.Socket>;

  private constructor(server: net.Server, sockets: Set<net.Socket>) {
    this.#server = server;
    this.#sockets = sockets;
    const { address, port } = server.address() as net.AddressInfo;
    this.address = `${address}:${port}`;
  }

  /** @param target `host:port` */
  static async to(target: string): Promise<CuttableLink> {
    const { hostname, port } = new URL(`tcp://${target}`);
    const sockets = new Set<net.Socket>();
    const server = net.createServer((near) => {
      const far = net.connect(Number(port), hostname);
      join(near, far);
      join(far, near);
      sockets.add(near);
      near.once("close", () => sockets.delete(near));
    });
    server.listen(0, ownLoopback());
    await once(server, "listening");
    return new CuttableLink(server, sockets);
  }

  /** Breaks every connection, and accepts no more. */
  cut(): void {
    this.#server.close();
    for (const socket of this.#sockets) socket.destroy();
  }

  /** Accepts connections again, at the same address. */
  async restore(): Promise<void> {
    const { hostname, port } = new URL(`tcp://${this.address}`);
    this.#server.listen(Number(port), hostname);
    await once(this.#server, "listening");
  }
}

function join(from: net.Socket, to: net.Socket): void {
  from.pipe(to);
  // Broken connections are the purpose of this class.
  from.on("error", () => {});
  from.once("close", () => to.destroy());
}
