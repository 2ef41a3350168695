import type { Finding } from "../base/diagnosis.ts";
import { BerthError } from "../base/errors.ts";
import { loadCredentials, type SecretSource } from "./credentials.ts";

/** Checks whether the file of credentials can be used. @param named the service's secrets */
export async function diagnoseCredentials(file: string, named: SecretSource): Promise<Finding> {
  const subject = "egress-credentials";
  try {
    await loadCredentials(file, named);
    return { subject, status: "ok", found: `${file} can be used` };
  } catch (error) {
    if (!(error instanceof BerthError)) throw error;
    const fix = `Correct ${file}, or name another with --egress-credentials`;
    return { subject, status: "missing", found: error.message, fix };
  }
}
