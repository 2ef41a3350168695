import {
  createServer,
  request as httpRequest,
  type IncomingMessage,
  type Server,
  type ServerResponse,
  validateHeaderValue,
} from "node:http";
import { connect, type Socket } from "node:net";
import type { Duplex } from "node:stream";
import { pipeline } from "node:stream/promises";
import { connect as connectTls } from "node:tls";
import { stayOpen } from "../base/async.ts";
import { dropRest } from "../base/drop-rest.ts";
import { SharedPlaces } from "../base/shared-places.ts";
import { type Credentials, NO_CREDENTIALS } from "./credentials.ts";
import type { DomainRule } from "./domains.ts";
import { findTarget, MAX_HOST_CHARS, Refusal, type Target } from "./target.ts";

/** Limits of the proxy. */
export interface ProxyLimits {
  /** Connections of all sandboxes together, shared between owners: see {@link SharedPlaces}. */
  readonly maxConnections: number;
  /** How long a connection may be idle, in milliseconds. */
  readonly idleMs: number;
  /** How long the header of a request may take to arrive, in milliseconds. */
  readonly headersMs: number;
}

const LIMITS: ProxyLimits = { maxConnections: 1_024, idleMs: 300_000, headersMs: 30_000 };
const MAX_HEADER_BYTES = 32 * 1024;
const CONNECT_TIMEOUT_MS = 15_000;
/** How long a client may continue to send after it was answered. */
const LINGER_MS = 2_000;
const HTTP_PORT = 80;
const HTTPS_PORT = 443;

/** Headers that concern one connection only (RFC 9110), or the proxy itself. */
const HOP_BY_HOP = new Set([
  "connection",
  "keep-alive",
  "proxy-authenticate",
  "proxy-authorization",
  "proxy-connection",
  "te",
  "trailer",
  "transfer-encoding",
  "upgrade",
]);

/** Methods whose requests have no header about the body if they have no body. */
const BODILESS = new Set(["GET", "HEAD", "DELETE", "OPTIONS", "TRACE"]);

/** The owner of a connection, and the domains that it may reach. */
interface EgressClient {
  readonly owner: string;
  readonly rules: readonly DomainRule[];
}

/**
 * An HTTP proxy that connects only to the domains that a sandbox may reach, at public addresses: `CONNECT` for tunnels,
 * and plain requests for `http:` URLs. It does not listen itself: connections are passed to it together with their
 * rules. It does not follow redirects, but returns them to the client. Each connection carries one request, so that
 * limits of connections also limit those to servers.
 *
 * If the operator has configured a credential for a host, a plain request for it is sent over TLS with the credential's
 * header. Tunnels are not changed.
 */
export class EgressProxy {
  readonly #limits: ProxyLimits;
  readonly #credentials: Credentials;
  readonly #clients = new WeakMap<Duplex, EgressClient>();
  /** Connections on which something was requested. */
  readonly #used = new WeakSet<Duplex>();
  readonly #server: Server;
  readonly #connections: SharedPlaces;

  constructor(credentials: Credentials = NO_CREDENTIALS, limits: Partial<ProxyLimits> = {}) {
    this.#credentials = credentials;
    this.#limits = { ...LIMITS, ...limits };
    const { headersMs, maxConnections } = this.#limits;
    this.#connections = new SharedPlaces(maxConnections);
    this.#server = createServer({
      maxHeaderSize: MAX_HEADER_BYTES,
      headersTimeout: headersMs,
      requestTimeout: 0,
      connectionsCheckingInterval: headersMs / 3,
    });
    // Node checks for slow headers only after "listening", which this server never emits by itself.
    this.#server.emit("listening");
    this.#server.on("request", (request, response) => {
      if (this.#isFirst(request.socket)) void this.#forward(request, response);
      else refuse(response, new Refusal(503, "The egress proxy takes one request per connection."));
    });
    this.#server.on("connect", (request, client: Socket, head) => {
      if (this.#isFirst(client)) void this.#tunnel(request, client, head);
      else client.destroy();
    });
    this.#server.on("checkContinue", (request, response) => {
      response.writeContinue();
      this.#server.emit("request", request, response);
    });
  }

  /** Serves a connection until it ends. */
  serve(socket: Socket, client: EgressClient): void {
    // The connection may have ended meanwhile. Without a listener its error would be thrown.
    socket.on("error", () => socket.destroy());
    const { owner } = client;
    if (!this.#connections.hasRoomFor(owner)) {
      socket.end(
        answer(new Refusal(503, "The egress proxy has reached its limit of connections. Try again later.")),
      );
      const closed = new AbortController();
      socket.once("close", () => closed.abort());
      // As for a request: if it were closed before the client has sent that, the client could lose the answer.
      socket.resume();
      void stayOpen(LINGER_MS, closed.signal).then(() => socket.destroy());
      return;
    }
    this.#connections.take(owner);
    socket.once("close", () => this.#connections.giveBack(owner));
    socket.setTimeout(this.#limits.idleMs, () => socket.destroy());
    this.#clients.set(socket, client);
    this.#server.emit("connection", socket);
  }

  /** Stops the timers for connections. The connections themselves end with their listeners. */
  close(): void {
    this.#server.close();
  }

  /**
   * Whether this is the first request of a connection. Only that one is served: Node passes on the next ones without
   * waiting for its answer, so one connection could have any number of connections to servers.
   */
  #isFirst(socket: Duplex): boolean {
    if (this.#used.has(socket)) return false;
    this.#used.add(socket);
    return true;
  }

  async #tunnel(request: IncomingMessage, client: Socket, head: Buffer): Promise<void> {
    const gone = new AbortController();
    client.once("close", () => gone.abort());
    client.on("error", () => {});
    let upstream: Socket | undefined;
    try {
      const [hostname, port] = authority(request.url ?? "");
      const target = await this.#find(client, hostname, port, gone.signal);
      upstream = await this.#connect(target, gone.signal);
      client.setTimeout(this.#limits.idleMs, () => client.destroy());
      client.write("HTTP/1.1 200 Connection established\r\n\r\n");
      upstream.write(head);
      await Promise.all([pipeline(client, upstream), pipeline(upstream, client)]);
    } catch (error) {
      if (upstream === undefined && client.writable) client.end(answer(refusalOf(error)));
      else client.destroy();
    } finally {
      upstream?.destroy();
      // Otherwise unread data from the client would keep the connection open.
      client.resume();
    }
  }

  async #connect(target: Target, signal: AbortSignal): Promise<Socket> {
    const { host, port, lookup } = target;
    signal.throwIfAborted();
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const socket = connect({ host, port, lookup, autoSelectFamily: true, allowHalfOpen: true });
    const abort = (): void => void socket.destroy(new Error("the client has gone"));
    socket.once("connect", resolve).once("error", reject);
    socket.setTimeout(CONNECT_TIMEOUT_MS, () => socket.destroy(new Error("timed out")));
    signal.addEventListener("abort", abort);
    try {
      await promise;
    } catch (error) {
      throw new Refusal(502, `Connecting to ${host}:${port} failed: ${reasonOf(error)}.`, error);
    } finally {
      signal.removeEventListener("abort", abort);
    }
    if (signal.aborted) socket.destroy();
    socket.setTimeout(this.#limits.idleMs);
    return socket;
  }

  async #forward(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const gone = new AbortController();
    response.once("close", () => gone.abort());
    response.on("error", () => {});
    try {
      const url = absoluteUrl(request.url ?? "");
      const port = url.port === "" ? HTTP_PORT : Number(url.port);
      const added = port === HTTP_PORT ? await this.#credentialFor(request, url.hostname) : undefined;
      const target = await this.#find(request.socket, url.hostname, added ? HTTPS_PORT : port, gone.signal);
      const plain = await this.#connect(target, gone.signal);
      // Close the connection however the request ends, also if it could not be sent.
      gone.signal.addEventListener("abort", () => plain.destroy());
      const socket = added ? await secured(plain, target, this.#limits.idleMs) : plain;
      const upstream = await send(request, url, socket, added, gone.signal);
      response.writeHead(upstream.statusCode ?? 502, [
        ...passedOn(upstream.rawHeaders),
        ...["Connection", "close"],
      ]);
      // The body of a stream of events may begin much later.
      response.flushHeaders();
      await pipeline(upstream, response, { end: false });
      await end(response);
    } catch (error) {
      if (response.headersSent) response.destroy();
      else refuse(response, refusalOf(error));
    }
  }

  /** Returns the header to add to a request, with its value. */
  async #credentialFor(request: IncomingMessage, hostname: string): Promise<Header | undefined> {
    const owner = this.#clients.get(request.socket)?.owner;
    const found =
      owner === undefined ? undefined : this.#credentials.find(hostname.replace(/\.$/, ""), owner);
    if (found === undefined) return undefined;
    // A server answers TRACE with the request that it got, including the credential.
    if (request.method === "TRACE") throw new Refusal(403, `TRACE is not allowed for ${hostname}.`);
    try {
      const value = await this.#credentials.valueOf(found);
      validateHeaderValue(found.header, value);
      return { name: found.header, value };
    } catch (error) {
      throw new Refusal(
        502,
        `The credential for ${hostname} cannot be read, or has characters that no header may have. Tell the operator of this server.`,
        error,
      );
    }
  }

  #find(socket: Duplex, hostname: string, port: number, signal: AbortSignal): Promise<Target> {
    return findTarget(this.#clients.get(socket)?.rules ?? [], hostname, port, signal);
  }
}

interface Header {
  readonly name: string;
  readonly value: string;
}

/** Starts TLS over a connection. Resolves when the server has presented a valid certificate for its name. */
async function secured(socket: Socket, { host, port }: Target, idleMs: number): Promise<Socket> {
  const secure = connectTls({ socket, servername: host, ALPNProtocols: ["http/1.1"] });
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  // TLS takes over the connection, so the connection's own timer would see no activity.
  socket.setTimeout(0);
  secure.setTimeout(CONNECT_TIMEOUT_MS, () => secure.destroy(new Error("timed out")));
  secure.once("secureConnect", resolve).once("error", reject);
  socket.once("close", () => reject(new Error("the connection was closed")));
  try {
    await promise;
  } catch (error) {
    secure.destroy();
    throw new Refusal(502, `Connecting to ${host}:${port} by TLS failed: ${reasonOf(error)}.`, error);
  }
  secure.setTimeout(idleMs);
  return secure;
}

/** Forwards a request. The `Host` is always the one that was checked, regardless of the client's header. */
function send(
  request: IncomingMessage,
  url: URL,
  socket: Socket,
  added: Header | undefined,
  signal: AbortSignal,
): Promise<IncomingMessage> {
  const { promise, resolve, reject } = Promise.withResolvers<IncomingMessage>();
  const outgoing = httpRequest({
    // With an agent, this option would be ignored.
    createConnection: () => socket,
    signal,
    method: request.method,
    path: `${url.pathname}${url.search}`,
    headers: [
      ...["Host", url.host],
      ...passedOn(request.rawHeaders, "host", "content-length", ...(added ? [added.name] : [])),
      ...framingOf(request),
      ...(added ? [added.name, added.value] : []),
      ...["Connection", "close"],
    ],
    maxHeaderSize: MAX_HEADER_BYTES,
  });
  outgoing.once("response", resolve);
  outgoing.on("error", (error) =>
    reject(new Refusal(502, `${url.host} did not answer: ${reasonOf(error)}.`, error)),
  );
  // If a server switches protocols without being asked, the request closes without an error.
  outgoing.once("close", () =>
    reject(new Refusal(502, `${url.host} did not answer: it changed to another protocol.`)),
  );
  request.pipe(outgoing);
  return promise;
}

/**
 * The headers by which the server finds the end of the body, as the client sent them. Node sends a chunked body of a
 * GET or DELETE without any framing. The server would then interpret the body as a new request, whose `Host` was not
 * checked.
 */
function framingOf({ headers, method = "" }: IncomingMessage): string[] {
  const { "transfer-encoding": encoding, "content-length": length } = headers;
  if (encoding !== undefined) return ["Transfer-Encoding", encoding];
  if (length !== undefined) return ["Content-Length", length];
  return BODILESS.has(method) ? [] : ["Content-Length", "0"];
}

/** Parses the host and port of a `CONNECT`. */
function authority(text: string): [string, number] {
  const [, host, port] = /^(\[[^\]]*\]|[^:/@?#]+):(\d{1,5})$/.exec(text) ?? [];
  if (host === undefined) throw new Refusal(400, "CONNECT needs a target such as example.org:443.");
  return [host, Number(port)];
}

function absoluteUrl(text: string): URL {
  const [, name = ""] = /^http:\/\/([^/\\?#]+)/i.exec(text) ?? [];
  const url = name.length <= MAX_HOST_CHARS && URL.canParse(text) ? new URL(text) : undefined;
  if (name !== "" && url?.protocol === "http:") return url;
  throw new Refusal(
    400,
    "This is an HTTP proxy: it takes requests for http:// URLs, and CONNECT for everything else.",
  );
}

/** The end-to-end headers, as alternating names and values. */
function passedOn(rawHeaders: readonly string[], ...without: readonly string[]): string[] {
  const dropped = new Set(without);
  for (let i = 0; i < rawHeaders.length; i += 2) {
    if (rawHeaders[i]?.toLowerCase() !== "connection") continue;
    for (const name of rawHeaders[i + 1]?.split(",") ?? []) dropped.add(name.trim().toLowerCase());
  }
  const kept: string[] = [];
  for (let i = 0; i < rawHeaders.length; i += 2) {
    const [name = "", value = ""] = rawHeaders.slice(i, i + 2);
    if (!HOP_BY_HOP.has(name.toLowerCase()) && !dropped.has(name.toLowerCase())) kept.push(name, value);
  }
  return kept;
}

function refusalOf(error: unknown): Refusal {
  return error instanceof Refusal ? error : new Refusal(502, "The egress proxy failed.", error);
}

function refuse(response: ServerResponse, { status, message }: Refusal): void {
  const body = `${message}\n`;
  response.writeHead(status, {
    "Content-Type": "text/plain; charset=utf-8",
    "Content-Length": Buffer.byteLength(body),
    Connection: "close",
  });
  response.write(body);
  void end(response);
}

/** Ends an answer, and with it the connection, when the client has sent its request. */
async function end(response: ServerResponse): Promise<void> {
  await dropRest(response.req.unpipe(), LINGER_MS);
  response.end();
}

/** A complete response, for sockets that no longer speak HTTP. */
function answer({ status, message }: Refusal): string {
  const body = `${message}\n`;
  const length = Buffer.byteLength(body);
  return `HTTP/1.1 ${status} Refused\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: ${length}\r\nConnection: close\r\n\r\n${body}`;
}

function reasonOf(error: unknown): string {
  const { code, message } = error as NodeJS.ErrnoException;
  return code ?? (message || "no address answers");
}
