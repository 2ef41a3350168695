import { Code, ConnectError } from "@connectrpc/connect";
import { type ErrorDetail, ErrorDetailSchema, ErrorReason } from "../../gen/ts/berth/v1/error_pb.js";
import { Failed } from "./exit.ts";
import type { ServiceAddress } from "./service-address.ts";
import { missedTls, tlsFailure } from "./tls-failure.ts";

/** A failure, described for people. */
interface Described {
  readonly message: string;
  /** What to do. */
  readonly hint: string | undefined;
}

/** Why a call failed, as reported by the service. Undefined if the error is not from the service. */
export function reasonOf(error: unknown): ErrorReason | undefined {
  return error instanceof ConnectError ? detailOf(error)?.reason : undefined;
}

/** Whether a call failed on the way, so that the service may never have received it. */
export function isConnectionFailure(error: unknown, address: ServiceAddress): boolean {
  if (!(error instanceof ConnectError) || detailOf(error)) return false;
  return error.code === Code.Unavailable || connectionFailure(error, address) !== undefined;
}

/** Like {@link callFailure}. If the other side may speak TLS, checks that first, for up to a second. */
export async function explainedFailure(
  error: unknown,
  address: ServiceAddress,
  exitCode: number,
): Promise<unknown> {
  const missed = isConnectionFailure(error, address)
    ? await missedTls(address, exitCode, { cause: error })
    : undefined;
  return missed ?? callFailure(error, address, exitCode);
}

/** Describes the failure of a call for the user. Returns other errors unchanged. */
export function callFailure(error: unknown, address: ServiceAddress, exitCode: number): unknown {
  if (!(error instanceof ConnectError)) return error;
  const { message, hint } = describe(error, address);
  return new Failed(message, { hint, exitCode, cause: error });
}

function describe(error: ConnectError, address: ServiceAddress): Described {
  const detail = detailOf(error);
  if (detail?.reason === ErrorReason.SHUTTING_DOWN) {
    return { message: `the service at ${address.text} is shutting down`, hint: "Try again in a moment." };
  }
  if (detail) return { message: error.rawMessage, hint: hintFor(detail) };
  return (
    connectionFailure(error, address) ?? {
      message: `${error.rawMessage} (${Code[error.code]})`,
      hint: undefined,
    }
  );
}

/** Failures that happened before the service answered. */
function connectionFailure(error: ConnectError, address: ServiceAddress): Described | undefined {
  const { text, baseUrl, socketPath, isLocal } = address;
  const cause = (error.cause ?? {}) as NodeJS.ErrnoException;
  const { code } = cause;
  const failedTls = tlsFailure(cause, address);
  if (failedTls) return failedTls;
  if (isUnknownCall(error)) {
    return {
      message: `the service at ${text} does not know this call`,
      hint: "It may be older than this program. Compare their versions: berth version",
    };
  }
  const orProxy =
    isLocal && socketPath === undefined ? `\nFor a proxy that takes only HTTP/2, write http://${text}` : "";
  if (code?.startsWith("HPE_") || code === "ERR_HTTP2_ERROR" || isNoAnswerToCalls(error)) {
    return {
      message: `what answers at ${text} is not Berth`,
      hint: `Check --address or BERTH_ADDRESS. For a port that speaks TLS, write https://HOST:PORT.${orProxy}`,
    };
  }
  const noService = {
    message: `no service answers at ${text}`,
    hint: "Start one with: berth serve\nIf it listens elsewhere, say where with --address or BERTH_ADDRESS.",
  };
  switch (code) {
    case "ECONNREFUSED":
    case "EHOSTUNREACH":
    case "ENETUNREACH":
    case "ETIMEDOUT":
      return noService;
    case "ENOENT":
      return socketPath === undefined ? undefined : noService;
    case "ENOTFOUND":
    case "EAI_AGAIN":
      return {
        message: `there is no machine with the name in ${text}`,
        hint: "Check --address or BERTH_ADDRESS.",
      };
    case "EACCES":
      return {
        message: `this user may not open ${text}`,
        hint: "Run it as the user who runs the service: the socket is theirs alone.",
      };
    default:
      // A closed connection ends its calls as canceled, without a detail. The service's own cancels have one.
      if (
        error.code === Code.Canceled ||
        code === "ECONNRESET" ||
        code === "EPIPE" ||
        code?.startsWith("ERR_HTTP2_")
      ) {
        const orCertificate = baseUrl.startsWith("https:")
          ? "\nA service with --tls-client-ca breaks it if it does not trust the certificate of --client-cert."
          : "";
        return {
          message: `the connection to ${text} broke`,
          hint: `See the service's log.${orProxy}${orCertificate}`,
        };
      }
      return undefined;
  }
}

/** Whether the service lacks the method. For a streaming method, Connect does not read the reason. */
function isUnknownCall({ rawMessage, metadata }: ConnectError): boolean {
  return rawMessage === "HTTP 404" && metadata.get("content-type") === "application/json";
}

/** Whether a web server answered that does not know the API. Connect shows it only by these messages. */
function isNoAnswerToCalls({ rawMessage }: ConnectError): boolean {
  return rawMessage.startsWith("unsupported content type") || /^HTTP 40[045]$/.test(rawMessage);
}

const MISSING = "See what is missing: berth doctor";

function hintFor({ reason, metadata }: ErrorDetail): string | undefined {
  switch (reason) {
    case ErrorReason.SANDBOX_NOT_FOUND:
    case ErrorReason.SANDBOX_NOT_RUNNING:
      return "To list them: berth ls --all";
    case ErrorReason.UNSUPPORTED:
      // Only what the engine lacks can be installed.
      return metadata.capability === undefined ? undefined : MISSING;
    case ErrorReason.ENGINE_UNAVAILABLE:
      return MISSING;
    case ErrorReason.PROCESS_NOT_FOUND:
      return "To list them: berth ps --all SANDBOX";
    case ErrorReason.WORKSPACE_NOT_FOUND:
      return "To list them: berth workspace ls. To create one: berth workspace create ID";
    case ErrorReason.UNAUTHENTICATED:
      return "Give a token with BERTH_TOKEN, --token-file or --profile. The operator creates tokens: berth token create";
    case ErrorReason.TOKEN_SCOPE:
      return "The operator can see what the token may do: berth token ls";
    case ErrorReason.SECRET_NOT_FOUND:
      return "The operator adds secrets with --secrets, and grants them in the tokens file";
    case ErrorReason.TENANT_QUOTA:
      return "To see the tenant's quotas and what it uses: berth stats --json";
    case ErrorReason.SANDBOX_LIMIT:
      return "To list them: berth ls";
    default:
      return undefined;
  }
}

function detailOf(error: ConnectError): ErrorDetail | undefined {
  return error.findDetails(ErrorDetailSchema)[0];
}
