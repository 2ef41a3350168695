import type { Finding } from "../base/diagnosis.ts";
import { readTokenFile } from "./live-tokens.ts";
import { secretNames } from "./secrets.ts";
import { TokenFileError } from "./token-file.ts";

/** Checks whether the tokens file can be used, and counts its contents without revealing them. */
export async function diagnoseTokens(path: string): Promise<Finding> {
  const subject = "tokens";
  try {
    const { tokens, tenants } = await readTokenFile(path);
    const expired = [...tokens.values()].filter(({ expires = Infinity }) => expires <= Date.now()).length;
    const found = `${counted(tokens.size, "token")} of ${counted(tenants.size, "tenant")}, ${expired} expired`;
    if (tokens.size > expired) return { subject, status: "ok", found };
    const fix = `berth token create --tenant NAME --tokens ${path}`;
    return { subject, status: "limited", found: `${found}: nobody can call`, fix };
  } catch (error) {
    if (!(error instanceof TokenFileError)) throw error;
    const { message, fix = `Correct ${path}, or name another file with --tokens` } = error;
    return { subject, status: "missing", found: message, fix };
  }
}

/** Checks whether the secrets can be used, and counts those of a file without naming them. */
export async function diagnoseSecrets(place: string): Promise<Finding> {
  const subject = "secrets";
  try {
    const count = await secretNames(place);
    const found = count === undefined ? `the directory ${place}` : counted(count, "secret");
    return { subject, status: "ok", found };
  } catch (error) {
    if (!(error instanceof TokenFileError)) throw error;
    const { message, fix = `Correct ${place}, or name another with --secrets` } = error;
    return { subject, status: "missing", found: message, fix };
  }
}

function counted(count: number, noun: string): string {
  return `${count} ${noun}${count === 1 ? "" : "s"}`;
}
