import { once } from "node:events";
import { rmSync } from "node:fs";
import net from "node:net";
import path from "node:path";
import { newDataDir } from "./settings.ts";

/**
 * What happens between the service and the Docker daemon: `pass` everything, `hang` with everything half done, `refuse`
 * and break every connection, or `truncate` each response after its first bytes.
 */
export type Fault = "pass" | "hang" | "refuse" | "truncate";

const DOCKER_SOCKET = "/var/run/docker.sock";
/** Cuts a response at the end of its headers or early in its body. */
const TRUNCATED_BYTES = 300;

/** A socket in front of Docker's that fails on purpose. */
export class FaultProxy {
  readonly path = path.join(newDataDir(), "docker.sock");
  readonly #server = net.createServer({ allowHalfOpen: true }, (client) => this.#accept(client));
  readonly #pairs = new Set<readonly [net.Socket, net.Socket]>();
  /** The daemon's ends of connections that carry events. */
  readonly #events = new Set<net.Socket>();
  #fault: Fault = "pass";
  /** Breaks each connection on which such a request is sent. */
  breaks: RegExp | undefined;

  static async start(): Promise<FaultProxy> {
    const proxy = new FaultProxy();
    proxy.#server.listen(proxy.path);
    await once(proxy.#server, "listening");
    return proxy;
  }

  /** In the form of `DOCKER_HOST`. */
  get host(): string {
    return `unix://${this.path}`;
  }

  set fault(fault: Fault) {
    this.#fault = fault;
    for (const pair of this.#pairs) {
      for (const socket of pair) {
        if (fault === "refuse" || fault === "truncate") socket.destroy();
        else if (fault === "hang") socket.pause();
        else socket.resume();
      }
    }
  }

  /** Holds back events, and forwards everything else. Returns a function that releases them. */
  holdEvents(): () => void {
    for (const socket of this.#events) socket.pause();
    return () => {
      for (const socket of this.#events) socket.resume();
    };
  }

  async stop(): Promise<void> {
    for (const pair of this.#pairs) for (const socket of pair) socket.destroy();
    this.#server.close();
    await once(this.#server, "close");
    rmSync(this.path, { force: true });
  }

  #accept(client: net.Socket): void {
    if (this.#fault === "refuse") {
      client.destroy();
      return;
    }
    const docker = net.connect({ path: DOCKER_SOCKET, allowHalfOpen: true });
    const pair = [client, docker] as const;
    this.#pairs.add(pair);
    let answered = 0;
    client.on("data", (data) => {
      if (this.breaks?.test(data.toString("latin1"))) client.destroy();
      if (data.includes("GET /events")) this.#events.add(docker);
      docker.write(data);
    });
    docker.once("close", () => this.#events.delete(docker));
    docker.on("data", (data) => {
      answered += data.length;
      client.write(data);
      if (this.#fault === "truncate" && answered >= TRUNCATED_BYTES) client.destroy();
    });
    for (const [one, other] of [pair, [docker, client] as const]) {
      one.on("end", () => other.end());
      one.on("error", () => other.destroy());
      one.on("close", () => {
        other.destroy();
        this.#pairs.delete(pair);
      });
      if (this.#fault === "hang") one.pause();
    }
  }
}
