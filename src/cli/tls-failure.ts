import { Failed } from "./exit.ts";
import type { ServiceAddress } from "./service-address.ts";

/** How long the other side may take to show whether it speaks TLS. */
const PROBE_TIMEOUT_MS = 5_000;

/** Describes why a TLS connection failed. Undefined for other errors. */
export function tlsFailure(
  error: NodeJS.ErrnoException & { readonly cert?: { readonly subjectaltname?: string } },
  { text, baseUrl }: ServiceAddress,
): { readonly message: string; readonly hint: string } | undefined {
  switch (error.code) {
    case "SELF_SIGNED_CERT_IN_CHAIN":
    case "DEPTH_ZERO_SELF_SIGNED_CERT":
    case "UNABLE_TO_VERIFY_LEAF_SIGNATURE":
    case "UNABLE_TO_GET_ISSUER_CERT":
    case "UNABLE_TO_GET_ISSUER_CERT_LOCALLY":
    case "CERT_UNTRUSTED":
    case "CERT_SIGNATURE_FAILURE":
      return {
        message: `the certificate of ${text} comes from an authority that is not trusted here`,
        hint: "Name a file with the authority's certificate: --tls-ca FILE, or BERTH_TLS_CA=FILE.",
      };
    case "ERR_TLS_CERT_ALTNAME_INVALID":
      return {
        message: `the certificate of ${text} is for another name: ${namesIn(error.cert?.subjectaltname)}`,
        hint: "Call the service by a name that its certificate has: --address https://NAME:PORT.",
      };
    case "CERT_HAS_EXPIRED":
      return {
        message: `the certificate of ${text} has expired`,
        hint: "Renew it in the file of the service's --tls-cert. The service needs no restart.",
      };
    case "CERT_NOT_YET_VALID":
      return {
        message: `the certificate of ${text} is not valid yet`,
        hint: "Set the clocks of this machine and of the service's: date",
      };
    case "ERR_SSL_TLSV13_ALERT_CERTIFICATE_REQUIRED":
      return {
        message: `the service at ${text} requires a certificate of its clients`,
        hint: "Name files with one and its key: --client-cert FILE --client-key FILE, or BERTH_CLIENT_CERT and BERTH_CLIENT_KEY.",
      };
    case "ERR_SSL_TLSV1_ALERT_UNKNOWN_CA":
    case "ERR_SSL_SSL/TLS_ALERT_BAD_CERTIFICATE":
    case "ERR_SSL_SSL/TLS_ALERT_CERTIFICATE_EXPIRED":
    case "ERR_SSL_SSL/TLS_ALERT_CERTIFICATE_UNKNOWN":
      return {
        message: `the service at ${text} refuses the certificate of this program`,
        hint: "Name one of an authority that the service trusts: --client-cert FILE --client-key FILE.",
      };
    // The other side does not speak TLS.
    case "ERR_SSL_WRONG_VERSION_NUMBER":
    case "ERR_SSL_PACKET_LENGTH_TOO_LONG":
      return {
        message: `what answers at ${text} does not speak TLS`,
        hint: `Connect without TLS: --address ${baseUrl.replace(/^https/, "http")}`,
      };
    default:
      return undefined;
  }
}

/** From text such as `DNS:a.example, IP Address:10.0.0.1`. */
function namesIn(subjectAltName = ""): string {
  return subjectAltName.replace(/(DNS|IP Address):/g, "") || "none";
}

/** The failure of calls without TLS to a server that speaks TLS. Undefined: it does not. Sends no call. */
export async function missedTls(
  address: ServiceAddress,
  exitCode: number,
  { cause, signal }: { readonly cause?: unknown; readonly signal?: AbortSignal } = {},
): Promise<Failed | undefined> {
  if ((await presentedCertificate(address, signal)) === undefined) return undefined;
  const hint = `Call it with TLS: --address ${address.baseUrl.replace(/^http/, "https")}`;
  return new Failed(`what answers at ${address.text} speaks TLS`, { hint, exitCode, cause });
}

/**
 * The certificate that the server at an address without TLS presents, in DER. Empty: it speaks TLS, but presents none to
 * this program. Undefined: it does not speak TLS, or the signal fired.
 */
export async function presentedCertificate(
  { baseUrl, socketPath }: ServiceAddress,
  signal?: AbortSignal,
): Promise<Buffer | undefined> {
  const url = new URL(baseUrl);
  if (url.protocol !== "http:" || socketPath !== undefined) return undefined;
  // Loaded here, because they take some milliseconds and only this needs them.
  const [tls, net] = await Promise.all([import("node:tls"), import("node:net")]);
  const host = url.hostname.replace(/^\[|\]$/g, "");
  const socket = tls.connect({
    host,
    ...(net.isIP(host) === 0 && { servername: host }),
    port: Number(url.port || 80),
    // Nothing is sent, so the identity does not matter.
    rejectUnauthorized: false,
    timeout: PROBE_TIMEOUT_MS,
  });
  const onAbort = () => socket.destroy();
  signal?.addEventListener("abort", onAbort);
  try {
    return await new Promise<Buffer | undefined>((resolve) => {
      socket.once("secureConnect", () => resolve(socket.getPeerCertificate().raw));
      // Only a server that speaks TLS refuses a handshake by an alert.
      socket.once("error", ({ code }: NodeJS.ErrnoException) =>
        resolve(code?.includes("_ALERT_") ? Buffer.alloc(0) : undefined),
      );
      for (const end of ["timeout", "close"]) socket.once(end, () => resolve(undefined));
    });
  } finally {
    signal?.removeEventListener("abort", onAbort);
    socket.on("error", () => {});
    socket.destroy();
  }
}
