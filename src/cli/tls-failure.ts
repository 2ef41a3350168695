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
        hint: `Call it without: --address ${baseUrl.replace(/^https/, "http")}`,
      };
    default:
      return undefined;
  }
}

/** From text such as `DNS:a.example, IP Address:10.0.0.1`. */
function namesIn(subjectAltName = ""): string {
  return subjectAltName.replace(/(DNS|IP Address):/g, "") || "none";
}

/** Whether the server at an address without TLS speaks TLS. */
export async function speaksTls(address: ServiceAddress): Promise<boolean> {
  return (await presentedCertificate(address)) !== undefined;
}

/** The certificate that the server at an address without TLS presents, in DER. Undefined: it does not speak TLS. */
export async function presentedCertificate({
  baseUrl,
  socketPath,
}: ServiceAddress): Promise<Buffer | undefined> {
  const url = new URL(baseUrl);
  if (url.protocol !== "http:" || socketPath !== undefined) return undefined;
  // Loaded here, because it takes some milliseconds and only this needs it.
  const tls = await import("node:tls");
  const socket = tls.connect({
    host: url.hostname.replace(/^\[|\]$/g, ""),
    port: Number(url.port || 80),
    // Nothing is sent, so the identity does not matter.
    rejectUnauthorized: false,
    timeout: PROBE_TIMEOUT_MS,
  });
  try {
    return await new Promise<Buffer | undefined>((resolve) => {
      socket.once("secureConnect", () => resolve(socket.getPeerCertificate().raw));
      for (const end of ["error", "timeout", "close"]) socket.once(end, () => resolve(undefined));
    });
  } finally {
    socket.on("error", () => {});
    socket.destroy();
  }
}
