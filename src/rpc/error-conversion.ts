import { randomBytes } from "node:crypto";
import { create } from "@bufbuild/protobuf";
import { durationFromMs } from "@bufbuild/protobuf/wkt";
import { Code, ConnectError } from "@connectrpc/connect";
import { ErrorDetailSchema } from "../../gen/ts/berth/v1/error_pb.js";
import { abortError, BerthError, canceled } from "../core/errors.ts";
import type { Logger } from "../core/ports/logger.ts";
import type { Call } from "./call.ts";
import { ERROR_TABLE } from "./error-table.ts";

/**
 * Longest message and metadata value on the wire, in UTF-16 units. They travel
 * in headers, for which clients have little room, and may quote a request.
 */
const MAX_TEXT = 1024;

/**
 * Turns whatever ended a call into the error its client is sent: the only place
 * where that happens. The call keeps it, with its cause, for the log.
 */
export class ErrorConverter {
  readonly #logger: Logger;

  constructor(logger: Logger) {
    this.#logger = logger;
  }

  /** What a handler threw. `signal` is the one the handler was given. */
  fromHandler(call: Call, thrown: unknown, signal: AbortSignal): ConnectError {
    if (thrown instanceof ConnectError && thrown === call.failure?.error) return thrown;
    return record(call, this.#handlerError(call, thrown, signal));
  }

  /** What failed before a handler was reached: headers, framing, encoding or size of the request. */
  fromRequest(call: Call, thrown: unknown, readMaxBytes: number): ConnectError {
    if (thrown instanceof ConnectError && thrown === call.failure?.error) return thrown;
    return record(call, requestError(thrown, readMaxBytes));
  }

  #handlerError(call: Call, thrown: unknown, signal: AbortSignal): BerthError | ConnectError {
    if (thrown instanceof BerthError && thrown.reason !== "INTERNAL") {
      // Core only knows that its signal was aborted; the call knows why.
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

/** Logs what nobody foresaw, and makes the error that tells only where to find it. */
export function internalError(logger: Logger, method: string, thrown: unknown): BerthError {
  const errorId = randomBytes(6).toString("hex");
  logger.error({ error_id: errorId, method, err: thrown }, "internal error");
  return new BerthError("INTERNAL", `internal error (id ${errorId}); the server's log has the details`, {
    metadata: { error_id: errorId },
  });
}

function record(call: Call, error: BerthError | ConnectError): ConnectError {
  const sent = error instanceof BerthError ? toConnectError(error) : error;
  call.failure = { error: sent, cause: error };
  return sent;
}

/** The wire form of an error, with its {@link ErrorDetailSchema | ErrorDetail}. */
export function toConnectError(error: BerthError): ConnectError {
  const { code, reason } = ERROR_TABLE[error.reason];
  const metadata: Record<string, string> = {};
  for (const [key, value] of Object.entries(error.metadata)) metadata[key] = clip(value);
  const detail = create(ErrorDetailSchema, {
    reason,
    metadata,
    retryAfter: error.retryAfterMs === undefined ? undefined : durationFromMs(Math.ceil(error.retryAfterMs)),
  });
  return new ConnectError(clip(error.message), code, undefined, [{ desc: ErrorDetailSchema, value: detail }]);
}

/** Fit for a header: bounded, and without the lone surrogates that percent-encoding refuses. */
function clip(text: string): string {
  return (text.length <= MAX_TEXT ? text : `${text.slice(0, MAX_TEXT)}…`).toWellFormed();
}

/**
 * What is wrong with a request, from what the library threw while it took it
 * apart. Bytes that cannot be read are the client's mistake, never `INTERNAL`.
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

/** Makes the error for a request message that is larger than the server reads. */
export function messageTooLarge(limitBytes: number): BerthError {
  return new BerthError(
    "MESSAGE_TOO_LARGE",
    `The request message is larger than the ${limitBytes} bytes that this call takes. Send less at once, or use a streaming call.`,
    { metadata: { limit: String(limitBytes) } },
  );
}

/** Makes the error for a call that ran out of the time its caller gave it. */
export function deadlineExceeded(): BerthError {
  return new BerthError("DEADLINE_EXCEEDED", "The deadline of this call passed before it was done.");
}
