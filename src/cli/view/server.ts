import { randomBytes, timingSafeEqual } from "node:crypto";
import { once } from "node:events";
import { createReadStream } from "node:fs";
import http from "node:http";
import type { AddressInfo } from "node:net";
import type { Duplex } from "node:stream";
import { pipeline } from "node:stream/promises";
import { type WebSocket, WebSocketServer } from "ws";
import { Failed } from "../exit.ts";
import { type About, type PageFile, pageFiles } from "./page.ts";
import { userBehind } from "./user-behind.ts";

interface ViewServerOptions {
  readonly about: About;
  /** 0: any free port. */
  readonly port: number;
  /** Handles each connection of the page. */
  readonly onSocket: (socket: WebSocket) => void;
}

/** The number of tabs, each with its own view. */
const MAX_SOCKETS = 8;
const MAX_MESSAGE_BYTES = 1024 * 1024;
const TOKEN_BYTES = 24;

/**
 * Serves the page of a view and its WebSocket on the loopback address. Only clients that know the URL get an answer:
 * neither other users of the machine do, nor web pages from elsewhere, under whatever name of this machine.
 */
export class ViewServer {
  readonly url: string;
  /**
   * A URL that leads this process's user to the page, and nobody else. It may be in the arguments of a process, where
   * every user of the machine can read it.
   */
  readonly ownUrl: string;
  readonly #hosts: ReadonlySet<string>;
  readonly #files: ReadonlyMap<string, PageFile>;
  readonly #prefix: string;
  readonly #ownPath: string;
  readonly #http: http.Server;
  readonly #sockets: WebSocketServer;

  private constructor(server: http.Server, files: ReadonlyMap<string, PageFile>, options: ViewServerOptions) {
    const { port } = server.address() as AddressInfo;
    this.#hosts = new Set([`127.0.0.1:${port}`, `localhost:${port}`]);
    this.#prefix = `/${newToken()}/`;
    this.url = `http://127.0.0.1:${port}${this.#prefix}`;
    this.#ownPath = `/${newToken()}`;
    this.ownUrl = `http://127.0.0.1:${port}${this.#ownPath}`;
    this.#files = files;
    this.#http = server;
    this.#sockets = new WebSocketServer({
      noServer: true,
      maxPayload: MAX_MESSAGE_BYTES,
      perMessageDeflate: false,
    });
    this.#sockets.on("connection", options.onSocket);
    server.on("request", (request, response) => void this.#answer(request, response));
    server.on("upgrade", (request, socket, head) => this.#upgrade(request, socket, head));
  }

  /** @throws Failed if the port is taken. */
  static async start(options: ViewServerOptions): Promise<ViewServer> {
    const files = await pageFiles(options.about);
    const server = http.createServer();
    try {
      await once(server.listen(options.port, "127.0.0.1"), "listening");
    } catch (cause) {
      const { code } = cause as NodeJS.ErrnoException;
      throw new Failed(`port ${options.port} cannot be used (${code})`, {
        hint: "Leave out --port for any free one.",
        cause,
      });
    }
    return new ViewServer(server, files, options);
  }

  /** Stops it and closes every connection. */
  close(): void {
    for (const socket of this.#sockets.clients) socket.close(1001, "berth was stopped.");
    this.#http.close();
    this.#http.closeAllConnections();
    for (const socket of this.#sockets.clients) socket.terminate();
  }

  async #answer(request: http.IncomingMessage, response: http.ServerResponse): Promise<void> {
    if (this.#isOurs(request) && request.url === this.#ownPath) return this.#lead(request, response);
    const name = this.#nameIn(request);
    const file = name === undefined ? undefined : this.#files.get(name);
    if (file === undefined) return refuse(response, 404);
    if (request.method !== "GET" && request.method !== "HEAD") return refuse(response, 405);
    response.writeHead(200, { ...this.#headers(request), "content-type": file.type });
    if (request.method === "HEAD") response.end();
    else if (typeof file.content === "string") response.end(file.content);
    // The client has left early: ignore it.
    else await pipeline(createReadStream(file.content.path), response).catch(() => response.destroy());
  }

  async #lead(request: http.IncomingMessage, response: http.ServerResponse): Promise<void> {
    const user = await userBehind(request.socket).catch(() => undefined);
    if (user === undefined || user !== process.geteuid?.())
      return refuse(response, 403, "Only the user who runs berth may open this. It printed another URL.");
    response.writeHead(303, { ...this.#headers(request), location: this.#prefix }).end();
  }

  #upgrade(request: http.IncomingMessage, socket: Duplex, head: Buffer): void {
    socket.on("error", () => socket.destroy());
    const isOurs =
      this.#nameIn(request) === "socket" && request.headers.origin === `http://${request.headers.host}`;
    const refusal = !isOurs
      ? "403 Forbidden"
      : this.#sockets.clients.size >= MAX_SOCKETS
        ? "503 Service Unavailable"
        : undefined;
    if (refusal !== undefined) {
      socket.end(`HTTP/1.1 ${refusal}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n`);
      return;
    }
    this.#sockets.handleUpgrade(request, socket, head, (opened) => {
      this.#sockets.emit("connection", opened, request);
    });
  }

  /** The name of the requested file. Undefined if the client does not know the URL. */
  #nameIn(request: http.IncomingMessage): string | undefined {
    if (!this.#isOurs(request)) return undefined;
    const { url = "" } = request;
    const given = Buffer.from(url.slice(0, this.#prefix.length));
    const wanted = Buffer.from(this.#prefix);
    if (given.length !== wanted.length || !timingSafeEqual(given, wanted)) return undefined;
    return url.slice(this.#prefix.length);
  }

  /** Whether the client calls this server by its own name. */
  #isOurs({ headers: { host = "" } }: http.IncomingMessage): boolean {
    return this.#hosts.has(host);
  }

  #headers({ headers: { host } }: http.IncomingMessage): http.OutgoingHttpHeaders {
    return {
      "content-security-policy":
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; " +
        `connect-src 'self' ws://${host}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'`,
      "cross-origin-resource-policy": "same-origin",
      "cross-origin-opener-policy": "same-origin",
      "x-content-type-options": "nosniff",
      "referrer-policy": "no-referrer",
      "cache-control": "no-store",
    };
  }
}

function newToken(): string {
  return randomBytes(TOKEN_BYTES).toString("base64url");
}

function refuse(response: http.ServerResponse, status: number, why = http.STATUS_CODES[status]): void {
  response.writeHead(status, { "content-type": "text/plain" }).end(`${why}\n`);
}
