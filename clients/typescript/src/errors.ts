import { durationMs } from "@bufbuild/protobuf/wkt";
import { Code, ConnectError } from "@connectrpc/connect";
import { type EnumName, nameOf } from "./enum-name.ts";
import { type ErrorDetail, ErrorDetailSchema, ErrorReason, type Failure } from "./v1/error_pb.js";

/** Name of a gRPC code, such as "NOT_FOUND". */
export type ErrorCode =
  | "CANCELLED"
  | "UNKNOWN"
  | "INVALID_ARGUMENT"
  | "DEADLINE_EXCEEDED"
  | "NOT_FOUND"
  | "ALREADY_EXISTS"
  | "PERMISSION_DENIED"
  | "RESOURCE_EXHAUSTED"
  | "FAILED_PRECONDITION"
  | "ABORTED"
  | "OUT_OF_RANGE"
  | "UNIMPLEMENTED"
  | "INTERNAL"
  | "UNAVAILABLE"
  | "DATA_LOSS"
  | "UNAUTHENTICATED";

/** Name of an ErrorReason, such as "SANDBOX_NOT_FOUND". An unknown one, from a newer service, is "UNKNOWN_" and its number. */
export type Reason = EnumName<typeof ErrorReason>;

/** The facts about a failure. */
export interface ErrorFacts extends ErrorOptions {
  readonly code?: ErrorCode;
  readonly reason?: Reason | "";
  readonly metadata?: Readonly<Record<string, string>>;
  readonly retryAfterMs?: number;
}

/**
 * A call to the service failed. A command that fails is not an error: its result says how it ended.
 *
 * If an AbortSignal ended the call, its reason is thrown instead.
 */
export class BerthError extends Error {
  /** The gRPC code's name. */
  readonly code: ErrorCode;
  /** Why, in more detail than the code. Empty if the service gave no reason, for instance because it was not reached. */
  readonly reason: Reason | "";
  /** Facts for programs, such as "limit" or "sandbox_id". */
  readonly metadata: Readonly<Record<string, string>>;
  /** How long to wait before retrying the same call. Undefined: unknown. */
  readonly retryAfterMs: number | undefined;
  /** Whether the service refused a token that has been replaced since in its file, so that a retry may succeed. */
  tokenReplaced = false;

  override readonly name: string = "BerthError";

  constructor(
    message: string,
    { code = "UNKNOWN", reason = "", metadata = {}, retryAfterMs, ...options }: ErrorFacts = {},
  ) {
    super(message, options);
    this.code = code;
    this.reason = reason;
    this.metadata = metadata;
    this.retryAfterMs = retryAfterMs;
  }

  /** Whether something is a BerthError, of one of these reasons if any are given. */
  static is<R extends Reason>(error: unknown, ...reasons: R[]): error is BerthError & { readonly reason: R } {
    return (
      error instanceof BerthError && (reasons.length === 0 || (reasons as string[]).includes(error.reason))
    );
  }
}

/** What was received of a command whose connection was lost. */
export interface Received {
  /** The command's process. Empty if the connection broke before the service had named it. */
  readonly processId: string;
  /** Bytes received of each stream: the offsets to continue reading from. */
  readonly stdoutReceived: number;
  readonly stderrReceived: number;
  /** How many services had recovered the command by then. A service that was killed continues before the offsets. */
  readonly recoveries?: number | undefined;
}

/**
 * The connection broke while a command's output was being read, and could not be restored in time.
 *
 * For 24 hours, `sandbox.attach(error.processId, { stdoutOffset: error.stdoutReceived, stderrOffset:
 * error.stderrReceived, recoveries: error.recoveries })` continues after what was received.
 */
export class ConnectionLostError extends BerthError implements Received {
  readonly processId: string;
  readonly stdoutReceived: number;
  readonly stderrReceived: number;
  readonly recoveries: number | undefined;

  override readonly name: string = "ConnectionLostError";

  constructor(message: string, received: Received, options: ErrorOptions = {}) {
    super(message, { code: "UNAVAILABLE", ...options });
    this.processId = received.processId;
    this.stdoutReceived = received.stdoutReceived;
    this.stderrReceived = received.stderrReceived;
    this.recoveries = received.recoveries;
  }
}

/** The codes of a connection that failed before the service answered. */
const BROKEN: readonly ErrorCode[] = ["UNAVAILABLE", "CANCELLED", "ABORTED", "INTERNAL", "UNKNOWN"];

/**
 * Whether the connection failed, rather than the call: the service was not reached, is restarting, or ended the calls of
 * a token that has been replaced.
 */
export function isBroken({ reason, code, tokenReplaced }: BerthError): boolean {
  if (tokenReplaced) return true;
  return reason === "" ? BROKEN.includes(code) : reason === "SHUTTING_DOWN";
}

/** Whether to retry a call that is safe to repeat. */
export function isPassing(error: BerthError): boolean {
  return error.reason === "ENGINE_UNAVAILABLE" || isBroken(error);
}

/** Whether a call was given up: aborted, or out of time. */
export function isGivenUp(error: unknown, signal: AbortSignal | undefined): boolean {
  return signal?.aborted === true || (BerthError.is(error) && error.code === "DEADLINE_EXCEEDED");
}

/** What a failed call throws: the reason it was aborted with, or a BerthError. */
export function errorOf(error: unknown, address: string, signal?: AbortSignal): unknown {
  if (signal?.aborted) return signal.reason;
  if (!(error instanceof ConnectError)) return error;
  const detail = error.findDetails(ErrorDetailSchema)[0];
  const code = codeOf(error.code);
  if (detail !== undefined) return made(code, error.rawMessage, detail, error);
  if (isRefusedCertificate(error.cause)) {
    const message = `The service at ${address} requires a certificate that it trusts of its clients. Give one as tls.cert and tls.key.`;
    return new BerthError(message, { code: "FAILED_PRECONDITION", cause: error });
  }
  const certificate = untrusted(error.cause);
  if (certificate !== undefined) {
    const message = `The certificate of the service at ${address} is not trusted: ${certificate} Give its authority's as tls.ca.`;
    // Retrying will not help.
    return new BerthError(message, { code: "FAILED_PRECONDITION", cause: error });
  }
  if (/wrong version number/i.test(error.rawMessage)) {
    const message = `What answers at ${address} does not speak TLS. Leave tls out, and write http:// for https://.`;
    return new BerthError(message, { code: "FAILED_PRECONDITION", cause: error });
  }
  if (isForeign(error.cause)) {
    const message = `The service at ${address} cannot be reached: what answers there does not speak HTTP/2. Is this its address?`;
    return new BerthError(message, { code: "UNAVAILABLE", cause: error });
  }
  if (isUnfetched(error.cause)) {
    const origin =
      "location" in globalThis ? ", or does not answer pages of this origin (--cors-origin)" : "";
    const message = `The service at ${address} cannot be reached${origin}: ${error.rawMessage}`;
    return new BerthError(message, { code: "UNAVAILABLE", cause: error });
  }
  if (code === "UNAVAILABLE" || isUnconnected(error.cause)) {
    // The library reports a missing socket as a defect.
    const message = `The service at ${address} cannot be reached: ${error.rawMessage || code}`;
    return new BerthError(message, { code: "UNAVAILABLE", cause: error });
  }
  if (isBrokenOff(error)) {
    // Node's TLS servers send no alert if they do not trust a certificate: they break the connection.
    const orUntrusted = address.startsWith("https:")
      ? ". If it has --tls-client-ca, does it trust tls.cert?"
      : "";
    const message = `The connection to ${address} broke: ${error.rawMessage}${orUntrusted}`;
    return new BerthError(message, { code: "UNAVAILABLE", cause: error });
  }
  return new BerthError(`The call to ${address} failed: ${error.rawMessage || code}`, { code, cause: error });
}

/** Whether a connection broke during the call. The library's code for that depends on how Node noticed. */
function isBrokenOff({ cause, rawMessage }: ConnectError): boolean {
  const code = cause instanceof Error && "code" in cause ? String(cause.code) : "";
  return (
    /^(ECONNRESET|EPIPE|ETIMEDOUT|ERR_HTTP2_(SESSION|STREAM)_ERROR)$/.test(code) ||
    rawMessage.startsWith("http/2 stream closed with error code CANCEL")
  );
}

/** Whether Node could not connect. */
function isUnconnected(cause: unknown): boolean {
  return cause instanceof Error && "syscall" in cause && cause.syscall === "connect";
}

/** Whether Node found something else than HTTP/2, such as the HTTP/1.1 of another service or of a proxy. */
function isForeign(cause: unknown): boolean {
  return cause instanceof Error && "code" in cause && cause.code === "ERR_HTTP2_ERROR";
}

/** Whether `fetch` got no answer. It throws the same class for everything, and browsers word it differently. */
function isUnfetched(cause: unknown): boolean {
  return cause instanceof TypeError && /\bfetch\b|network|load failed/i.test(cause.message);
}

/** Whether the service refused the client's certificate, or requires one, as an alert of TLS says. */
function isRefusedCertificate(cause: unknown): boolean {
  return (
    cause instanceof Error && "code" in cause && /_ALERT_(.*CERTIFICATE|UNKNOWN_CA)/.test(String(cause.code))
  );
}

/** Node's description of what is wrong with a certificate, if that is the cause. */
function untrusted(cause: unknown): string | undefined {
  if (!(cause instanceof Error) || !("code" in cause) || typeof cause.code !== "string") return undefined;
  return /CERT|SELF_SIGNED|^UNABLE_TO_/.test(cause.code) ? `${cause.message} (${cause.code}).` : undefined;
}

/** The error of one part of a call. */
export function failureOf({ code, message, detail }: Failure): BerthError {
  return made(codeOf(code), message, detail);
}

function made(code: ErrorCode, message: string, detail?: ErrorDetail, cause?: unknown): BerthError {
  return new BerthError(message, {
    code,
    ...(detail && { reason: nameOf(ErrorReason, detail.reason), metadata: detail.metadata }),
    ...(detail?.retryAfter && { retryAfterMs: durationMs(detail.retryAfter) }),
    ...(cause !== undefined && { cause }),
  });
}

/** gRPC spells it with two Ls. */
function codeOf(code: Code): ErrorCode {
  if (code === Code.Canceled) return "CANCELLED";
  const name = Code[code] ?? "Unknown";
  return name.replace(/(?<=[a-z])(?=[A-Z])/g, "_").toUpperCase() as ErrorCode;
}
