/** What OpenSSL finds wrong with a certificate or a key, for people. */
export function tlsProblem(error: unknown): string {
  const { reason, message } = error as Error & { readonly reason?: string };
  return reason === "ee key too small"
    ? "its key is too short; an RSA key needs 2048 bits"
    : (reason ?? message);
}

const CERTIFICATE = /-----BEGIN (?:TRUSTED |X509 )?CERTIFICATE-----/g;

/** The certificates of a file in PEM, each from its first line to the next certificate. */
export function certificatesIn(pem: string | Buffer): Buffer[] {
  const text = pem.toString("latin1");
  const places = Array.from(text.matchAll(CERTIFICATE), ({ index }) => index);
  return places.map((place, index) => Buffer.from(text.slice(place, places[index + 1]), "latin1"));
}
