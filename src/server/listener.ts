import { constants } from "node:crypto";
import http from "node:http";
import http2 from "node:http2";
import net from "node:net";
import tls from "node:tls";
import { BerthError } from "../base/errors.ts";
import type { Logger } from "../base/logger.ts";
import { TurnShare } from "../base/turn-share.ts";
import type { HttpRequest, HttpResponse } from "./http-message.ts";
import type { RpcLimits } from "./limits.ts";
import { formatListenAddress, type ListenAddress } from "./listen-address.ts";
import { joinSmallPieces } from "./small-pieces.ts";
import { clearStaleSocket, listenOnSocket } from "./unix-socket.ts";

/** The certificates of a TLS port, in PEM. */
export interface TlsOptions {
  /** Certificate chain. */
  readonly cert: string | Buffer;
  /** The private key of the certificate. */
  readonly key: string | Buffer;
  /** Authorities of the certificates that clients must present. Undefined: clients need none. */
  readonly clientCa?: string | Buffer | undefined;
}

interface ListenerOptions {
  readonly listen: ListenAddress;
  /** Undefined: no encryption. */
  readonly tls: TlsOptions | undefined;
  readonly limits: RpcLimits;
  readonly logger: Logger;
  readonly onRequest: (request: HttpRequest, response: HttpResponse) => void;
}

type StreamListener = (
  stream: http2.ServerHttp2Stream,
  headers: http2.IncomingHttpHeaders,
  flags: number,
  rawHeaders: string[],
) => void;

/**
 * How much a client may send before it gets an acknowledgement, per call and per connection. Large, so that uploads do
 * not wait for the round trip. Node acknowledges to a connection what it has not passed on to its calls, so each of these
 * may leave this much unread: see `Calls.countUnread`.
 */
const WINDOW_BYTES = 8 << 20;
/**
 * As much as Node reads from a socket at once. The default of 16 KiB costs four times as many events for an upload from
 * clients that make use of it (gRPC for C++ and Python, Netty). A larger frame would only delay other calls of its
 * connection.
 */
const MAX_FRAME_BYTES = 64 * 1024;
const MAX_HEADER_BYTES = 32 * 1024;
/**
 * In MB: no limit. Node never subtracts what a canceled response had left to send, and beyond the limit it refuses every
 * call on the connection for as long as that lives. What calls hold is bounded for each and for all together.
 */
const MAX_SESSION_MEMORY = 1_000_000;

/**
 * One port (or Unix socket) for HTTP/1 and HTTP/2. A front server accepts the connections and hands each to one of two
 * servers that do not listen themselves, by the protocol that TLS negotiated or by the first bytes.
 */
export class Listener {
  readonly #options: ListenerOptions;
  readonly #front: net.Server;
  readonly #http1: http.Server;
  readonly #http2: http2.Http2Server;
  readonly #sockets = new Set<net.Socket>();
  readonly #sessions = new Set<http2.Http2Session>();
  readonly #arrivals = new TurnShare();
  /** The connections over HTTP/1, with the answers that are not sent to their end. */
  readonly #answers = new Map<net.Socket, Set<http.ServerResponse>>();
  #draining = false;

  constructor(options: ListenerOptions) {
    this.#options = options;
    const { limits, onRequest } = options;
    this.#http1 = http.createServer(
      {
        headersTimeout: limits.headersTimeoutMs,
        keepAliveTimeout: limits.keepAliveTimeoutMs,
        connectionsCheckingInterval: limits.headersTimeoutMs / 2,
        // No limit: it applies to whole requests, and a stream of requests may last for days. Calls have their own
        // limits.
        requestTimeout: 0,
        maxHeaderSize: MAX_HEADER_BYTES,
      },
      (request, response) => {
        if (!this.#hasRoomFor(request, response)) return;
        void this.#inTurn(response, () => onRequest(request, response));
      },
    );
    // Node checks for slow headers only on a server that listens.
    this.#http1.emit("listening");
    this.#http2 = http2.createServer(
      {
        settings: {
          initialWindowSize: WINDOW_BYTES,
          maxFrameSize: MAX_FRAME_BYTES,
          maxConcurrentStreams: limits.maxConcurrentStreams,
          maxHeaderListSize: MAX_HEADER_BYTES,
        },
        maxSessionMemory: MAX_SESSION_MEMORY,
        // A client may cancel all its calls at once. More than that is a flood, in which each call costs the server
        // more than the client, so the connection is ended.
        streamResetBurst: limits.maxConcurrentStreams,
        streamResetRate: limits.maxConcurrentStreams,
        // One for each upload that ends, and one that checks the connection.
        maxOutstandingPings: limits.maxConcurrentStreams + 1,
      },
      (request, response) => {
        // If the request is empty, its end may have arrived while its stream waited.
        if (request.stream.readableEnded) request.push(null);
        onRequest(request, response);
      },
    );
    this.#beginStreamsInTurn();
    this.#http2.on("session", (session) => {
      this.#sessions.add(session);
      session.once("close", () => this.#sessions.delete(session));
      superviseSession(session, { windowBytes: WINDOW_BYTES, ...limits });
      if (this.#draining) session.close();
    });
    this.#front = this.#createFront();
    this.#front.maxConnections = limits.maxConnections;
  }

  /**
   * Starts listening.
   *
   * @returns the address, with the chosen port if it was 0
   * @throws BerthError that says why it cannot listen there
   */
  async start(): Promise<ListenAddress> {
    const { listen, limits } = this.#options;
    if (listen.kind === "unix") await clearStaleSocket(listen.path);
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    this.#front.once("listening", resolve);
    this.#front.once("error", reject);
    try {
      if (listen.kind === "unix") listenOnSocket(this.#front, listen.path);
      else this.#front.listen({ port: listen.port, host: listen.host === "" ? undefined : listen.host });
      await promise;
    } catch (error) {
      this.#http1.close();
      throw listenError(listen, error);
    } finally {
      this.#front.off("error", reject);
    }
    this.#front.on("error", (error) => this.#options.logger.error({ err: error }, "listener failed"));
    this.#front.on("drop", () =>
      this.#options.logger.warn({ limit: limits.maxConnections }, "connection refused: too many"),
    );
    const bound = this.#front.address();
    if (listen.kind === "unix" || bound === null || typeof bound === "string") return listen;
    return { kind: "tcp", host: bound.address, port: bound.port };
  }

  /**
   * Uses another certificate and key, and other client authorities if there are any, for new connections.
   * @throws if they cannot be used. Then nothing changes.
   */
  setTls(keys: TlsOptions): void {
    if (this.#front instanceof tls.Server) this.#front.setSecureContext(contextOf(keys));
  }

  /** Accepts no further connections or HTTP/2 calls, and closes connections: idle ones at once, others when they are. */
  drain(): void {
    this.#draining = true;
    if (this.#front.listening) this.#front.close();
    // Sends GOAWAY, and closes the connection when its streams are done.
    for (const session of this.#sessions) session.close();
    for (const [socket, answers] of this.#answers) {
      if (answers.size === 0) socket.destroy();
      for (const answer of answers) closeAfter(answer);
    }
  }

  /** How many bytes the open connections have sent, which stands still while no client reads. */
  get sentBytes(): number {
    return [...this.#sockets].reduce((sum, socket) => sum + socket.bytesWritten - socket.writableLength, 0);
  }

  /** Closes everything that is still open. */
  async destroy(): Promise<void> {
    this.drain();
    const closed = Array.from(
      this.#sockets,
      (socket) => new Promise<void>((resolve) => socket.once("close", () => resolve())),
    );
    for (const session of this.#sessions) session.destroy();
    for (const socket of this.#sockets) socket.destroy();
    this.#http1.close();
    await Promise.all(closed);
  }

  /**
   * Makes each stream wait for its turn before Node creates its request and response, which are most of the cost of a
   * call that is canceled at once.
   */
  #beginStreamsInTurn(): void {
    const server = this.#http2;
    const [begin] = server.listeners("stream") as ((...args: Parameters<StreamListener>) => void)[];
    if (!begin) throw new Error("Node's HTTP/2 server no longer listens for its streams");
    server.removeAllListeners("stream");
    server.on("stream", (stream, ...rest) => {
      // Node adds its own error listener only together with the request.
      stream.on("error", () => {});
      joinSmallPieces(stream);
      void this.#inTurn(stream, () => begin.call(server, stream, ...rest));
    });
  }

  /**
   * Whether a request over HTTP/1 may begin. If its connection has more unanswered requests than HTTP/2 allows, it is
   * closed: Node reads any number of them from a client that waits for no answer.
   */
  #hasRoomFor({ socket }: http.IncomingMessage, response: http.ServerResponse): boolean {
    const answers = this.#answers.get(socket);
    answers?.add(response);
    response.once("close", () => answers?.delete(response));
    if (this.#draining) closeAfter(response);
    const hasRoom = answers !== undefined && answers.size <= this.#options.limits.maxConcurrentStreams;
    if (!hasRoom) socket.destroy();
    return hasRoom;
  }

  /** Starts a call in its turn, unless it was canceled by then. */
  async #inTurn(call: { readonly destroyed: boolean }, begin: () => void): Promise<void> {
    // A client may send hundreds of calls at once that it has already canceled.
    const turn = this.#arrivals.enter();
    if (turn) await turn;
    if (!call.destroyed) begin();
  }

  #createFront(): net.Server {
    const { tls: keys, limits } = this.#options;
    const socketOptions = {
      allowHalfOpen: true,
      noDelay: true,
      keepAlive: true,
      keepAliveInitialDelay: limits.pingIntervalMs,
    };
    if (!keys) {
      const front = net.createServer(socketOptions);
      front.on("connection", (socket) => {
        if (!this.#track(socket)) return;
        sniffProtocol(socket, limits, (version) => this.#serve(socket, version));
      });
      return front;
    }
    const front = tls.createServer({
      ...socketOptions,
      ...contextOf(keys),
      ...(keys.clientCa !== undefined && { requestCert: true, rejectUnauthorized: true }),
      ALPNProtocols: ["h2", "http/1.1"],
      handshakeTimeout: limits.sniffTimeoutMs,
    });
    const peers = new WeakMap<object, string | undefined>();
    front.on("connection", (socket: net.Socket) => {
      if (this.#track(socket)) peers.set(socket, socket.remoteAddress);
    });
    front.on("secureConnection", (socket) => {
      if (!this.#track(socket)) return;
      // HTTP/2 over TLS is always negotiated (RFC 9113, 3.2).
      if (socket.alpnProtocol === "h2") this.#serve(socket, "http2");
      else sniffProtocol(socket, limits, () => this.#serve(socket, "http1"));
    });
    const refused = new WeakSet<tls.TLSSocket>();
    // Node reports a failed or slow handshake, but leaves the connection open.
    front.on("tlsClientError", (error: NodeJS.ErrnoException, socket) => {
      // Of a connection that Node has closed for its certificate, only the socket below is left to tell the address.
      const peer = peers.get(Reflect.get(socket, "_parent"));
      // Some failures are reported twice.
      if (!refused.has(socket)) this.#logRefusal(error, socket, peer);
      refused.add(socket);
      socket.destroy();
    });
    return front;
  }

  /** Says why a TLS connection was refused: its client often gets no reason. */
  #logRefusal(
    { code }: NodeJS.ErrnoException,
    { authorizationError }: tls.TLSSocket,
    peer: string | undefined,
  ): void {
    // In spite of its type it is the code of an error. Without one, whoever closes a connection looked at the port.
    const problem = authorizationError ? String(authorizationError) : code;
    if (problem === "ECONNRESET") return;
    this.#options.logger.info({ peer, problem }, "a TLS connection was refused");
  }

  /**
   * Whether a connection is served. If its client has already reset it, it is closed: it has no address any more, and
   * nobody gets its answers. Otherwise Node keeps the address from now on.
   */
  #track(socket: net.Socket): boolean {
    this.#sockets.add(socket);
    socket.once("close", () => this.#sockets.delete(socket));
    // The close of a broken connection ends its calls. Nothing else is necessary.
    socket.on("error", () => {});
    const isServed = this.#options.listen.kind === "unix" || socket.remoteAddress !== undefined;
    if (!isServed) socket.destroy();
    return isServed;
  }

  #serve(socket: net.Socket, version: "http1" | "http2"): void {
    if (version === "http2") socket.allowHalfOpen = false;
    else {
      this.#answers.set(socket, new Set());
      socket.once("close", () => this.#answers.delete(socket));
    }
    const server = version === "http2" ? this.#http2 : this.#http1;
    server.emit("connection", socket);
    // While responses wait for their reader, Node stops its parser but continues to read. A TCP packet may contain
    // several TLS records, and a record for a stopped parser ends the connection. With a listener, Node reads through
    // the stream, which stops as well.
    if (version === "http1" && socket instanceof tls.TLSSocket) socket.on("data", () => {});
  }
}

/** Closes the connection after this answer. Its headers say so if they are not sent yet: HTTP/1 has no GOAWAY. */
function closeAfter(answer: http.ServerResponse): void {
  answer.shouldKeepAlive = false;
}

function contextOf({ cert, key, clientCa }: TlsOptions): tls.SecureContextOptions {
  const options: tls.SecureContextOptions = { cert, key, minVersion: "TLSv1.2" };
  // A connection that resumes the session of an earlier one does not check the client's certificate again. With every
  // resumption the client gets another ticket, so it would never notice that its certificate has expired.
  return clientCa === undefined
    ? options
    : { ...options, ca: clientCa, secureOptions: constants.SSL_OP_NO_TICKET };
}

function listenError(listen: ListenAddress, error: unknown): unknown {
  if (error instanceof BerthError || !(error instanceof Error)) return error;
  const { code } = error as NodeJS.ErrnoException;
  const where = formatListenAddress(listen);
  const problem =
    code === "EADDRINUSE"
      ? "another program uses it. Stop that one, or choose another address with --listen."
      : code === "EACCES"
        ? "this user may not. Choose a port above 1023, or a directory that it may write."
        : code === "EADDRNOTAVAIL" || code === "ENOTFOUND" || code === "EAI_AGAIN"
          ? "this machine has no such address. Choose another with --listen."
          : `${error.message}.`;
  return new BerthError("INVALID_ARGUMENT", `Cannot listen on ${where}: ${problem}`, {
    metadata: { address: where },
    cause: error,
  });
}

/** How a session is supervised. */
export interface SessionOptions {
  /** How much a client may send before it gets an acknowledgement, for the whole connection, in bytes. */
  readonly windowBytes: number;
  readonly pingIntervalMs: number;
  readonly pingTimeoutMs: number;
}

/**
 * The time to answer a ping is over when this many equal parts of it are. The event loop turns between them, and reads
 * what has arrived: however long the service itself was halted, that counts as one part.
 */
const PING_PARTS = 10;

/** Sets the connection's window, and ends the session if the client does not answer pings. */
function superviseSession(session: http2.ServerHttp2Session, options: SessionOptions): void {
  session.on("error", () => session.destroy());
  session.setLocalWindowSize(options.windowBytes);
  let deadline: NodeJS.Timeout | undefined;
  const interval = setInterval(() => {
    // A closing session refuses pings.
    if (session.closed || session.destroyed || deadline) return;
    let parts = PING_PARTS;
    let isAsked = false;
    const ask = (): void => {
      isAsked = true;
      session.ping((error) => {
        // Node refuses a ping while a client has too many to answer.
        isAsked = error === null;
        if (!isAsked) return;
        clearInterval(deadline);
        deadline = undefined;
      });
    };
    deadline = setInterval(() => {
      parts -= 1;
      if (parts === 0) session.destroy();
      else if (!isAsked && !session.destroyed) ask();
    }, options.pingTimeoutMs / PING_PARTS);
    ask();
  }, options.pingIntervalMs);
  interval.unref();
  session.once("close", () => {
    clearInterval(interval);
    clearInterval(deadline);
  });
}

/** The first bytes of every HTTP/2 connection (RFC 9113, 3.4). */
const PREFACE = Buffer.from("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "latin1");

/**
 * Detects by the first bytes whether a client speaks HTTP/2 or HTTP/1, puts the bytes back, and calls `decided`. If the
 * protocol is not clear in time, or the connection ends before, the connection is destroyed without a call. Clients
 * keep spare connections that have sent nothing: these may stay open as long as idle used ones.
 */
function sniffProtocol(
  socket: net.Socket,
  { keepAliveTimeoutMs, sniffTimeoutMs }: Pick<RpcLimits, "keepAliveTimeoutMs" | "sniffTimeoutMs">,
  decided: (version: "http1" | "http2") => void,
): void {
  let seen = Buffer.alloc(0);
  let timer = setTimeout(() => socket.destroy(), keepAliveTimeoutMs);
  const stop = () => {
    clearTimeout(timer);
    socket.off("readable", onReadable);
    socket.off("end", onGone);
    socket.off("close", onGone);
  };
  const onGone = () => {
    stop();
    socket.destroy();
  };
  const onReadable = () => {
    const chunk: Buffer | null = socket.read();
    if (chunk === null) return;
    if (seen.length === 0) {
      clearTimeout(timer);
      timer = setTimeout(() => socket.destroy(), sniffTimeoutMs);
    }
    seen = Buffer.concat([seen, chunk]);
    const compared = Math.min(seen.length, PREFACE.length);
    const alike = seen.compare(PREFACE, 0, compared, 0, compared) === 0;
    if (alike && compared < PREFACE.length) return;
    stop();
    socket.unshift(seen);
    decided(alike ? "http2" : "http1");
  };
  socket.on("readable", onReadable);
  socket.once("end", onGone);
  socket.once("close", onGone);
}
