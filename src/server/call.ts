import type { IncomingHttpHeaders } from "node:http";
import { Code, type ConnectError, type ContextValues, createContextKey } from "@connectrpc/connect";
import { parseTimeout as parseConnect } from "@connectrpc/connect/protocol-connect";
import { parseTimeout as parseGrpc } from "@connectrpc/connect/protocol-grpc";
import { BerthError } from "../base/errors.ts";
import { type HttpRequest, memoryOf, peerOf, queryOf, type RpcProtocol } from "./http-message.ts";
import { MAX_TIMEOUT_MS, type ReceiveAccount, type ReceiveBudget } from "./limits.ts";
import type { Subjects } from "./subjects.ts";

/** What is known about a call, or about a reader of a page, before the body is read. */
export interface Credentials {
  /** Request headers, names in lower case. */
  readonly headers: IncomingHttpHeaders;
  /** `package.Service/Method`, or the path of a page. */
  readonly method: string;
  /** Address of the peer, or `unix`. */
  readonly peer: string;
}

/**
 * What a caller may do. `read-only`: methods without side effects, within its own tenant. `user`: all methods, within
 * its own tenant. `admin`: all methods, in any tenant that it names and for the service as a whole.
 */
type Scope = "admin" | "user" | "read-only";

/** The authenticated caller. */
export interface Principal {
  /** Whose sandboxes the call sees, and who owns what it creates. */
  readonly owner: string;
  /** The tenant of the token. An admin's call may name another one as its owner. */
  readonly tenant: string;
  /** Id of the token. Undefined if no token is needed. */
  readonly tokenId: string | undefined;
  /** Hash of the token's text, by which a token is known apart from a later one with its id. Never logged. */
  readonly tokenHash: string | undefined;
  readonly scope: Scope;
}

/** The error for a caller who is known, and may not call. */
export class RefusedCaller extends BerthError {
  /** Who it is, in the tenant of its token. */
  readonly principal: Principal;

  constructor(principal: Principal, { reason, message, metadata }: BerthError) {
    super(reason, message, { metadata });
    this.principal = principal;
  }
}

/** Finds out who makes a call. */
export interface Authenticator {
  /**
   * Runs before the body of the request is read.
   *
   * @throws BerthError `UNAUTHENTICATED` for an unknown caller
   * @throws RefusedCaller `UNAUTHENTICATED` for one whose token has expired; `TOKEN_SCOPE` or `INVALID_ARGUMENT` if it
   *   may not act in the tenant that it names
   */
  authenticate(credentials: Credentials): Principal | Promise<Principal>;
  /** Why running calls of a principal must end. Undefined: they may continue. */
  recheck(principal: Principal): BerthError | undefined;
}

/** The owner of everything while the server has no tokens. */
const DEFAULT_OWNER = "default";

/** The header in which an admin names the tenant to act in. */
export const TENANT_HEADER = "berth-tenant";

const EVERYBODY: Principal = {
  owner: DEFAULT_OWNER,
  tenant: DEFAULT_OWNER,
  tokenId: undefined,
  tokenHash: undefined,
  scope: "admin",
};

/** Treats every caller as the default owner. */
export const anonymousAuthenticator: Authenticator = {
  authenticate: ({ headers }) => {
    const { [TENANT_HEADER]: named = DEFAULT_OWNER } = headers;
    if (named === DEFAULT_OWNER) return EVERYBODY;
    throw new BerthError(
      "INVALID_ARGUMENT",
      `${TENANT_HEADER}: this service has no tenants, since it was started without --tokens. Leave the header out.`,
      { metadata: { field: TENANT_HEADER } },
    );
  },
  recheck: () => undefined,
};

/** Why a call failed. */
interface CallFailure {
  readonly error: ConnectError;
  readonly cause: BerthError | ConnectError;
  /** Whether the request was invalid, as opposed to a failed handler. */
  readonly ofRequest: boolean;
}

const CALL_ENDED = new BerthError("CANCELED", "The call has ended.");

/** What is known about a call when it arrives. */
interface CallInit {
  /** `package.Service/Method`. Empty if the server does not have the method. */
  readonly method: string;
  readonly protocol: RpcProtocol;
  readonly request: HttpRequest;
  /** Whether the client streams messages, without a time limit. */
  readonly streamsRequests: boolean;
  /** Whether its method may change something. */
  readonly changes: boolean;
}

/**
 * One RPC, from the arrival of its headers to the end of its response, as the log, the metrics and a stopping server
 * see it.
 */
export class Call implements Credentials {
  readonly method: string;
  readonly protocol: RpcProtocol;
  readonly peer: string;
  readonly streamsRequests: boolean;
  readonly changes: boolean;
  readonly deadline: Deadline;
  /** Undefined: the server speaks the version of the protocol that the caller named, if any. */
  readonly versionError: BerthError | undefined;
  readonly #request: HttpRequest;
  readonly #startMs = performance.now();
  readonly #controller = new AbortController();
  #admittedMs: number | undefined;
  /** Undefined until the caller is authenticated, and for methods without authentication. */
  principal: Principal | undefined;
  /** Whether the handler was reached. Errors before that are the fault of the request. */
  handlerReached = false;
  /** The error sent to the client, and its cause. Undefined while there is none. */
  failure: CallFailure | undefined;
  /** What its message takes. Undefined before that is read, and for a stream of messages. */
  account: ReceiveAccount | undefined;
  /** Collects the ids of what the call acts on. Undefined: not needed. */
  subjects: Subjects | undefined;

  constructor({ method, protocol, request, streamsRequests, changes }: CallInit) {
    this.method = method;
    this.protocol = protocol;
    this.peer = peerOf(request);
    this.deadline = readDeadline(protocol, request.headers);
    this.versionError = protocol === "connect" ? versionErrorOf(request) : undefined;
    this.#request = request;
    this.streamsRequests = streamsRequests;
    this.changes = changes;
  }

  get headers(): IncomingHttpHeaders {
    return this.#request.headers;
  }

  /** The owner that the call acts for. Empty until it is known. */
  get owner(): string {
    return this.principal?.owner ?? "";
  }

  get requestMethod(): string {
    return this.#request.method ?? "";
  }

  /** Call this when the call has its first turn. */
  admitted(): void {
    this.#admittedMs = performance.now();
  }

  /**
   * For how many milliseconds its request message could have arrived, and has not. A call that waits for its turn leaves
   * its message unread.
   */
  get awaitsRequestMs(): number {
    if (this.#admittedMs === undefined || this.streamsRequests || this.#request.complete) return 0;
    return performance.now() - this.#admittedMs;
  }

  /** How much memory that takes which has arrived of the request and was not read. */
  get unreadBytes(): number {
    const request = this.#request;
    return memoryOf(request) + ("stream" in request ? memoryOf(request.stream) : 0);
  }

  /** Milliseconds since the call arrived. */
  get ageMs(): number {
    return performance.now() - this.#startMs;
  }

  /** Milliseconds until the deadline, negative after it. Undefined: no deadline. */
  readonly timeoutMs = (): number | undefined =>
    this.deadline.kind === "after" ? this.deadline.ms - this.ageMs : undefined;

  /** Aborted when the call is over, for any reason. The reason is a `BerthError`. */
  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  /** Drops what was not read of the request, and what still arrives. For a call that has ended. */
  dropRequest(): void {
    this.#request.resume();
  }

  /** Ends the call. Without a reason: its response is complete. Only the first reason counts. */
  abort(reason: BerthError = CALL_ENDED): void {
    this.#controller.abort(reason);
  }
}

/** How a call ended: a gRPC code, or 0 for OK. */
export type CallStatus = Code | 0;

/** gRPC's name of a status: `OK`, `NOT_FOUND`. */
export function statusName(status: CallStatus): string {
  if (status === 0) return "OK";
  // The library spells this one with one L.
  if (status === Code.Canceled) return "CANCELLED";
  return Code[status].replace(/(?<=[a-z])(?=[A-Z])/g, "_").toUpperCase();
}

/** The owner that the call acts for. */
export const ownerKey = createContextKey("", { description: "owner" });

/** The owner that a handler's call acts for. */
export function ownerOf(context: { readonly values: ContextValues }): string {
  return context.values.get(ownerKey);
}

/** Whether a call may see data of the whole service besides that of its owner. */
export function seesWholeService(context: { readonly values: ContextValues }): boolean {
  return callOf(context).principal?.scope === "admin";
}

const callKey = createContextKey<Call | undefined>(undefined, { description: "call" });

/** Makes the call available to everything that handles the same RPC. */
export function setCall(values: ContextValues, call: Call): void {
  values.set(callKey, call);
}

/** The call of a handler context. */
export function callOf(context: { readonly values: ContextValues }): Call {
  const call = context.values.get(callKey);
  if (!call) throw new Error("this RPC did not come through the port");
  return call;
}

/** Called when an RPC starts and when it ends; must not throw. */
export interface CallObserver {
  started(call: Call): void;
  ended(call: Call, status: CallStatus): void;
}

/** The running calls. */
export class Calls {
  readonly #running = new Set<Call>();
  readonly #observers: readonly CallObserver[];
  #refusal: BerthError | undefined;
  #idle: PromiseWithResolvers<void> | undefined;

  constructor(observers: readonly CallObserver[]) {
    this.#observers = observers;
  }

  begin(call: Call): void {
    this.#running.add(call);
    for (const observer of this.#observers) observer.started(call);
    if (this.#refusal) call.abort(this.#refusal);
  }

  end(call: Call, status: CallStatus): void {
    if (!this.#running.delete(call)) return;
    for (const observer of this.#observers) observer.ended(call, status);
    if (this.#running.size === 0) {
      this.#idle?.resolve();
      this.#idle = undefined;
    }
  }

  /** Resolves when no call is running. */
  async whenIdle(): Promise<void> {
    if (this.#running.size === 0) return;
    this.#idle ??= Promise.withResolvers();
    await this.#idle.promise;
  }

  /** From now on, ends every new call. */
  refuse(reason: BerthError): void {
    this.#refusal = reason;
  }

  /** Ends the calls whose principals are no longer allowed. */
  recheck(authenticator: Authenticator): void {
    for (const call of [...this.#running]) {
      const reason = call.principal && authenticator.recheck(call.principal);
      if (reason) call.abort(reason);
    }
  }

  /**
   * Counts what has arrived of requests and was not read, and ends the calls for which there is no room. A call that
   * waits for its turn, or for its sandbox, leaves megabytes unread over HTTP/2, and a connection has many calls. It counts
   * only for now: who reads it counts it for longer.
   */
  countUnread(budget: ReceiveBudget): void {
    const counted: ReceiveAccount[] = [];
    for (const call of [...this.#running]) {
      const { unreadBytes } = call;
      if (unreadBytes === 0) continue;
      const account = budget.open(call.owner);
      try {
        account.charge(unreadBytes);
        counted.push(account);
      } catch (error) {
        call.abort(error as BerthError);
        call.dropRequest();
      }
    }
    for (const account of counted) account.close();
  }

  /** Ends the running calls that `which` selects. */
  abort(reason: BerthError, which: (call: Call) => boolean = () => true): void {
    for (const call of [...this.#running]) if (which(call)) call.abort(reason);
  }
}

/** The deadline that the caller set. */
type Deadline =
  | { readonly kind: "none" }
  | { readonly kind: "after"; readonly ms: number }
  /** It is malformed. */
  | { readonly kind: "refused"; readonly error: BerthError };

/** The header with the deadline, by protocol. */
export const DEADLINE_HEADERS = {
  grpc: "grpc-timeout",
  "grpc-web": "grpc-timeout",
  connect: "connect-timeout-ms",
} as const;

const NONE: Deadline = { kind: "none" };

/**
 * Reads the deadline of a call from its headers. Cuts it to {@link MAX_TIMEOUT_MS}: clients that mean "no deadline"
 * send the largest number they have.
 */
function readDeadline(protocol: RpcProtocol, headers: IncomingHttpHeaders): Deadline {
  const name = DEADLINE_HEADERS[protocol];
  const value = headers[name];
  if (typeof value !== "string") return NONE;
  const parse = protocol === "connect" ? parseConnect : parseGrpc;
  const { timeoutMs } = parse(value, MAX_TIMEOUT_MS);
  if (timeoutMs !== undefined) return { kind: "after", ms: Math.min(timeoutMs, MAX_TIMEOUT_MS) };
  return {
    kind: "refused",
    error: new BerthError("INVALID_ARGUMENT", `${name}: is not a valid deadline`, {
      metadata: { field: name },
    }),
  };
}

/**
 * Checks the version of the Connect protocol. A client names it in a header, or in the query of a GET; curl and others
 * do not name it.
 */
function versionErrorOf(request: HttpRequest): BerthError | undefined {
  const [name, version, expected] =
    request.method === "GET"
      ? (["connect", queryOf(request).get("connect"), "v1"] as const)
      : (["connect-protocol-version", request.headers["connect-protocol-version"] ?? null, "1"] as const);
  if (version === null || version === expected) return undefined;
  return new BerthError("INVALID_ARGUMENT", `${name}: must be "${expected}" if it is set`, {
    metadata: { field: name },
  });
}
