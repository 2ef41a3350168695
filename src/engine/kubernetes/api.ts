import { once } from "node:events";
import { Agent, request as httpRequest, type IncomingMessage } from "node:http";
import { type AgentOptions, request as httpsRequest, type RequestOptions } from "node:https";
import { text } from "node:stream/consumers";
import { setTimeout as sleep } from "node:timers/promises";
import type { KubeConfig } from "@kubernetes/client-node";
import { WebSocket } from "ws";
import { rest, untilAborted, within } from "../../base/async.ts";
import { BerthError, throwIfAborted } from "../../base/errors.ts";
import {
  ApiError,
  isPassing,
  isRefusal,
  isTooLarge,
  NoAnswerError,
  TooLargeError,
  translateError,
} from "./errors.ts";

/** Where the API server is, and how the service authenticates. */
export interface ApiOptions {
  /**
   * Path of a kubeconfig. Default: the service account of the pod that the service runs in, else `$KUBECONFIG` or
   * `~/.kube/config`.
   */
  readonly kubeconfig?: string | undefined;
  /** A context of the kubeconfig. Default: its current context. */
  readonly context?: string | undefined;
  /** Default: the namespace of the context or of the service account, else `default`. */
  readonly namespace?: string | undefined;
}

/** Options of one call. */
interface ApiCall {
  /** Sent as JSON. */
  readonly body?: unknown;
  /** Default `application/json`. */
  readonly contentType?:
    | "application/json"
    | "application/merge-patch+json"
    | "application/strategic-merge-patch+json";
  /** Default 30 s. */
  readonly timeoutMs?: number;
  /** The largest answer to accept. Default 64 MiB. */
  readonly maxBytes?: number;
  readonly signal?: AbortSignal | undefined;
}

/** A page of a list. */
interface Page<T> {
  readonly metadata?: { readonly resourceVersion?: string; readonly continue?: string };
  readonly items: readonly T[];
}

/** An event of a watch. */
export interface WatchEvent<T> {
  readonly type: "ADDED" | "MODIFIED" | "DELETED" | "BOOKMARK" | "ERROR";
  readonly object: T;
}

const CALL_TIMEOUT_MS = 30_000;
/** How long a call may take before the API server is asked something simple, and how long that may take. */
const QUIET_MS = 2_500;
const SIMPLE_ANSWER_MS = 7_000;
/** How long to look for an answer that arrived while the event loop was held up. */
const HELD_UP_MS = 500;
/** The API server closes a watch after this time. The next watch continues from there. */
const WATCH_SECONDS = 300;
/** API servers send a bookmark at least every minute, so a watch that is silent for longer than this is dead. */
const SILENT_WATCH_MS = 90_000;
/**
 * How many times to try a call that fails with a transient error, and the first pause if the API server gives no time
 * to retry after.
 */
const ATTEMPTS = 3;
const FIRST_PAUSE_MS = 200;
const MAX_PAUSE_MS = 2_000;
/** Objects per answer of a list. An answer is parsed in one go: fifty pods block the event loop for some 8 ms. */
const PAGE = 50;
/**
 * The largest answer of a list with more than one object. Objects are as large as callers make them: a pod contains its
 * variables, and the API server writes a character such as `<` as six.
 */
const MAX_PAGE_BYTES = 4 << 20;
/** The largest answer to any other call. The API server limits objects to about 3 MiB before it escapes characters. */
const MAX_ANSWER_BYTES = 64 << 20;
const EXEC_PROTOCOL = "v5.channel.k8s.io";
const HANDSHAKE_TIMEOUT_MS = 15_000;
/**
 * Interval of pings. A connection without an answer to a ping counts as broken. Pings also keep proxies from closing
 * idle connections.
 */
const HEARTBEAT_MS = 20_000;

/**
 * Calls to an API server. The client library finds the server and authenticates (KubeConfig: certificates, rotating
 * tokens, credential plugins, proxies). Its generated calls and its watch are not used: they load 10 MB of code, calls
 * have no timeout, and the watch does not report errors.
 */
export class Api {
  readonly namespace: string;
  readonly #config: KubeConfig;
  readonly #server: URL;

  private constructor(config: KubeConfig, server: string, namespace: string) {
    this.#config = config;
    this.#server = new URL(server.endsWith("/") ? server : `${server}/`);
    this.namespace = namespace;
  }

  /** @throws `INVALID_ARGUMENT` for a kubeconfig that cannot be used. */
  static async open(options: ApiOptions): Promise<Api> {
    // Loaded only here, because other engines start faster without it.
    const { KubeConfig } = await import("@kubernetes/client-node/dist/config.js");
    const config = new KubeConfig();
    try {
      if (options.kubeconfig !== undefined) config.loadFromFile(options.kubeconfig);
      else if (process.env.KUBERNETES_SERVICE_HOST !== undefined && process.env.KUBECONFIG === undefined)
        config.loadFromCluster();
      else config.loadFromDefault();
      if (options.context !== undefined) config.setCurrentContext(options.context);
    } catch (error) {
      throw badConfig(options.kubeconfig, (error as Error).message, error);
    }
    const context = config.getContextObject(config.getCurrentContext());
    const cluster = config.getCurrentCluster();
    const server = cluster?.server;
    if (context === null || server === undefined || !URL.canParse(server)) {
      const name = JSON.stringify(config.getCurrentContext() ?? "");
      throw badConfig(options.kubeconfig, `its context ${name} names no cluster`);
    }
    // The library refuses this too, but only with each call.
    if (new URL(server).protocol === "http:" && !cluster?.skipTLSVerify) {
      throw badConfig(
        options.kubeconfig,
        `its API server ${server} has no TLS. If that is intended, set "insecure-skip-tls-verify: true" for the cluster`,
      );
    }
    return new Api(config, server, options.namespace ?? context.namespace ?? "default");
  }

  get server(): string {
    return this.#server.origin;
  }

  /** The path of something in the namespace, such as `pods/NAME`. */
  path(rest: string, group = "api/v1"): string {
    return `${group}/namespaces/${encodeURIComponent(this.namespace)}/${rest}`;
  }

  /**
   * Makes a call and returns the object in the answer. Retries transient failures if the call reads or deletes, or if
   * the API server did not accept it.
   * @param doing completes "Kubernetes failed while …".
   * @throws {@link ApiError} behind a `BerthError` if the API server refuses.
   */
  async call<T>(method: string, path: string, doing: string, call: ApiCall = {}): Promise<T> {
    const { signal, timeoutMs = CALL_TIMEOUT_MS, contentType = "application/json" } = call;
    const { maxBytes = MAX_ANSWER_BYTES } = call;
    throwIfAborted(signal);
    const over = new AbortController();
    const silence = this.#silence(over.signal);
    const late = AbortSignal.any([AbortSignal.timeout(timeoutMs), silence]);
    const ends = signal === undefined ? late : AbortSignal.any([signal, late]);
    try {
      const body = call.body === undefined ? undefined : Buffer.from(JSON.stringify(call.body));
      const headers = body && { "content-type": contentType, "content-length": body.length };
      return await repeated(method, ends, async () => {
        const answer = await untilAborted(this.#send(method, path, ends, headers, body), ends);
        const said = await untilAborted(boundedText(answer, maxBytes), ends);
        const { statusCode = 0 } = answer;
        if (statusCode >= 300) throw ApiError.of(statusCode, said, answer.headers["retry-after"]);
        return JSON.parse(said) as T;
      });
    } catch (error) {
      const cause = late.aborted && !signal?.aborted ? new NoAnswerError() : error;
      throw translateError(cause, doing, signal);
    } finally {
      over.abort();
    }
  }

  /**
   * Lists objects in pages, all of the same state of the cluster. Pages of large objects are smaller.
   * @param pick returns what to keep of each object.
   * @throws as {@link call}.
   */
  async list<T, Picked>(
    path: string,
    doing: string,
    pick: (object: T) => Picked,
    options: { readonly labelSelector?: string; readonly signal?: AbortSignal | undefined } = {},
  ): Promise<{ readonly items: Picked[]; readonly resourceVersion: string }> {
    for (let attempt = 1; ; attempt++) {
      try {
        return await this.#list(path, doing, pick, options);
      } catch (error) {
        // The API server has forgotten the state of the first pages.
        if (!isRefusal(error, 410) || attempt === ATTEMPTS) throw error;
      }
    }
  }

  async #list<T, Picked>(
    path: string,
    doing: string,
    pick: (object: T) => Picked,
    { labelSelector, signal }: { readonly labelSelector?: string; readonly signal?: AbortSignal | undefined },
  ): Promise<{ readonly items: Picked[]; readonly resourceVersion: string }> {
    const query = new URLSearchParams({ ...(labelSelector && { labelSelector }) });
    const items: Picked[] = [];
    for (let limit = PAGE; ; limit = Math.min(limit + 1, PAGE)) {
      query.set("limit", String(limit));
      const bound = limit > 1 ? { maxBytes: MAX_PAGE_BYTES } : {};
      const page = await this.call<Page<T>>("GET", `${path}?${query}`, doing, { signal, ...bound }).catch(
        (error: unknown) => {
          if (limit > 1 && isTooLarge(error)) return undefined;
          throw error;
        },
      );
      if (page === undefined) {
        // The next page is one larger.
        limit = Math.floor(limit / 4);
        continue;
      }
      for (const item of page.items) items.push(pick(item));
      const { continue: next = "", resourceVersion = "" } = page.metadata ?? {};
      if (next === "") return { items, resourceVersion };
      query.set("continue", next);
    }
  }

  /**
   * Watches until the stream ends; the API server closes it every few minutes. A stream that breaks or falls silent
   * also just ends: the next watch delivers what this one missed.
   * @param opened called when the API server has accepted the watch.
   * @throws as {@link call} if it cannot be opened.
   */
  async *watch<T>(
    path: string,
    query: Readonly<Record<string, string>>,
    signal: AbortSignal,
    opened = (): void => {},
  ): AsyncGenerator<WatchEvent<T>> {
    const search = new URLSearchParams({ ...query, watch: "1", timeoutSeconds: String(WATCH_SECONDS) });
    const doing = "watching pods";
    const late = AbortSignal.timeout(CALL_TIMEOUT_MS);
    const opening = AbortSignal.any([signal, late]);
    const over = new AbortController();
    const ends = AbortSignal.any([signal, over.signal]);
    let answer: IncomingMessage | undefined;
    let isOpen = false;
    const silence = setTimeout(() => answer?.destroy(), SILENT_WATCH_MS).unref();
    try {
      answer = await repeated("GET", opening, async () => {
        const response = await untilAborted(this.#send("GET", `${path}?${search}`, ends), opening);
        const { statusCode = 0 } = response;
        if (statusCode < 300) return response;
        const said = await untilAborted(boundedText(response), opening);
        throw ApiError.of(statusCode, said, response.headers["retry-after"]);
      });
      // A machine that is gone does not close the stream; the kernel's keep-alive probes detect that.
      answer.socket.setKeepAlive(true, HEARTBEAT_MS);
      answer.setEncoding("utf8");
      isOpen = true;
      opened();
      let line = "";
      for await (const chunk of answer as AsyncIterable<string>) {
        silence.refresh();
        // Look for newlines only in the new part: an object may take thousands of chunks.
        const [first = "", ...others] = chunk.split("\n");
        line += first;
        for (const next of others) {
          if (line !== "") yield JSON.parse(line) as WatchEvent<T>;
          line = next;
        }
      }
    } catch (error) {
      if (isOpen && !signal.aborted && !(error instanceof SyntaxError)) return;
      throw translateError(!isOpen && late.aborted ? new NoAnswerError() : error, doing, signal);
    } finally {
      clearTimeout(silence);
      answer?.destroy();
      over.abort();
    }
  }

  /**
   * Opens the streams of a new process. The socket is paused, so that the caller can listen to it before its first
   * message. Retries only while the API server has too many requests, because other failures may have started it.
   * @throws as {@link call}.
   */
  async connect(path: string, doing: string, signal?: AbortSignal): Promise<WebSocket> {
    throwIfAborted(signal);
    const ends = signal ?? new AbortController().signal;
    try {
      return await repeated("CONNECT", ends, () => this.#connect(path, signal));
    } catch (error) {
      const isLate = /handshake has timed out/.test((error as Error).message);
      throw translateError(isLate ? new NoAnswerError() : error, doing, signal);
    }
  }

  async #connect(path: string, signal: AbortSignal | undefined): Promise<WebSocket> {
    const { agent, headers, auth } = await this.#access();
    const url = new URL(path, this.#server);
    url.protocol = url.protocol === "http:" ? "ws:" : "wss:";
    const socket = new WebSocket(url, [EXEC_PROTOCOL], {
      ...(agent && { agent }),
      headers: auth == null ? headers : { ...headers, authorization: basic(auth) },
      perMessageDeflate: false,
      // A mask of zeros changes nothing, and saves a copy and a pass over all data. Masks protect proxies that
      // interpret plain traffic; with TLS there are none.
      ...(url.protocol === "wss:" && { generateMask: (mask: Buffer) => void mask.fill(0) }),
      handshakeTimeout: HANDSHAKE_TIMEOUT_MS,
      // Far more than the other end sends in one frame: its buffers hold 32 KiB.
      maxPayload: 16 << 20,
    });
    // An error is always followed by "close", which the user of the socket handles.
    socket.on("error", () => {});
    // Messages may come in the same packet as the acceptance, and would be passed on before the caller has the socket.
    socket.once("open", () => socket.pause());
    const refused = once(socket, "unexpected-response").then(async ([, answer]: unknown[]) => {
      const refusal = answer as IncomingMessage;
      const said = await boundedText(refusal);
      throw ApiError.of(refusal.statusCode ?? 0, said, refusal.headers["retry-after"]);
    });
    refused.catch(() => {});
    try {
      await untilAborted(Promise.race([once(socket, "open"), refused]), signal);
    } catch (error) {
      socket.terminate();
      throw error;
    }
    keepAlive(socket);
    return socket;
  }

  async #send(
    method: string,
    path: string,
    signal: AbortSignal,
    headers: Readonly<Record<string, string | number>> = {},
    body?: Buffer,
  ): Promise<IncomingMessage> {
    const access = await this.#access();
    const url = new URL(path, this.#server);
    const send = url.protocol === "http:" ? httpRequest : httpsRequest;
    const { promise, resolve, reject } = Promise.withResolvers<IncomingMessage>();
    const options = {
      ...access,
      method,
      signal,
      headers: { ...access.headers, accept: "application/json", ...headers },
    };
    const request = send(url, options, resolve);
    request.on("error", reject);
    request.end(body);
    return promise;
  }

  /**
   * Returns a signal that aborts when the API server leaves a simple question unanswered. A call may take long, for
   * instance if the cluster's webhooks check it. A server that answers nothing at all is away.
   */
  #silence(over: AbortSignal): AbortSignal {
    const silent = new AbortController();
    const ask = async (): Promise<void> => {
      while (!over.aborted) {
        await rest(QUIET_MS, over);
        if (over.aborted) return;
        let isAnswered = false;
        const asked = this.#send("GET", "version", over)
          .then(
            (answer) => void answer.resume(),
            () => {},
          )
          .then(() => {
            isAnswered = true;
          });
        await within(asked, SIMPLE_ANSWER_MS);
        if (!isAnswered) await within(asked, HELD_UP_MS);
        if (!isAnswered) return silent.abort();
      }
    };
    void ask();
    return silent.signal;
  }

  async #access(): Promise<RequestOptions & { headers: Record<string, string> }> {
    const options: RequestOptions = {};
    await this.#config.applyToHTTPSOptions(options as never);
    const headers: Record<string, string> = {};
    for (const [name, value] of Object.entries(options.headers ?? {})) headers[name] = String(value);
    if (options.agent instanceof Agent) renew(options.agent, options);
    return { ...options, headers };
  }
}

/**
 * Gives the library's agent the certificates of this moment. The library creates it once, with those of that moment,
 * and an agent's own override those of a request. Also makes it keep connections alive, because a new one takes as long
 * as a call.
 */
function renew(agent: Agent & { readonly options?: AgentOptions }, { ca, cert, key }: RequestOptions): void {
  Object.assign(agent, { keepAlive: true });
  Object.assign(agent.options ?? {}, { keepAlive: true, ca, cert, key });
}

/** Makes a call up to three times, as long as it fails with transient errors ({@link isPassing}). */
async function repeated<T>(method: string, ends: AbortSignal, call: () => Promise<T>): Promise<T> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await call();
    } catch (error) {
      if (ends.aborted || attempt === ATTEMPTS || !isPassing(error, method)) throw error;
      const wantedMs = (error instanceof ApiError && error.retryAfterMs) || FIRST_PAUSE_MS * attempt;
      await untilAborted(sleep(Math.min(wantedMs, MAX_PAUSE_MS), undefined, { signal: ends }), ends);
    }
  }
}

function badConfig(file: string | undefined, problem: string, cause?: unknown): BerthError {
  const name = file === undefined ? "The kubeconfig" : `The kubeconfig ${JSON.stringify(file)}`;
  return new BerthError(
    "INVALID_ARGUMENT",
    `${name} cannot be used: ${problem}. Name one with --kubeconfig, or run Berth in the cluster with a service account.`,
    { cause },
  );
}

function basic(auth: string): string {
  return `Basic ${Buffer.from(auth).toString("base64")}`;
}

async function boundedText(answer: IncomingMessage, maxBytes = MAX_ANSWER_BYTES): Promise<string> {
  let bytes = 0;
  answer.on("data", (chunk: Buffer) => {
    bytes += chunk.length;
    if (bytes > maxBytes) answer.destroy(new TooLargeError(`an answer of more than ${maxBytes} bytes`));
  });
  return text(answer);
}

/** Ends a connection whose other end has gone silently. */
function keepAlive(socket: WebSocket): void {
  let isAlive = true;
  const timer = setInterval(() => {
    // A paused socket does not read answers to pings.
    if (!isAlive && !socket.isPaused) return socket.terminate();
    isAlive = socket.isPaused;
    socket.ping();
  }, HEARTBEAT_MS).unref();
  const onSign = (): void => {
    isAlive = true;
  };
  socket.on("pong", onSign).on("message", onSign);
  socket.once("close", () => clearInterval(timer));
}
