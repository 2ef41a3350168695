import { createPrivateKey, type KeyObject, X509Certificate } from "node:crypto";
import { statSync } from "node:fs";
import path from "node:path";
import { AccessError, readText } from "./profile.ts";

/** Text in PEM, or a file with it, and how errors name it. */
export type PemSource =
  | { readonly name: string; readonly text: string }
  | { readonly name: string; readonly file: string };

interface Pem {
  readonly name: string;
  readonly text: string;
}

/** A certificate and its key, in PEM. */
export interface KeyPair {
  readonly cert: string;
  readonly key: string;
}

/**
 * Returns a client's certificate and its key. Reads them again if they are in files, which may be replaced at any time.
 * The first time, they must belong together. Later, what cannot be used leaves the previous ones in force: one of the
 * files may be written before the other.
 * @throws AccessError that names what is wrong: without this, some faults would appear only as a broken connection
 */
export function keyPairOf(certSource: PemSource, keySource: PemSource): () => KeyPair {
  const [cert, key] = [placed(certSource), placed(keySource)];
  let pair = readPair(cert, key);
  return () => {
    try {
      // What the shell pipes in can be read only once.
      if ([cert, key].every((it) => "text" in it || statSync(it.file).isFile())) pair = readPair(cert, key);
    } catch {}
    return pair;
  };
}

/** The same source, wherever the program works later. */
function placed(source: PemSource): PemSource {
  return "text" in source ? source : { ...source, file: path.resolve(source.file) };
}

function readPair(certSource: PemSource, keySource: PemSource): KeyPair {
  const [cert, key] = [read(certSource), read(keySource)];
  if (!readCertificate(cert).checkPrivateKey(readKey(key))) {
    throw new AccessError(`${key.name} holds another key than that of the certificate`);
  }
  return { cert: cert.text, key: key.text };
}

function read(source: PemSource): Pem {
  if ("text" in source) return source;
  return { name: `${source.name}: ${source.file}`, text: readText(source.name, source.file) };
}

function readCertificate({ name, text }: Pem): X509Certificate {
  let certificate: X509Certificate;
  try {
    certificate = new X509Certificate(blockOf(text, "CERTIFICATE"));
  } catch (cause) {
    throw new AccessError(`${name} holds no certificate in PEM`, { cause });
  }
  // Others may follow, up to the authority's.
  if (text.split("-----BEGIN ").length !== text.split("-----END ").length) {
    throw new AccessError(`${name} holds a certificate that is cut off`);
  }
  return certificate;
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
