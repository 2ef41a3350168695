import { abortError, BerthError } from "../../base/errors.ts";
import { tooManyFiles } from "../../base/system-errors.ts";

/** The reason for aborting a call that Docker did not answer in time. */
export class NoAnswerError extends Error {
  override readonly name = "NoAnswerError";
}

/** Why a call failed that Docker answered with more than Berth reads. */
export class LongAnswerError extends Error {
  override readonly name = "LongAnswerError";
}

interface DaemonAnswer {
  readonly statusCode: number;
  readonly text: string;
}

/**
 * Converts any failure of a call to Docker to an error of the port. `doing` completes the sentence "Docker failed while
 * …". Docker has no error codes, so the text of the message decides what a status means.
 */
export function translateError(error: unknown, doing: string, signal?: AbortSignal): BerthError {
  if (error instanceof BerthError) return error;
  if (signal?.aborted) return abortError(signal);
  if (error instanceof NoAnswerError) {
    return unavailable(
      `Docker did not answer in time while ${doing}. Check whether dockerd is overloaded or hangs.`,
      error,
    );
  }
  if (error instanceof LongAnswerError) {
    return unavailable(
      `Docker's answer was longer than Berth reads while ${doing}: ${error.message}.`,
      error,
    );
  }
  const answer = daemonAnswer(error);
  if (answer === undefined) return tooManyFiles(error) ?? connectionError(error, doing);
  return answerError(answer, doing, error);
}

function answerError({ statusCode, text }: DaemonAnswer, doing: string, cause: unknown): BerthError {
  if (/no such image|manifest unknown/i.test(text)) {
    return new BerthError("IMAGE_UNAVAILABLE", "The image is not on the engine's machine.", { cause });
  }
  if (
    /no such (container|exec)|is not running|on running containers|is dead|marked for removal/i.test(text)
  ) {
    return new BerthError("SANDBOX_TERMINATED", "The sandbox's container is gone or no longer runs.", {
      cause,
    });
  }
  if (/is paused/i.test(text)) {
    return new BerthError("SANDBOX_NOT_RUNNING", "The sandbox is paused. Resume it first.", { cause });
  }
  if (/no space left on device/i.test(text)) {
    return new BerthError("NO_SPACE", "The disk of the engine's machine is full. Free space and try again.", {
      cause,
    });
  }
  if (/unknown or invalid runtime name|unknown runtime/i.test(text)) {
    return new BerthError("UNSUPPORTED", "Docker does not know this OCI runtime. Register it with dockerd.", {
      cause,
    });
  }
  if (statusCode === 400) {
    return new BerthError(
      "INVALID_ARGUMENT",
      `Docker refused the request while ${doing}: ${daemonWords(text)}`,
      { cause },
    );
  }
  return unavailable(
    `Docker failed while ${doing} (status ${statusCode}). The service's log has the details.`,
    cause,
  );
}

function connectionError(error: unknown, doing: string): BerthError {
  const code = (error as { code?: unknown } | null)?.code;
  switch (code) {
    case "EACCES":
    case "EPERM":
      return unavailable(
        "The service's user may not open Docker's socket. Add that user to the group docker, or run the service as root.",
        error,
      );
    case "ENOENT":
    case "ECONNREFUSED":
      return unavailable(
        "Docker is not running. Start it, for instance with: sudo systemctl start docker",
        error,
      );
    default:
      return unavailable(`The connection to Docker broke while ${doing}.`, error);
  }
}

/** The daemon's status and text, if the driver's error is an answer of the daemon. */
function daemonAnswer(error: unknown): DaemonAnswer | undefined {
  if (typeof error !== "object" || error === null || !("statusCode" in error)) return undefined;
  const { statusCode, message } = error as { statusCode: number; message?: string };
  return { statusCode, text: message ?? "" };
}

/** The daemon's answer behind a translated error, if there was one. */
export function answerTo(error: unknown): DaemonAnswer | undefined {
  return error instanceof BerthError ? daemonAnswer(error.cause) : undefined;
}

/** Whether a translated error is that of a call that Docker did not answer in time. */
export function hadNoAnswer(error: unknown): boolean {
  return error instanceof BerthError && error.cause instanceof NoAnswerError;
}

/** Whether a translated error is that of a call that Docker answered with more than Berth reads. */
export function hadLongAnswer(error: unknown): boolean {
  return error instanceof BerthError && error.cause instanceof LongAnswerError;
}

/** A message from Docker, without the host's paths, and short enough for an error message. */
export function daemonWords(text: string): string {
  return text
    .replace(
      /^(failed to create (shim task|task for container): )?(OCI runtime \w+ failed: )?(runc create failed: )?/,
      "",
    )
    .replace(/: unknown\s*$/, "")
    .replace(/\/(var|run|proc\/\d+)\/[^\s":,]*/g, "…")
    .trim()
    .slice(0, 500);
}

function unavailable(message: string, cause: unknown): BerthError {
  return new BerthError("ENGINE_UNAVAILABLE", message, { cause, retryAfterMs: 1000 });
}
