import { randomBytes } from "node:crypto";
import { create } from "@bufbuild/protobuf";
import { durationFromMs } from "@bufbuild/protobuf/wkt";
import { Code, ConnectError } from "@connectrpc/connect";
import { ErrorDetailSchema, ErrorReason as WireReason } from "../../gen/ts/berth/v1/error_pb.js";
import { abortError, BerthError, canceled, type ErrorReason } from "../base/errors.ts";
import type { Logger } from "../base/logger.ts";
import { tooManyFiles } from "../base/system-errors.ts";
import type { Call } from "./call.ts";

/** The code and the reason of an error on the wire. */
interface WireError {
  readonly code: Code;
  readonly reason: WireReason;
}

/** Reason → gRPC code and wire enum. The only such table; the compiler checks that it is complete. */
export const ERROR_TABLE: Readonly<Record<ErrorReason, WireError>> = {
  INVALID_ARGUMENT: { code: Code.InvalidArgument, reason: WireReason.INVALID_ARGUMENT },
  SANDBOX_NOT_FOUND: { code: Code.NotFound, reason: WireReason.SANDBOX_NOT_FOUND },
  PROCESS_NOT_FOUND: { code: Code.NotFound, reason: WireReason.PROCESS_NOT_FOUND },
  FILE_NOT_FOUND: { code: Code.NotFound, reason: WireReason.FILE_NOT_FOUND },
  WORKSPACE_NOT_FOUND: { code: Code.NotFound, reason: WireReason.WORKSPACE_NOT_FOUND },
  SESSION_NOT_FOUND: { code: Code.NotFound, reason: WireReason.SESSION_NOT_FOUND },
  RUN_NOT_FOUND: { code: Code.NotFound, reason: WireReason.RUN_NOT_FOUND },
  TOOL_NOT_FOUND: { code: Code.NotFound, reason: WireReason.TOOL_NOT_FOUND },
  SANDBOX_EXISTS: { code: Code.AlreadyExists, reason: WireReason.SANDBOX_EXISTS },
  REQUEST_ID_REUSED: { code: Code.AlreadyExists, reason: WireReason.REQUEST_ID_REUSED },
  FILE_EXISTS: { code: Code.AlreadyExists, reason: WireReason.FILE_EXISTS },
  SANDBOX_LIMIT: { code: Code.ResourceExhausted, reason: WireReason.SANDBOX_LIMIT },
  TOO_MANY_OPERATIONS: { code: Code.ResourceExhausted, reason: WireReason.TOO_MANY_OPERATIONS },
  MESSAGE_TOO_LARGE: { code: Code.ResourceExhausted, reason: WireReason.MESSAGE_TOO_LARGE },
  NO_SPACE: { code: Code.ResourceExhausted, reason: WireReason.NO_SPACE },
  IMAGE_UNAVAILABLE: { code: Code.FailedPrecondition, reason: WireReason.IMAGE_UNAVAILABLE },
  SANDBOX_START_FAILED: { code: Code.FailedPrecondition, reason: WireReason.SANDBOX_START_FAILED },
  SANDBOX_NOT_RUNNING: { code: Code.FailedPrecondition, reason: WireReason.SANDBOX_NOT_RUNNING },
  SANDBOX_REPLACED: { code: Code.FailedPrecondition, reason: WireReason.SANDBOX_REPLACED },
  UNSUPPORTED: { code: Code.FailedPrecondition, reason: WireReason.UNSUPPORTED },
  PROCESS_STATE: { code: Code.FailedPrecondition, reason: WireReason.PROCESS_STATE },
  FILE_KIND: { code: Code.FailedPrecondition, reason: WireReason.FILE_KIND },
  WORKSPACE_IN_USE: { code: Code.FailedPrecondition, reason: WireReason.WORKSPACE_IN_USE },
  RUN_STATE: { code: Code.FailedPrecondition, reason: WireReason.RUN_STATE },
  NOT_ALLOWED: { code: Code.PermissionDenied, reason: WireReason.NOT_ALLOWED },
  FILE_PERMISSION: { code: Code.PermissionDenied, reason: WireReason.FILE_PERMISSION },
  UNAUTHENTICATED: { code: Code.Unauthenticated, reason: WireReason.UNAUTHENTICATED },
  SANDBOX_DELETED: { code: Code.Aborted, reason: WireReason.SANDBOX_DELETED },
  SANDBOX_TERMINATED: { code: Code.Aborted, reason: WireReason.SANDBOX_TERMINATED },
  ENGINE_UNAVAILABLE: { code: Code.Unavailable, reason: WireReason.ENGINE_UNAVAILABLE },
  SHUTTING_DOWN: { code: Code.Unavailable, reason: WireReason.SHUTTING_DOWN },
  DEADLINE_EXCEEDED: { code: Code.DeadlineExceeded, reason: WireReason.DEADLINE_EXCEEDED },
  CANCELED: { code: Code.Canceled, reason: WireReason.CANCELED },
  UNIMPLEMENTED: { code: Code.Unimplemented, reason: WireReason.UNIMPLEMENTED },
  OFFSET_OUT_OF_RANGE: { code: Code.OutOfRange, reason: WireReason.OFFSET_OUT_OF_RANGE },
  ARCHIVE_REJECTED: { code: Code.InvalidArgument, reason: WireReason.ARCHIVE_REJECTED },
  DIRECTORY_NOT_EMPTY: { code: Code.FailedPrecondition, reason: WireReason.DIRECTORY_NOT_EMPTY },
  TRACE_NOT_FOUND: { code: Code.NotFound, reason: WireReason.TRACE_NOT_FOUND },
  WORKSPACE_BROKEN: { code: Code.FailedPrecondition, reason: WireReason.WORKSPACE_BROKEN },
  SESSION_START_FAILED: { code: Code.FailedPrecondition, reason: WireReason.SESSION_START_FAILED },
  SESSION_LOST: { code: Code.Aborted, reason: WireReason.SESSION_LOST },
  SANDBOX_IN_USE: { code: Code.FailedPrecondition, reason: WireReason.SANDBOX_IN_USE },
  ANSWER_DROPPED: { code: Code.FailedPrecondition, reason: WireReason.ANSWER_DROPPED },
  TOKEN_SCOPE: { code: Code.PermissionDenied, reason: WireReason.TOKEN_SCOPE },
  TENANT_QUOTA: { code: Code.ResourceExhausted, reason: WireReason.TENANT_QUOTA },
  SECRET_NOT_FOUND: { code: Code.NotFound, reason: WireReason.SECRET_NOT_FOUND },
  WORKSPACE_EXISTS: { code: Code.AlreadyExists, reason: WireReason.WORKSPACE_EXISTS },
  STDIN_LOST: { code: Code.Aborted, reason: WireReason.STDIN_LOST },
  INTERNAL: { code: Code.Internal, reason: WireReason.INTERNAL },
};

/**
 * Limits for the message and the metadata of an error on the wire, in bytes. They may quote a request, and are sent in
 * trailers, of which clients accept 8 KiB in total. The message is sent twice: in `grpc-message`, where a character
 * beyond ASCII takes nine bytes or more, and with the metadata in base64.
 */
const MAX_MESSAGE_BYTES = 4096;
const MAX_METADATA_BYTES = 3072;
/** The longest text in an error, in UTF-16 units, however short it is on the wire. */
const MAX_TEXT = 1024;

/**
 * Converts whatever ended a call into the error for its client. The only place where that happens. The call keeps the
 * error with its cause for the log.
 */
export class ErrorConverter {
  readonly #logger: Logger;

  constructor(logger: Logger) {
    this.#logger = logger;
  }

  /** Converts what a handler threw. `signal` is the one that the handler was given. */
  fromHandler(call: Call, thrown: unknown, signal: AbortSignal): ConnectError {
    const { failure } = call;
    if (failure !== undefined && (thrown === failure.error || thrown === failure.cause)) return failure.error;
    return this.#record(call, this.handlerError(call, thrown, signal), false);
  }

  /** Converts what failed before a handler was reached: headers, framing, encoding or size of the request. */
  fromRequest(call: Call, thrown: unknown, readMaxBytes: number): ConnectError {
    if (thrown instanceof ConnectError && thrown === call.failure?.error) return thrown;
    return this.#record(call, requestError(thrown, readMaxBytes), true);
  }

  #record(call: Call, error: BerthError | ConnectError, ofRequest: boolean): ConnectError {
    const sent = error instanceof BerthError ? this.wireForm(error) : clipLibraryError(error);
    call.failure = { error: sent, cause: error, ofRequest };
    return sent;
  }

  /** The wire form of an error. */
  protected wireForm(error: BerthError): ConnectError {
    return toConnectError(error);
  }

  /** Classifies a handler's failure: an error of Berth, or one that the library raised for the call. */
  protected handlerError(call: Call, thrown: unknown, signal: AbortSignal): BerthError | ConnectError {
    if (thrown instanceof BerthError && thrown.reason !== "INTERNAL") {
      // The core only knows that its signal was aborted; the call knows why.
      return thrown.reason === "CANCELED" && signal.aborted ? abortError(signal) : thrown;
    }
    if (signal.aborted) {
      if (!(thrown instanceof Error && thrown.name === "AbortError")) {
        this.#logger.warn({ method: call.method, err: thrown }, "a handler failed after its call had ended");
      }
      return abortError(signal);
    }
    if (thrown instanceof ConnectError && thrown.code !== Code.Internal && thrown.code !== Code.Unknown) {
      return thrown.code === Code.Unimplemented ? new BerthError("UNIMPLEMENTED", thrown.rawMessage) : thrown;
    }
    return internalError(this.#logger, call.method, thrown);
  }
}

/** Logs an unexpected error, and returns the one for the client, which says what to do, or how to find it in the log. */
export function internalError(logger: Logger, method: string, thrown: unknown): BerthError {
  const known = tooManyFiles(thrown);
  if (known !== undefined) {
    logger.warn({ method, err: thrown }, "a call failed because no more files may be open");
    return known;
  }
  const errorId = randomBytes(6).toString("hex");
  logger.error({ error_id: errorId, method, err: thrown }, "internal error");
  return new BerthError("INTERNAL", `internal error (id ${errorId}); the server's log has the details`, {
    metadata: { error_id: errorId },
  });
}

/** The wire form of an error, with its {@link ErrorDetailSchema | ErrorDetail}. */
export function toConnectError(error: BerthError): ConnectError {
  const { code, reason } = ERROR_TABLE[error.reason];
  const detail = create(ErrorDetailSchema, {
    reason,
    metadata: clipMetadata(error.metadata),
    retryAfter: error.retryAfterMs === undefined ? undefined : durationFromMs(Math.ceil(error.retryAfterMs)),
  });
  return new ConnectError(clip(error.message, MAX_MESSAGE_BYTES, messageBytes), code, undefined, [
    { desc: ErrorDetailSchema, value: detail },
  ]);
}

/** Limits the size of an error of the library or one of its services, which may also quote a request. */
function clipLibraryError(error: ConnectError): ConnectError {
  const message = clip(error.rawMessage, MAX_MESSAGE_BYTES, messageBytes);
  if (message === error.rawMessage) return error;
  const clipped = new ConnectError(message, error.code, error.metadata, undefined, error.cause);
  clipped.details = error.details;
  return clipped;
}

/** Shares the space between the values, so that a long value does not displace a short one. */
function clipMetadata(metadata: Readonly<Record<string, string>>): Record<string, string> {
  const clipped: Record<string, string> = {};
  let room = MAX_METADATA_BYTES;
  const entries = Object.entries(metadata).sort(([, a], [, b]) => a.length - b.length);
  entries.forEach(([key, value], index) => {
    clipped[key] = clip(value, room / (entries.length - index), base64Bytes);
    room -= textBytes(key + clipped[key], base64Bytes);
  });
  return clipped;
}

/** The size of a character on the wire, given its size in UTF-8. */
type BytesOf = (utf8Bytes: number, character: string) => number;

const base64Bytes: BytesOf = (utf8Bytes) => (utf8Bytes * 4) / 3;

const messageBytes: BytesOf = (utf8Bytes, character) =>
  base64Bytes(utf8Bytes, character) + (utf8Bytes > 1 || !/[ -$&-~]/.test(character) ? 3 * utf8Bytes : 1);

const CUT = "… (cut)";

/** Shortens a text between characters, and replaces lone surrogates, which percent-encoding refuses. */
function clip(text: string, mostBytes: number, bytesOf: BytesOf): string {
  const start = text.slice(0, MAX_TEXT).toWellFormed();
  const room = mostBytes - textBytes(CUT, bytesOf);
  let bytes = 0;
  let fits = 0;
  for (const character of start) {
    bytes += bytesOf(Buffer.byteLength(character), character);
    if (bytes <= room) fits += character.length;
  }
  return bytes <= mostBytes && text.length <= MAX_TEXT ? start : start.slice(0, fits) + CUT;
}

function textBytes(text: string, bytesOf: BytesOf): number {
  let bytes = 0;
  for (const character of text) bytes += bytesOf(Buffer.byteLength(character), character);
  return bytes;
}

/**
 * Converts what the library threw while it read a request. Bytes that cannot be read are the client's fault, never
 * `INTERNAL`.
 */
export function requestError(thrown: unknown, readMaxBytes: number): BerthError {
  if (thrown instanceof BerthError) return thrown;
  if (!(thrown instanceof ConnectError)) return canceled(thrown);
  switch (thrown.code) {
    case Code.ResourceExhausted:
      return messageTooLarge(readMaxBytes);
    case Code.Unimplemented:
      return new BerthError("UNIMPLEMENTED", thrown.rawMessage);
    case Code.Canceled:
    case Code.Aborted:
      return canceled(thrown);
    default:
      return new BerthError("INVALID_ARGUMENT", thrown.rawMessage);
  }
}

/** The error for a request message that exceeds the size limit. */
export function messageTooLarge(limitBytes: number): BerthError {
  return new BerthError(
    "MESSAGE_TOO_LARGE",
    `The request message is larger than the ${limitBytes} bytes that this call takes. Send less at once, or use a streaming call.`,
    { metadata: { limit: String(limitBytes) } },
  );
}

/** The error for a request message with more values (fields, elements, entries) than the server parses at once. */
export function tooManyValues(limit: number): BerthError {
  return new BerthError(
    "MESSAGE_TOO_LARGE",
    `The request message holds more than the ${limit} values that a message may. Send fewer at once, or many as one text, as bytes, or as a file.`,
    { metadata: { limit: String(limit) } },
  );
}

/** The error for a compressed message in a request without an encoding. gRPC requires `INTERNAL`. */
export function compressedWithoutEncoding(): BerthError {
  return new BerthError(
    "INTERNAL",
    "The message is marked as compressed, but the request's headers name no encoding. Name it, or clear the mark.",
  );
}

/** The error for a call that exceeded its deadline. */
export function deadlineExceeded(): BerthError {
  return new BerthError("DEADLINE_EXCEEDED", "The deadline of this call passed before it was done.");
}
