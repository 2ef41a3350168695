import type { Registry } from "prom-client";
import { file_berth_v1_error } from "../../gen/ts/berth/v1/error_pb.js";
import { untilAborted, within } from "../base/async.ts";
import { BerthError } from "../base/errors.ts";
import type { Logger } from "../base/logger.ts";
import { MemoryBudget } from "../base/memory-budget.ts";
import { TurnShare } from "../base/turn-share.ts";
import { createAdmission } from "./admission.ts";
import type { AuditLog } from "./audit-log.ts";
import { type Authenticator, anonymousAuthenticator, type Call, Calls } from "./call.ts";
import { CallLog } from "./call-log.ts";
import { Decompressor } from "./decompressor.ts";
import { ErrorConverter } from "./error-conversion.ts";
import { FairQueue, type Work } from "./fair-queue.ts";
import { alwaysServing, type HealthSource, registerHealth } from "./health.ts";
import { createPages } from "./http-endpoints.ts";
import { DEFAULT_LIMITS, ReceiveBudget, type RpcLimits } from "./limits.ts";
import type { ListenAddress } from "./listen-address.ts";
import { Listener, type TlsOptions } from "./listener.ts";
import { RpcMetrics } from "./metrics.ts";
import { OriginGuard } from "./origin-guard.ts";
import { Reflection } from "./reflection.ts";
import { RequestHandler } from "./request-handler.ts";
import { type Routes, RouteTable } from "./routes.ts";

export interface RpcServerOptions {
  readonly listen: ListenAddress;
  /** Registers the handlers. */
  readonly routes: Routes;
  /** What calls of methods keep busy, by `package.Service/Method`: see {@link FairQueue}. Default: nothing. */
  readonly methodWork?: ReadonlyMap<string, Work>;
  readonly logger: Logger;
  /** Default: always serving. */
  readonly health?: HealthSource;
  /** Receives the metrics of the port, and is served on `/metrics`. */
  readonly metrics: Registry;
  readonly tls?: TlsOptions;
  /** Default: all callers are the default owner. */
  readonly authenticator?: Authenticator;
  /** Host names without port by which clients may call the server, besides loopback and the address itself. */
  readonly allowHosts?: readonly string[];
  /** Converts what handlers throw to errors for clients. Default: Berth's errors, see `ErrorDetail`. */
  readonly errors?: ErrorConverter;
  /** Origins of web pages that may call across sites. */
  readonly corsOrigins?: readonly string[];
  readonly limits?: Partial<RpcLimits>;
  /** The memory that requests may hold. Default: a budget of `limits.maxReceivingBytes` for this server. */
  readonly receiving?: ReceiveBudget;
  /** Records calls that change something, and refused ones. Default: nothing is recorded. */
  readonly audit?: AuditLog;
}

/** How to stop a server. */
interface StopOptions {
  /** How long running calls may take to finish, in milliseconds. */
  readonly graceMs: number;
  /** How long clients may take to read the last messages of the calls that are ended then. Default: 5 s. */
  readonly flushMs?: number;
  /** Ends the grace early. */
  readonly signal?: AbortSignal;
}

/** A server of RPCs. */
export interface RpcServer {
  /**
   * Starts listening.
   *
   * @returns the address, with the chosen port if it was 0
   * @throws BerthError that says why it cannot listen there, or `SHUTTING_DOWN` after a stop
   */
  start(): Promise<ListenAddress>;
  /** See {@link Listener.setTls}. */
  setTls(keys: TlsOptions): void;
  /**
   * Accepts no further calls, lets running ones finish within the grace, and ends the rest. Later calls join the first.
   */
  stop(options: StopOptions): Promise<void>;
}

/**
 * How long sending the last messages of aborted calls may take, in milliseconds, and how often that much more while
 * clients still read: a busy machine may need long for a flood of output that precedes them.
 */
const FLUSH_MS = 1000;
const MAX_FLUSHES = 5;

/** How often unread requests are counted, and principals of running calls checked, in milliseconds. */
const RECHECK_MS = 250;

/** Creates a server. It does nothing until it is started. */
export function createRpcServer(options: RpcServerOptions): RpcServer {
  const { listen, logger } = options;
  const limits = { ...DEFAULT_LIMITS, ...options.limits };
  const errors = options.errors ?? new ErrorConverter(logger);
  // Without tokens there is only one tenant, so nothing needs to be shared.
  const queue = options.authenticator && new FairQueue(options.methodWork);
  const calls = new Calls([
    ...(queue ? [queue] : []),
    new CallLog(logger),
    new RpcMetrics(options.metrics, () => methodsOf(routes)),
    ...(options.audit ? [options.audit] : []),
  ]);
  const { authenticator = anonymousAuthenticator } = options;
  const admit = createAdmission(authenticator, errors, queue);
  const routes = new RouteTable({ limits, errors, admit, isAudited: options.audit !== undefined });
  options.routes(routes);
  const health = options.health ?? alwaysServing;
  registerHealth(
    routes,
    health,
    routes.services.map((service) => service.typeName),
  );
  new Reflection(routes.services, [file_berth_v1_error]).register(routes);
  const guard = new OriginGuard({
    listen,
    allowHosts: options.allowHosts ?? [],
    corsOrigins: options.corsOrigins ?? [],
  });
  const pages = createPages(health, options.metrics);
  const { receiving = new ReceiveBudget(limits.maxReceivingBytes) } = options;
  const handler = new RequestHandler({
    ...{
      routes,
      guard,
      pages,
      calls,
      errors,
      admit,
      authenticator,
      receiving,
      sending: new MemoryBudget(limits.maxSendingBytes, 0),
      logger,
      queue,
      audit: options.audit,
    },
    decompressor: new Decompressor(),
    streams: new TurnShare(),
  });
  const listener = new Listener({ listen, tls: options.tls, limits, logger, onRequest: handler.handle });
  let sweep: NodeJS.Timeout | undefined;
  let recheck: NodeJS.Timeout | undefined;
  let stopping: Promise<void> | undefined;

  async function stop({ graceMs, flushMs = MAX_FLUSHES * FLUSH_MS, signal }: StopOptions): Promise<void> {
    const reason = shuttingDown();
    listener.drain();
    calls.refuse(reason);
    // A watch never ends by itself, so do not wait for it.
    calls.abort(reason, isWatch);
    await within(
      untilAborted(calls.whenIdle(), signal).catch(() => {}),
      graceMs,
    );
    calls.abort(reason);
    await within(flush(), flushMs);
    await listener.destroy();
    clearInterval(sweep);
    clearInterval(recheck);
  }

  async function flush(): Promise<void> {
    let isIdle = false;
    const idle = calls.whenIdle().then(() => {
      isIdle = true;
    });
    for (let count = 0, sent = -1; !isIdle && count < MAX_FLUSHES && listener.sentBytes !== sent; count++) {
      sent = listener.sentBytes;
      await within(idle, FLUSH_MS);
    }
  }

  async function start(): Promise<ListenAddress> {
    if (stopping) throw shuttingDown();
    const address = await listener.start();
    const limitMs = limits.requestTimeoutMs;
    sweep = setInterval(() => {
      calls.abort(requestTimeout(limitMs), (call) => call.awaitsRequestMs > limitMs);
    }, limitMs / 4);
    sweep.unref();
    recheck = setInterval(() => {
      calls.recheck(authenticator);
      calls.countUnread(receiving);
    }, RECHECK_MS);
    recheck.unref();
    return address;
  }

  return {
    start,
    setTls: (keys) => listener.setTls(keys),
    stop: (how) => {
      stopping ??= stop(how);
      return stopping;
    },
  };
}

function shuttingDown(): BerthError {
  return new BerthError("SHUTTING_DOWN", "The server is shutting down. Try again in a moment.", {
    retryAfterMs: 1000,
  });
}

function requestTimeout(limitMs: number): BerthError {
  return new BerthError("DEADLINE_EXCEEDED", `The request did not arrive within ${limitMs / 1000} seconds.`, {
    metadata: { limit_ms: String(limitMs) },
  });
}

/** `package.Service/Method` of every method. */
function methodsOf({ services }: RouteTable): string[] {
  return services.flatMap(({ typeName, methods }) => methods.map(({ name }) => `${typeName}/${name}`));
}

function isWatch(call: Call): boolean {
  return /\/Watch/.test(call.method);
}
