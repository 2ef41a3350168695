import type { Server, Socket } from "node:net";
import { BerthError, throwIfAborted } from "../base/errors.ts";
import type { Logger } from "../base/logger.ts";
import type { Engine } from "../engine/port.ts";
import type { Credentials } from "./credentials.ts";
import { type DomainRule, parseDomainRule } from "./domains.ts";
import { EgressProxy } from "./proxy.ts";

/** Port of the proxy on a sandbox's loopback interface. */
const PORT = 3128;
const PROXY = `http://127.0.0.1:${PORT}`;
const NO_PROXY = "localhost,127.0.0.1,::1";

/** Variables from which programs learn the proxy: some read upper case, some lower case. */
export const PROXY_ENV: Readonly<Record<string, string>> = {
  HTTP_PROXY: PROXY,
  HTTPS_PROXY: PROXY,
  NO_PROXY,
  http_proxy: PROXY,
  https_proxy: PROXY,
  no_proxy: NO_PROXY,
};

/** Limit of connections per sandbox. The kernel refuses more. */
const MAX_CONNECTIONS = 64;

/** A sandbox with its `egress_domains`. */
interface EgressSandbox {
  readonly ref: string;
  readonly owner: string;
  readonly spec: { readonly egressDomains: readonly string[] };
}

/**
 * Gives sandboxes without a network access to their allowed domains: a port on their own loopback interface, whose
 * connections the service's proxy serves.
 */
export class EgressManager {
  readonly #engine: Engine;
  readonly #logger: Logger;
  readonly #proxy: EgressProxy;
  readonly #doors = new Map<string, Door>();

  constructor(engine: Engine, logger: Logger, credentials?: Credentials) {
    this.#engine = engine;
    this.#logger = logger;
    this.#proxy = new EgressProxy(credentials);
  }

  /**
   * Opens a sandbox's port, unless it is already open or the spec has no domains.
   * @throws as {@link Engine.listen}.
   */
  async open(sandbox: EgressSandbox, signal?: AbortSignal): Promise<void> {
    const { ref, spec } = sandbox;
    if (spec.egressDomains.length === 0) return;
    const door = this.#doors.get(ref) ?? this.#doorOf(sandbox, signal);
    this.#doors.set(ref, door);
    try {
      await door.opened;
    } catch (error) {
      if (this.#doors.get(ref) === door) this.#doors.delete(ref);
      throw error;
    }
    throwIfAborted(signal);
  }

  /**
   * Reopens the port of a sandbox of an earlier run of the service. A failure is logged, and leaves the sandbox without
   * a network.
   */
  reopen(sandbox: EgressSandbox): void {
    this.open(sandbox).catch((error: unknown) => {
      this.#logger.warn({ ref: sandbox.ref, err: error }, "a sandbox cannot reach its egress domains");
    });
  }

  /** Closes a sandbox's port and its connections. */
  close(ref: string): void {
    this.#doors.get(ref)?.close();
    this.#doors.delete(ref);
  }

  stop(): void {
    for (const ref of [...this.#doors.keys()]) this.close(ref);
    this.#proxy.close();
  }

  #doorOf({ ref, owner, spec }: EgressSandbox, signal?: AbortSignal): Door {
    const client = { owner, rules: spec.egressDomains.map(ruleOf) };
    const opening = this.#engine.listen(ref, PORT, signal);
    return new Door(opening, (socket) => this.#proxy.serve(socket, client));
  }
}

function ruleOf(text: string): DomainRule {
  const rule = parseDomainRule(text);
  if (typeof rule === "string") throw new BerthError("INVALID_ARGUMENT", `${JSON.stringify(text)}: ${rule}.`);
  return rule;
}

/** The port of a sandbox, with its connections. */
class Door {
  readonly opened: Promise<void>;
  readonly #connections = new Set<Socket>();
  #server: Server | undefined;
  #closed = false;

  constructor(opening: Promise<Server>, serve: (socket: Socket) => void) {
    this.opened = opening.then((server) => {
      this.#server = server;
      // A client may close its side first and still wait for the answer.
      Object.assign(server, { allowHalfOpen: true });
      server.maxConnections = MAX_CONNECTIONS;
      server.on("error", () => {});
      server.on("connection", (socket) => {
        this.#connections.add(socket);
        socket.once("close", () => this.#connections.delete(socket));
        serve(socket);
      });
      if (this.#closed) this.close();
    });
  }

  close(): void {
    this.#closed = true;
    this.#server?.close();
    for (const socket of this.#connections) socket.destroy();
  }
}
