import { once } from "node:events";
import net from "node:net";
import { ownLoopback } from "./settings.ts";

/** A connection to a service that can be cut, like a network cable or the power of a client's machine. */
export class CuttableLink {
  /** `host:port` for clients. */
  readonly address: string;
  readonly #server: net.Server;
  readonly #sockets: Set<net.Socket>;
  readonly #isPatient: boolean;
  #isCut = false;

  private constructor(server: net.Server, sockets: Set<net.Socket>, isPatient: boolean) {
    this.#server = server;
    this.#sockets = sockets;
    this.#isPatient = isPatient;
    const { address, port } = server.address() as net.AddressInfo;
    this.address = `${address}:${port}`;
  }

  /**
   * @param target `host:port`
   * @param isPatient clients that connect while the link is cut, or while nobody listens at the target, wait. They are
   *   refused otherwise.
   */
  static async to(target: string, { isPatient = false } = {}): Promise<CuttableLink> {
    const { hostname, port } = new URL(`tcp://${target}`);
    const sockets = new Set<net.Socket>();
    const server = net.createServer((near) => {
      near.on("error", () => {});
      sockets.add(near);
      near.once("close", () => sockets.delete(near));
      link.#connect(near, () => net.connect(Number(port), hostname));
    });
    server.listen(0, ownLoopback());
    await once(server, "listening");
    const link = new CuttableLink(server, sockets, isPatient);
    return link;
  }

  #connect(near: net.Socket, reach: () => net.Socket): void {
    if (near.destroyed) return;
    const onFailure = () => {
      if (this.#isPatient) setTimeout(() => this.#connect(near, reach), 50);
      else near.destroy();
    };
    if (this.#isCut) {
      onFailure();
      return;
    }
    const far = reach();
    far.once("close", onFailure);
    // Broken connections are the purpose of this class.
    far.on("error", () => {});
    far.once("connect", () => {
      far.off("close", onFailure);
      join(near, far);
      join(far, near);
      // It may have left meanwhile.
      if (near.destroyed) far.destroy();
    });
  }

  /** Breaks every connection, and lets no more through. */
  cut(): void {
    this.#isCut = true;
    if (!this.#isPatient) this.#server.close();
    for (const socket of this.#sockets) socket.destroy();
  }

  /** Lets connections through again, at the same address. */
  async restore(): Promise<void> {
    this.#isCut = false;
    if (this.#server.listening) return;
    const { hostname, port } = new URL(`tcp://${this.address}`);
    this.#server.listen(Number(port), hostname);
    await once(this.#server, "listening");
  }

  /** Ends it. */
  close(): void {
    this.cut();
    this.#server.close();
  }
}

function join(from: net.Socket, to: net.Socket): void {
  from.pipe(to);
  from.once("close", () => to.destroy());
}
