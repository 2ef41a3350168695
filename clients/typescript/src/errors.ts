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

/** Name of an ErrorReason, such as "SANDBOX_NOT_FOUND". One of a newer service is "UNKNOWN_" and its number. */
export type Reason = EnumName<typeof ErrorReason>;

/** What is known of a failure. */
export interface ErrorFacts extends ErrorOptions {
  readonly code?: ErrorCode;
  readonly reason?: Reason | "";
  readonly metadata?: Readonly<Record<string, string>>;
  readonly retryAfterMs?: number;
}

/**
 * A call to the service failed. A command that fails is not an error: its result says how it ended.
 *
 * Where an AbortSignal ended the call, its reason is thrown instead.
 */
export class BerthError extends Error {
  /** The gRPC code's name. */
  readonly code: ErrorCode;
  /** Why, finer than the code. Empty where the service gave no reason, as when it was not reached. */
  readonly reason: Reason | "";
  /** Facts for programs, such as "limit" or "sandbox_id". */
  readonly metadata: Readonly<Record<string, string>>;
  /** After how long the same call is worth making again. Undefined: nothing is known. */
  readonly retryAfterMs: number | undefined;

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
  /** The command's process. Empty where the connection broke before the service had named it. */
  readonly processId: string;
  /** Bytes of each stream that were received: the offsets to read on from. */
  readonly stdoutReceived: number;
  readonly stderrReceived: number;
}

/**
 * The connection broke while a command's output came, and could not be restored in time.
 *
 * What was received is known: `sandbox.attach(error.processId, { stdoutOffset: error.stdoutReceived,
 * stderrOffset: error.stderrReceived })` reads on from there, for 24 hours.
 */
export class ConnectionLostError extends BerthError implements Received {
  readonly processId: string;
  readonly stdoutReceived: number;
  readonly stderrReceived: number;

  override readonly name: string = "ConnectionLostError";

  constructor(message: string, received: Received, options: ErrorOptions = {}) {
    super(message, { code: "UNAVAILABLE", ...options });
    this.processId = received.processId;
    this.stdoutReceived = received.stdoutReceived;
    this.stderrReceived = received.stderrReceived;
  }
}

/** The connection failed before the service said anything, in these codes. */
const BROKEN: readonly ErrorCode[] = ["UNAVAILABLE", "CANCELLED", "ABORTED", "INTERNAL", "UNKNOWN"];

/** Whether the connection failed, rather than the call: the service was not reached, or is restarting. */
export function isBroken({ reason, code }: BerthError): boolean {
  return reason === "" ? BROKEN.includes(code) : reason === "SHUTTING_DOWN";
}

/** Whether a call that is safe to make twice is worth making again. */
export function isPassing(error: BerthError): boolean {
  return error.reason === "ENGINE_UNAVAILABLE" || isBroken(error);
}

/** What a failed call throws: what it was aborted with, or a BerthError. */
export function errorOf(error: unknown, address: string, signal?: AbortSignal): unknown {
  if (signal?.aborted) return signal.reason;
  if (!(error instanceof ConnectError)) return error;
  const detail = error.findDetails(ErrorDetailSchema)[0];
  const code = codeOf(error.code);
  if (detail !== undefined) return made(code, error.rawMessage, detail, error);
  const certificate = untrusted(error.cause);
  if (certificate !== undefined) {
    const message = `The certificate of the service at ${address} is not trusted: ${certificate} Give its authority's as tls.ca.`;
    // Trying again will not help.
    return new BerthError(message, { code: "FAILED_PRECONDITION", cause: error });
  }
  if (/wrong version number/i.test(error.rawMessage)) {
    const message = `What answers at ${address} does not speak TLS. Leave tls out, and write http:// for https://.`;
    return new BerthError(message, { code: "FAILED_PRECONDITION", cause: error });
  }
  if (code === "UNAVAILABLE" || isUnconnected(error.cause)) {
    // The library takes a socket that is not there for a defect.
    const message = `The service at ${address} cannot be reached: ${error.rawMessage || code}`;
    return new BerthError(message, { code: "UNAVAILABLE", cause: error });
  }
  return new BerthError(`The call to ${address} failed: ${error.rawMessage || code}`, { code, cause: error });
}

/** Whether Node could not connect. */
function isUnconnected(cause: unknown): boolean {
  return cause instanceof Error && "syscall" in cause && cause.syscall === "connect";
}

/** What is wrong with a certificate, by Node, if that is what went wrong. */
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

/** gRPC spells it with two l. */
function codeOf(code: Code): ErrorCode {
  if (code === Code.Canceled) return "CANCELLED";
  const name = Code[code] ?? "Unknown";
  return name.replace(/(?<=[a-z])(?=[A-Z])/g, "_").toUpperCase() as ErrorCode;
}
