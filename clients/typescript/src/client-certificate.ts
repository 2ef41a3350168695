import { createPrivateKey, type KeyObject, X509Certificate } from "node:crypto";
import { AccessError } from "./profile.ts";

/** Text in PEM, and how errors name it. */
export interface Pem {
  readonly name: string;
  readonly text: string;
}

/**
 * Checks a client's certificate and its key. Without this, some faults would appear only as a broken connection.
 * @throws AccessError that names what is wrong
 */
export function checkClientCertificate(cert: Pem, key: Pem): void {
  if (!readCertificate(cert).checkPrivateKey(readKey(key))) {
    throw new AccessError(`${key.name} holds another key than that of the certificate`);
  }
}

function readCertificate({ name, text }: Pem): X509Certificate {
  try {
    return new X509Certificate(blockOf(text, "CERTIFICATE"));
  } catch (cause) {
    throw new AccessError(`${name} holds no certificate in PEM`, { cause });
  }
}

function readKey({ name, text }: Pem): KeyObject {
  try {
    return createPrivateKey(blockOf(text, "PRIVATE KEY"));
  } catch (cause) {
    const problem = text.includes("ENCRYPTED")
      ? "is encrypted; give a key without a passphrase"
      : "holds no private key in PEM";
    throw new AccessError(`${name} ${problem}`, { cause });
  }
}

/** The first block of a kind, since a file may hold both, and Deno reads only the first block of a text. */
function blockOf(text: string, kind: string): string {
  const block = new RegExp(`-----BEGIN [A-Z0-9 ]*${kind}-----.*?-----END [A-Z0-9 ]*${kind}-----`, "s");
  return block.exec(text)?.[0] ?? "";
}
