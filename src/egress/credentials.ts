import { readFile } from "node:fs/promises";
import path from "node:path";
import { z } from "zod";
import type { Finding } from "../base/diagnosis.ts";
import { BerthError } from "../base/errors.ts";
import { IN_PLAIN_WORDS } from "../base/schema-words.ts";
import { parseDomainRule } from "./domains.ts";

/** A source of secrets. It is read at each use, so that a secret can be replaced while the service runs. */
export interface SecretSource {
  /** @throws if there is no secret with this name, or it cannot be read. */
  read(name: string): Promise<string>;
}

const TOKEN = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;
const SECRET = "{secret}";

const CREDENTIAL = z
  .strictObject({
    header: z.string().regex(TOKEN, "is not a header name").toLowerCase(),
    value: z.string().includes(SECRET).default(SECRET),
    secret: z.string().min(1).optional(),
    secret_name: z.string().min(1).optional(),
    owners: z.array(z.string().min(1)).optional(),
  })
  .refine(
    ({ secret, secret_name: name }) => (secret === undefined) !== (name === undefined),
    "needs a secret or a secret_name, and not both",
  );

/** A header that the proxy adds to requests for a host. */
type Credential = z.infer<typeof CREDENTIAL>;

/** The headers that the proxy adds, by host and owner. */
export class Credentials {
  readonly #byHost: ReadonlyMap<string, Credential>;
  readonly #files: SecretSource;
  readonly #named: SecretSource;

  /** @param sources the sources for secrets in `files`, and for those with a name */
  constructor(
    byHost: ReadonlyMap<string, Credential>,
    { files, named }: { readonly files: SecretSource; readonly named: SecretSource },
  ) {
    this.#byHost = byHost;
    this.#files = files;
    this.#named = named;
  }

  /** Finds the credential for a host that is granted to an owner. */
  find(host: string, owner: string): Credential | undefined {
    const found = this.#byHost.get(host);
    return found?.owners?.includes(owner) === false ? undefined : found;
  }

  /** Returns the header's value. @throws as {@link SecretSource.read} */
  async valueOf(credential: Credential): Promise<string> {
    const { value } = credential;
    const text = await this.secretOf(credential);
    return value.replaceAll(SECRET, () => text);
  }

  /** Returns the secret itself. @throws as {@link SecretSource.read} */
  secretOf({ secret, secret_name: name = "" }: Credential): Promise<string> {
    return secret === undefined ? this.#named.read(name) : this.#files.read(secret);
  }
}

const NO_SECRETS: SecretSource = {
  read: async (name) => {
    throw new Error(`there is no secret ${name}`);
  },
};

/** No credentials. */
export const NO_CREDENTIALS = new Credentials(new Map(), { files: NO_SECRETS, named: NO_SECRETS });

/**
 * Reads the operator's file: a JSON object with, for each host, the header, its value with `{secret}` in it, the file
 * of the secret (relative to this file) or its name among the service's secrets, and the owners that may use it
 * (default: all).
 * @throws `INVALID_ARGUMENT` that says what is wrong, without revealing a secret.
 */
export async function loadCredentials(file: string, named: SecretSource = NO_SECRETS): Promise<Credentials> {
  const refused = (problem: string, cause?: unknown): BerthError =>
    new BerthError("INVALID_ARGUMENT", `--egress-credentials ${file}: ${problem}.`, { cause });
  let content: unknown;
  try {
    content = JSON.parse(await readFile(file, "utf8"));
  } catch (error) {
    const { code = "unknown error" } = error as NodeJS.ErrnoException;
    throw refused(error instanceof SyntaxError ? "it is not JSON" : `it cannot be read (${code})`, error);
  }
  const parsed = z.record(z.string(), CREDENTIAL).safeParse(content, IN_PLAIN_WORDS);
  if (!parsed.success) {
    const [issue] = parsed.error.issues;
    const at = issue?.path.length ? [issue.path.join(".")] : [];
    throw refused([...at, issue?.message ?? "it is malformed"].join(": "));
  }
  const byHost = new Map<string, Credential>();
  for (const [host, credential] of Object.entries(parsed.data)) {
    const rule = parseDomainRule(host);
    if (typeof rule === "string") throw refused(`${JSON.stringify(host)}: ${rule}`);
    if (rule.below || host.includes(":"))
      throw refused(`${JSON.stringify(host)}: name one host, without a port`);
    byHost.set(rule.name, credential);
  }
  const credentials = new Credentials(byHost, { files: secretFiles(path.dirname(file)), named });
  for (const [host, credential] of byHost) {
    await credentials.secretOf(credential).catch((error: unknown) => {
      const { secret, secret_name: name } = credential;
      const what =
        secret === undefined
          ? `secret_name ${name} is not among --secrets`
          : `the secret's file ${secret} cannot be read`;
      throw refused(`${host}: ${what}`, error);
    });
  }
  return credentials;
}

/** Secrets in files, as Docker and Kubernetes mount them. A trailing newline is not part of the secret. */
function secretFiles(directory: string): SecretSource {
  return {
    read: async (name) => (await readFile(path.resolve(directory, name), "utf8")).replace(/\r?\n$/, ""),
  };
}

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
