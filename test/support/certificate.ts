import { execFile } from "node:child_process";
import path from "node:path";
import { promisify } from "node:util";

const run = promisify(execFile);

/** Creates a self-signed certificate for 127.0.0.1 or the given names. Returns its files. */
export async function makeCertificate(
  directory: string,
  name: string,
  subjectAltName = "IP:127.0.0.1",
): Promise<{ readonly cert: string; readonly key: string }> {
  const [cert, key] = [path.join(directory, `${name}.pem`), path.join(directory, `${name}.key`)];
  const kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"];
  const subject = ["-subj", `/CN=${name}`, "-addext", `subjectAltName=${subjectAltName}`];
  await run("openssl", ["req", "-x509", ...kind, "-keyout", key, "-out", cert, ...subject]);
  return { cert, key };
}
