import { abortError, BerthError } from "../../base/errors.ts";

/** The reason for aborting a call that the API server did not answer in time. */
export class NoAnswerError extends Error {
  override readonly name = "NoAnswerError";
}

/** The reason for breaking off an answer that is larger than its caller accepts. */
export class TooLargeError extends Error {
  override readonly name = "TooLargeError";
}

/** The API server's refusal of a call. */
export class ApiError extends Error {
  override readonly name = "ApiError";
  readonly status: number;
  /** The API's reason, for instance `NotFound`; empty if the answer was not from the API server. */
  readonly reason: string;
  /** When to retry, if the answer says so. */
  readonly retryAfterMs: number | undefined;

  constructor(status: number, reason: string, message: string, retryAfter?: string) {
    super(message);
    this.status = status;
    this.reason = reason;
    this.retryAfterMs = /^\d{1,6}$/.test(retryAfter ?? "") ? Number(retryAfter) * 1000 : undefined;
  }

  /** Parses the `Status` object of an answer. Anything else is quoted as text. */
  static of(status: number, body: string, retryAfter?: string): ApiError {
    try {
      const { reason, message } = JSON.parse(body) as { reason?: unknown; message?: unknown };
      if (typeof message === "string")
        return new ApiError(status, typeof reason === "string" ? reason : "", message, retryAfter);
    } catch {
      // Not a `Status`: a proxy's page, or plain text from a kubelet.
    }
    return new ApiError(status, "", body.trim().slice(0, 500), retryAfter);
  }
}

/** Whether an error is a refusal of the API server with this status. */
export function isRefusal(error: unknown, status: number): boolean {
  return refusalOf(error)?.status === status;
}

/**
 * Whether a call failed with a transient error and can be retried. That is an overloaded API server, or a quota that
 * others are changing: then nothing was changed. For calls that read or delete it is also a restarting API server, or a
 * broken connection.
 */
export function isPassing(error: unknown, method: string): boolean {
  const mayRepeat = method === "GET" || method === "DELETE";
  if (!(error instanceof ApiError))
    return mayRepeat && (error as NodeJS.ErrnoException).code === "ECONNRESET";
  const { status, reason } = error;
  if (status === 409) return method === "POST" && reason === "Conflict";
  return status === 429 || (mayRepeat && status >= 500);
}

/** Whether a failed call may have made its change nevertheless. */
export function mayHaveHappened(error: unknown): boolean {
  const refused = refusalOf(error);
  if (refused !== undefined) return refused.status >= 500;
  const { code = "" } = ((error as Error).cause ?? {}) as { code?: string };
  return !/^(ECONNREFUSED|ENOTFOUND|EAI_AGAIN|EHOSTUNREACH|ENETUNREACH)$|CERT/.test(code);
}

/** Whether a call failed because the API server did not answer. */
export function isUnanswered(error: unknown): boolean {
  return error instanceof BerthError && error.cause instanceof NoAnswerError;
}

/** Whether a call failed because its answer was too large. */
export function isTooLarge(error: unknown): boolean {
  return error instanceof BerthError && error.cause instanceof TooLargeError;
}

/** The API server's refusal behind an error. */
export function refusalOf(error: unknown): ApiError | undefined {
  if (error instanceof ApiError) return error;
  return error instanceof BerthError && error.cause instanceof ApiError ? error.cause : undefined;
}

/** Messages of kubelets and container runtimes about a container that does not run. */
const NOT_RUNNING =
  /container not found|completed pod|not running|no running task|unable to upgrade connection: (pod|container)|does not have a host assigned/i;

/** The words of an API server or its store about an object that is too large, for instance for its variables. */
const TOO_LARGE = /request (entity )?(is )?too large/i;

/**
 * Converts any failure of a call to an error of the port. `doing` completes the sentence "Kubernetes failed while …".
 */
export function translateError(error: unknown, doing: string, signal?: AbortSignal): BerthError {
  if (error instanceof BerthError) return error;
  if (signal?.aborted) return abortError(signal);
  if (error instanceof NoAnswerError) {
    return unavailable(`The API server did not answer in time while ${doing}.`, error);
  }
  if (!(error instanceof ApiError)) return connectionError(error, doing);
  const { status, message } = error;
  const words = quoted(message);
  if (status === 404 && /^namespaces /.test(message))
    return unavailable(`The cluster does not have the service's namespace any more: ${words}`, error);
  if (status === 404 || NOT_RUNNING.test(message)) {
    return new BerthError("SANDBOX_TERMINATED", "The sandbox's pod is gone or no longer runs.", {
      cause: error,
    });
  }
  if (status === 401) {
    return unavailable(
      `The API server does not accept the service's credentials. Check the kubeconfig or the service account: ${words}`,
      error,
    );
  }
  // A ValidatingAdmissionPolicy refuses with any status that its author chose.
  if (status === 403 || /denied (the )?request:/.test(message)) return forbidden(message, error);
  if (status === 400 || status === 422 || TOO_LARGE.test(message)) {
    return new BerthError("INVALID_ARGUMENT", `Kubernetes refused the request while ${doing}: ${words}`, {
      cause: error,
    });
  }
  if (status === 429) {
    return new BerthError("TOO_MANY_OPERATIONS", `The API server has too many calls: ${words}`, {
      cause: error,
      retryAfterMs: 1000,
    });
  }
  return unavailable(`Kubernetes failed while ${doing} (status ${status}): ${words}`, error);
}

/** The error for what admission refuses, and for permissions that the service lacks, which the operator has to fix. */
function forbidden(message: string, cause: ApiError): BerthError {
  const words = quoted(message);
  if (/violates PodSecurity/i.test(message)) {
    return new BerthError(
      "NOT_ALLOWED",
      `The namespace's PodSecurity level refuses the sandbox's pod: ${words}`,
      { cause },
    );
  }
  if (/(maximum|minimum) \S+ usage per/i.test(message)) {
    return new BerthError(
      "NOT_ALLOWED",
      `The namespace's LimitRange refuses the sandbox's limits. Ask for others: ${words}`,
      { cause },
    );
  }
  if (/failed quota/i.test(message)) {
    return new BerthError(
      "NOT_ALLOWED",
      `The namespace's quota demands a limit that sandboxes do not have. Ask the operator to change it: ${words}`,
      { cause },
    );
  }
  if (/exceeded quota/i.test(message)) {
    return new BerthError("SANDBOX_LIMIT", `The namespace's quota leaves no room for the sandbox: ${words}`, {
      cause,
      retryAfterMs: 5000,
    });
  }
  if (/RuntimeClass/i.test(message)) {
    return new BerthError("UNSUPPORTED", `The cluster does not have this runtime class: ${words}`, { cause });
  }
  if (/cannot \w+ resource/i.test(message)) {
    return unavailable(`The service lacks a right in the cluster; berth doctor lists them: ${words}`, cause);
  }
  return new BerthError("NOT_ALLOWED", `The cluster refuses the sandbox's pod: ${words}`, { cause });
}

function connectionError(error: unknown, doing: string): BerthError {
  const { code = "", message = "" } = (error ?? {}) as { code?: string; message?: string };
  if (code === "ECONNREFUSED")
    return unavailable("The API server is not reachable: it refuses connections.", error);
  if (/^(ENOTFOUND|EAI_AGAIN|EHOSTUNREACH|ENETUNREACH|ETIMEDOUT)$/.test(code)) {
    return unavailable(
      `The API server is not reachable (${code}). Check the address in the kubeconfig.`,
      error,
    );
  }
  if (/^CERT_(HAS_EXPIRED|NOT_YET_VALID)$/.test(code)) {
    return unavailable(
      `The API server's certificate is not valid at this time (${code}). Check the service's clock, then the certificate.`,
      error,
    );
  }
  if (/CERT|SELF_SIGNED|UNABLE_TO_(GET|VERIFY)|ALTNAME/.test(code)) {
    return unavailable(`The API server's certificate is not trusted (${code}). Check the kubeconfig.`, error);
  }
  if (/^exec |getaddrinfo|spawn/.test(message)) {
    return unavailable(`The kubeconfig's program for credentials failed: ${quoted(message)}`, error);
  }
  return unavailable(`The connection to the API server broke while ${doing}.`, error);
}

/** A message from the cluster, shortened for use in an error message. */
export function quoted(message: string): string {
  return message.replace(/\s+/g, " ").trim().slice(0, 500);
}

function unavailable(message: string, cause: unknown): BerthError {
  return new BerthError("ENGINE_UNAVAILABLE", message, { cause, retryAfterMs: 1000 });
}
