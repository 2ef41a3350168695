import { X509Certificate } from "node:crypto";
import { createSecureContext, type SecureContextOptions } from "node:tls";
import { BerthError } from "../base/errors.ts";
import { certificatesIn, tlsProblem } from "../base/tls-problem.ts";
import type { TlsFiles } from "../server/live-tls.ts";
import type { Config } from "./options.ts";
import { isOwnDescriptor, readGivenFile, readProblem } from "./read-file.ts";

interface Pem {
  readonly pem: Buffer;
  /** The option and the file, as errors name them. */
  readonly name: string;
}

/** The files of the port's certificate, key and authorities of clients. Undefined: no TLS. */
export function tlsFiles({
  tlsCert,
  tlsKey,
  tlsClientCa,
}: Pick<Config, "tlsCert" | "tlsKey" | "tlsClientCa">): TlsFiles | undefined {
  if (tlsCert === undefined || tlsKey === undefined) return undefined;
  return {
    // Do not follow files that the shell pipes in: they can be read only once.
    paths: [tlsCert, tlsKey, tlsClientCa ?? []].flat().filter((path) => !isOwnDescriptor(path)),
    read: () => ({
      ...readKeyPair(readPem("--tls-cert", tlsCert), readPem("--tls-key", tlsKey)),
      clientCa:
        tlsClientCa === undefined ? undefined : readAuthorities(readPem("--tls-client-ca", tlsClientCa)),
    }),
  };
}

/** @throws BerthError `INVALID_ARGUMENT` if the file cannot be read */
function readPem(flag: string, path: string): Pem {
  const name = `${flag}: ${path}`;
  try {
    return { pem: readGivenFile(path), name };
  } catch (error) {
    throw unusable(
      `${name}: ${readProblem(error)}. Name a file in PEM that the service's user may read.`,
      error,
    );
  }
}

/** Checks each file by itself first: an error of both together would not say which of them is wrong. */
function readKeyPair({ pem: cert, name: certName }: Pem, { pem: key, name: keyName }: Pem) {
  check(
    { cert },
    (problem) =>
      `${certName} holds no usable certificate (${problem}). It must be PEM: the certificate, then those of its issuers.`,
  );
  check(
    { key },
    (problem) =>
      `${keyName} holds no usable key (${problem}). It must be PEM: the certificate's private key, without a passphrase.`,
  );
  check(
    { cert, key },
    () => `${keyName} does not belong to the certificate in ${certName}. Replace whichever is out of date.`,
  );
  return { cert, key };
}

/** @throws BerthError `INVALID_ARGUMENT` if TLS cannot use this */
function check(options: SecureContextOptions, describe: (problem: string) => string): void {
  try {
    createSecureContext(options);
  } catch (error) {
    throw unusable(describe(tlsProblem(error)), error);
  }
}

/**
 * Checks that there is a certificate. Node would treat a file without one as no authorities, and then refuse every
 * client without saying why.
 */
function readAuthorities({ pem, name }: Pem): Buffer {
  const blocks = certificatesIn(pem);
  if (blocks.length === 0) {
    throw unusable(`${name} holds no certificate. It must be PEM: of the authorities of your clients.`);
  }
  blocks.forEach((block, index) => {
    try {
      new X509Certificate(block);
    } catch (error) {
      throw unusable(`${name}: its certificate ${index + 1} cannot be read. Replace or remove it.`, error);
    }
  });
  return pem;
}

function unusable(message: string, cause?: unknown): BerthError {
  return new BerthError("INVALID_ARGUMENT", message, { cause });
}
