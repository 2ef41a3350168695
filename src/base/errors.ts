/** Why a call failed, in more detail than a status code. The wire's `ErrorReason` mirrors it. */
export type ErrorReason =
  | "INVALID_ARGUMENT"
  | "SANDBOX_NOT_FOUND"
  | "PROCESS_NOT_FOUND"
  | "FILE_NOT_FOUND"
  | "WORKSPACE_NOT_FOUND"
  | "SESSION_NOT_FOUND"
  | "RUN_NOT_FOUND"
  | "TOOL_NOT_FOUND"
  | "SANDBOX_EXISTS"
  | "REQUEST_ID_REUSED"
  | "FILE_EXISTS"
  | "SANDBOX_LIMIT"
  | "TOO_MANY_OPERATIONS"
  | "MESSAGE_TOO_LARGE"
  | "NO_SPACE"
  | "IMAGE_UNAVAILABLE"
  | "SANDBOX_START_FAILED"
  | "SANDBOX_NOT_RUNNING"
  | "SANDBOX_REPLACED"
  | "UNSUPPORTED"
  | "PROCESS_STATE"
  | "FILE_KIND"
  | "WORKSPACE_IN_USE"
  | "RUN_STATE"
  | "NOT_ALLOWED"
  | "FILE_PERMISSION"
  | "UNAUTHENTICATED"
  | "SANDBOX_DELETED"
  | "SANDBOX_TERMINATED"
  | "ENGINE_UNAVAILABLE"
  | "SHUTTING_DOWN"
  | "DEADLINE_EXCEEDED"
  | "CANCELED"
  | "UNIMPLEMENTED"
  | "OFFSET_OUT_OF_RANGE"
  | "INTERNAL"
  | "ARCHIVE_REJECTED"
  | "DIRECTORY_NOT_EMPTY"
  | "TRACE_NOT_FOUND"
  | "WORKSPACE_BROKEN"
  | "SESSION_START_FAILED"
  | "SESSION_LOST"
  | "SANDBOX_IN_USE"
  | "ANSWER_DROPPED"
  | "TOKEN_SCOPE"
  | "TENANT_QUOTA"
  | "SECRET_NOT_FOUND"
  | "WORKSPACE_EXISTS"
  | "STDIN_LOST";

/** What a {@link BerthError} may contain in addition to its message. */
interface BerthErrorOptions {
  /** Facts for programs, for instance `field`, `limit`, `sandbox_id`. */
  readonly metadata?: Readonly<Record<string, string>>;
  /** After how many milliseconds to retry the same call. */
  readonly retryAfterMs?: number;
  /** What caused it. Logged, never sent to a client. */
  readonly cause?: unknown;
}

/**
 * The only error class of the service. Its message is for the caller: what happened, and what to change. It may be sent
 * to clients, so it must not contain paths or secrets of the host.
 */
export class BerthError extends Error {
  override readonly name = "BerthError";
  readonly reason: ErrorReason;
  readonly metadata: Readonly<Record<string, string>>;
  readonly retryAfterMs: number | undefined;

  constructor(reason: ErrorReason, message: string, options: BerthErrorOptions = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.reason = reason;
    this.metadata = options.metadata ?? {};
    this.retryAfterMs = options.retryAfterMs;
  }
}

/** The error for an invalid field of a request. `field` is its path, for instance `spec.resources.memory_bytes`. */
export function invalidArgument(field: string, problem: string): BerthError {
  return new BerthError("INVALID_ARGUMENT", `${field}: ${problem}`, { metadata: { field } });
}

/** The error for a canceled call. */
export function canceled(cause?: unknown): BerthError {
  return new BerthError("CANCELED", "The call was canceled.", { cause });
}

/** Throws the reason a signal was aborted with, as a {@link BerthError}. Does nothing while it is not aborted. */
export function throwIfAborted(signal: AbortSignal | undefined): void {
  if (signal?.aborted) throw abortError(signal);
}

/** The error of an aborted signal: its reason if that is a {@link BerthError}, else `CANCELED`. */
export function abortError(signal: AbortSignal): BerthError {
  return signal.reason instanceof BerthError ? signal.reason : canceled(signal.reason);
}

/** Whether an error is one of Berth's, for this reason. */
export function hasReason(error: unknown, reason: ErrorReason): error is BerthError {
  return error instanceof BerthError && error.reason === reason;
}
