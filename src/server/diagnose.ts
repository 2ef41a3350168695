import type { Finding } from "../base/diagnosis.ts";
import { BerthError } from "../base/errors.ts";
import { createTlsServer } from "./listener.ts";
import type { TlsFiles } from "./live-tls.ts";

/** Whether a port could use TLS with these files. */
export function diagnoseTls(files: TlsFiles): Finding {
  const subject = "tls";
  try {
    const { cert, key, clientCa } = files.read();
    createTlsServer({ cert, key, ca: clientCa });
    return { subject, status: "ok", found: "the certificate and the key belong together" };
  } catch (error) {
    if (!(error instanceof BerthError)) throw error;
    const fix = "Name a certificate and its key, both in PEM, with --tls-cert and --tls-key";
    return { subject, status: "missing", found: error.message, fix };
  }
}
