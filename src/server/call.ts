import type { IncomingHttpHeaders } from "node:http";
import { Code, type ConnectError, type ContextValues, createContextKey } from "@connectrpc/connect";
import { parseTimeout as parseConnect } from "@connectrpc/connect/protocol-connect";
import { parseTimeout as parseGrpc } from "@connectrpc/connect/protocol-grpc";
import { BerthError } from "../base/errors.ts";
import { type HttpRequest, peerOf, type RpcProtocol } from "./http-message.ts";
import { MAX_TIMEOUT_MS } from "./limits.ts";
import type { Subjects } from "./subjects.ts";

/** What is known of a call, or of who reads a page, before its body is read. */
export interface Credentials {
  /** Request headers, names in lower case. */
  readonly headers: IncomingHttpHeaders;
  /** `package.Service/Method`, or the path of a page. */
  readonly method: string;
  /** Address of the other end, or `unix`. */
  readonly peer: string;
}

/**
 * What a caller may do. `read-only`: the methods without side effects, on what
 * is its tenant's. `user`: all methods, on what is its tenant's. `admin`: the
 * same in every tenant that it names, and what belongs to the whole service.
 */
export type Scope = "admin" | "user" | "read-only";

/** Who makes a call. */
export interface Principal {
  /** Whose sandboxes the call sees, and whose is what it makes. */
  readonly owner: string;
  /** The tenant that the token belongs to; an admin's calls may name another as their owner. */
  readonly tenant: string;
  /** Names the token; undefined where none is needed. */
  readonly tokenId: string | undefined;
  readonly scope: Scope;
}

/** Says who makes a call. */
export interface Authenticator {
  /**
   * Runs before the body of the request is read.
   *
   * @throws BerthError `UNAUTHENTICATED` for a caller that is not known; `TOKEN_SCOPE` or `INVALID_ARGUMENT` for a
   *   tenant that it names and may not
   */
  authenticate(credentials: Credentials): Principal | Promise<Principal>;
  /** Why the calls of a principal that were admitted have to end; undefined: they go on. */
  recheck(principal: Principal): BerthError | undefined;
}

/** The owner of everything while the server has no tokens. */
export const DEFAULT_OWNER = "default";

/** The header by which an admin names the tenant that a call acts in. */
export const TENANT_HEADER = "berth-tenant";

const EVERYBODY: Principal = {
  owner: DEFAULT_OWNER,
  tenant: DEFAULT_OWNER,
  tokenId: undefined,
  scope: "admin",
};

/** Takes every caller for the one owner there is. */
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
  /** Whether the request itself was wrong, and no handler failed. */
  readonly ofRequest: boolean;
}

const CALL_ENDED = new BerthError("CANCELED", "The call has ended.");

/** What a call is known by when it arrives. */
interface CallInit {
  /** `package.Service/Method`; empty for a method that the server does not have. */
  readonly method: string;
  readonly protocol: RpcProtocol;
  readonly request: HttpRequest;
  /** Whether the client sends any number of messages, in its own time. */
  readonly streamsRequests: boolean;
  /** Whether its method may change something. */
  readonly changes: boolean;
}

/**
 * One RPC, from the arrival of its headers until its response is gone: what
 * the log, the metrics and a stopping server know of it.
 */
export class Call implements Credentials {
  readonly method: string;
  readonly protocol: RpcProtocol;
  readonly peer: string;
  readonly streamsRequests: boolean;
  readonly changes: boolean;
  readonly deadline: Deadline;
  readonly #request: HttpRequest;
  readonly #startMs = performance.now();
  readonly #controller = new AbortController();
  /** Who makes the call; undefined until that is known, and where nobody asks. */
  principal: Principal | undefined;
  /** Whether the handler was reached: before that, everything that fails is what the client sent. */
  handlerReached = false;
  /** The error the client was sent, and what it was made of; undefined while all is well. */
  failure: CallFailure | undefined;
  /** Gathers the ids of what it acts on; undefined where nobody wants them. */
  subjects: Subjects | undefined;

  constructor({ method, protocol, request, streamsRequests, changes }: CallInit) {
    this.method = method;
    this.protocol = protocol;
    this.peer = peerOf(request);
    this.deadline = readDeadline(protocol, request.headers);
    this.#request = request;
    this.streamsRequests = streamsRequests;
    this.changes = changes;
  }

  get headers(): IncomingHttpHeaders {
    return this.#request.headers;
  }

  /** Whose things the call is about; empty while that is not known. */
  get owner(): string {
    return this.principal?.owner ?? "";
  }

  get requestMethod(): string {
    return this.#request.method ?? "";
  }

  /** Whether the call still waits for its request message, or for the end of it. */
  get awaitsRequest(): boolean {
    return !this.streamsRequests && !this.#request.complete;
  }

  /** Milliseconds since the call arrived. */
  get ageMs(): number {
    return performance.now() - this.#startMs;
  }

  /** Milliseconds until the deadline, below 0 once it passed; undefined if there is none. */
  readonly timeoutMs = (): number | undefined =>
    this.deadline.kind === "after" ? this.deadline.ms - this.ageMs : undefined;

  /** Aborted once the call is over, for whatever reason; the reason is a `BerthError`. */
  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  /** Ends the call; without a reason, because its response is complete. Only the first reason counts. */
  abort(reason: BerthError = CALL_ENDED): void {
    this.#controller.abort(reason);
  }
}

/** How a call ended: a gRPC code, or 0 for OK. */
export type CallStatus = Code | 0;

/** The name of a status as gRPC writes it: `OK`, `NOT_FOUND`. */
export function statusName(status: CallStatus): string {
  if (status === 0) return "OK";
  // The library spells this one the American way.
  if (status === Code.Canceled) return "CANCELLED";
  return Code[status].replace(/(?<=[a-z])(?=[A-Z])/g, "_").toUpperCase();
}

/** Whose things the call is about. */
export const ownerKey = createContextKey("", { description: "owner" });

/** Whose things the call is about that a handler serves. */
export function ownerOf(context: { readonly values: ContextValues }): string {
  return context.values.get(ownerKey);
}

/** Whether a call may see what belongs to the whole service, beside what is its owner's. */
export function seesWholeService(context: { readonly values: ContextValues }): boolean {
  return callOf(context).principal?.scope === "admin";
}

const callKey = createContextKey<Call | undefined>(undefined, { description: "call" });

/** Puts the call where the other parts that serve the same RPC find it. */
export function setCall(values: ContextValues, call: Call): void {
  values.set(callKey, call);
}

/** The call that a handler context belongs to. */
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

/** The calls that are running. */
export class Calls {
  readonly #running = new Set<Call>();
  readonly #observers: readonly CallObserver[];
  #refusal: BerthError | undefined;
  #idle: PromiseWithResolvers<void> | undefined;

  constructor(observers: readonly CallObserver[]) {
    this.#observers = observers;
  }

  get size(): number {
    return this.#running.size;
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

  /** Resolves once no call is running. */
  async whenIdle(): Promise<void> {
    if (this.#running.size === 0) return;
    this.#idle ??= Promise.withResolvers();
    await this.#idle.promise;
  }

  /** From now on, ends calls as they come. */
  refuse(reason: BerthError): void {
    this.#refusal = reason;
  }

  /** Ends the calls whose principals may not go on. */
  recheck(authenticator: Authenticator): void {
    for (const call of [...this.#running]) {
      const reason = call.principal && authenticator.recheck(call.principal);
      if (reason) call.abort(reason);
    }
  }

  /** Ends the running calls that `which` picks. */
  abort(reason: BerthError, which: (call: Call) => boolean = () => true): void {
    for (const call of [...this.#running]) if (which(call)) call.abort(reason);
  }
}

/** How long the caller gives a call. */
type Deadline =
  | { readonly kind: "none" }
  | { readonly kind: "after"; readonly ms: number }
  /** It is malformed. */
  | { readonly kind: "refused"; readonly error: BerthError };

/** The headers that carry a deadline, one for each kind of protocol. */
export const DEADLINE_HEADERS = {
  grpc: "grpc-timeout",
  "grpc-web": "grpc-timeout",
  connect: "connect-timeout-ms",
} as const;

const NONE: Deadline = { kind: "none" };

/**
 * Reads the deadline of a call from the headers of its request. One that is
 * longer than {@link MAX_TIMEOUT_MS} counts as that: clients that mean "no
 * deadline" send the largest number they have.
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
