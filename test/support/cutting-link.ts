import { once } from "node:events";
import net from "node:net";

/** How a connection breaks: by a reset, as when a machine dies, or by a normal end, as when a program does. */
export type CutKind = "reset" | "fin";

/** A connection to a service that breaks after a number of bytes from the service, wherever that is. */
export class CuttingLink {
  /** `host:port` for clients. */
  readonly address: string;
  readonly #server: net.Server;
  readonly #sockets: Set<net.Socket>;
  readonly #cut: Set<net.Socket>;

  private constructor(server: net.Server, sockets: Set<net.Socket>, cut: Set<net.Socket>) {
    this.#server = server;
    this.#sockets = sockets;
    this.#cut = cut;
    this.address = `127.0.0.1:${(server.address() as net.AddressInfo).port}`;
  }

  /**
   * @param target `host:port`
   * @param lengths of the connections, in bytes, in order. Later connections do not break.
   */
  static async to(target: string, kind: CutKind, lengths: readonly number[]): Promise<CuttingLink> {
    const { hostname, port } = new URL(`tcp://${target}`);
    const left = [...lengths];
    const cut = new Set<net.Socket>();
    const sockets = new Set<net.Socket>();
    const server = net.createServer({ allowHalfOpen: true }, (near) => {
      const far = net.connect({ port: Number(port), host: hostname, allowHalfOpen: true });
      for (const socket of [near, far]) {
        sockets.add(socket);
        socket.once("close", () => sockets.delete(socket));
        // Broken connections are the purpose of this class.
        socket.on("error", () => {});
      }
      let room = left.shift() ?? Number.POSITIVE_INFINITY;
      near.pipe(far);
      near.once("close", () => {
        // After an end was sent, the service must close it.
        if (room > 0) far.destroy();
      });
      far.once("close", () => near.destroy());
      far.once("end", () => near.end());
      far.on("data", (chunk: Buffer) => {
        if (room === 0) return;
        const passed = chunk.subarray(0, room);
        room -= passed.length;
        if (!near.write(passed)) {
          far.pause();
          near.once("drain", () => far.resume());
        }
        if (room > 0) return;
        cut.add(far);
        near.unpipe(far);
        if (kind === "reset") {
          near.resetAndDestroy();
          far.resetAndDestroy();
        } else {
          // Read and drop further data: unread bytes would turn the end into a reset.
          near.resume();
          far.resume();
          near.end();
          far.end();
        }
      });
    });
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    return new CuttingLink(server, sockets, cut);
  }

  /** How many connections were broken. */
  get cuts(): number {
    return this.#cut.size;
  }

  /** How many of the broken connections the service has not closed yet. */
  get lingering(): number {
    return [...this.#cut].filter((socket) => !socket.closed).length;
  }

  /** Closes it and all connections. */
  close(): void {
    this.#server.close();
    for (const socket of this.#sockets) socket.destroy();
  }
}
