import { Resolver } from "node:dns/promises";
import type { LookupFunction } from "node:net";
import { domainToASCII } from "node:url";
import { isPublicAddress } from "../base/public-address.ts";
import { allows, type DomainRule } from "./domains.ts";

/** Maximum length of a name, percent-encoded or not: converting it to the form of DNS takes quadratic time. */
export const MAX_HOST_CHARS = 2048;
const RESOLVE = { timeout: 3_000, tries: 2 };

/** The proxy's answer when it refuses to connect. The message is for the program in the sandbox. */
export class Refusal extends Error {
  readonly status: 400 | 403 | 501 | 502 | 503;

  constructor(status: Refusal["status"], message: string, cause?: unknown) {
    super(message, { cause });
    this.status = status;
  }
}

/** A host that a sandbox may connect to. */
export interface Target {
  readonly host: string;
  readonly port: number;
  /**
   * Returns only addresses that were checked, so that the connection goes to one of them, even if the name resolves to
   * others by then.
   */
  readonly lookup: LookupFunction;
}

/**
 * Checks the name against the rules, and the addresses that it currently resolves to.
 * @throws {@link Refusal}
 */
export async function findTarget(
  rules: readonly DomainRule[],
  hostname: string,
  port: number,
  signal: AbortSignal,
): Promise<Target> {
  if (hostname.length > MAX_HOST_CHARS) throw new Refusal(400, "The name of the host is too long.");
  const host = domainToASCII(hostname).replace(/\.$/, "");
  if (!allows(rules, host, port)) {
    throw new Refusal(403, `${hostname}:${port} is not among the egress_domains of this sandbox.`);
  }
  const found = await resolve(host, signal);
  const addresses = found.filter(isPublicAddress);
  if (addresses.length === 0) {
    throw found.length === 0
      ? new Refusal(502, `${host} has no address.`)
      : new Refusal(403, `${host} has no public address; private ones are closed to sandboxes.`);
  }
  const all = addresses.map((address) => ({ address, family: address.includes(":") ? 6 : 4 }));
  const [first = { address: "", family: 4 }] = all;
  const lookup: LookupFunction = (_host, options, done) => {
    if (options.all) done(null, all);
    else done(null, first.address, first.family);
  };
  return { host, port, lookup };
}

/**
 * Resolves IPv4 and IPv6 addresses. Asks the resolvers directly, because `getaddrinfo` would occupy threads that file
 * operations need.
 */
async function resolve(host: string, signal: AbortSignal): Promise<string[]> {
  signal.throwIfAborted();
  const resolver = new Resolver(RESOLVE);
  const cancel = (): void => resolver.cancel();
  signal.addEventListener("abort", cancel);
  try {
    const answers = await Promise.allSettled([resolver.resolve4(host), resolver.resolve6(host)]);
    const found = answers.flatMap((answer) => (answer.status === "fulfilled" ? answer.value : []));
    const failed = answers.find((answer) => answer.status === "rejected" && !isAbsence(answer.reason));
    if (found.length === 0 && failed?.status === "rejected")
      throw new Refusal(502, `${host} could not be resolved.`, failed.reason);
    return found;
  } finally {
    signal.removeEventListener("abort", cancel);
  }
}

function isAbsence(error: NodeJS.ErrnoException): boolean {
  return error.code === "ENODATA" || error.code === "ENOTFOUND";
}
