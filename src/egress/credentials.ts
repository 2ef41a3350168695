import { readFile } from "node:fs/promises";
import path from "node:path";
import { z } from "zod";
import { BerthError } from "../base/errors.ts";
import { parseDomainRule } from "./domains.ts";

/** Where secrets are kept. Asked at each use, so that a secret can be replaced while the service runs. */
export interface SecretSource {
  /** @throws where there is none of that name, or it cannot be read. */
  read(name: string): Promise<string>;
}

const TOKEN = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;
const SECRET = "{secret}";

const CREDENTIAL = z.strictObject({
  header: z.string().regex(TOKEN, "is no name of a header").toLowerCase(),
  value: z.string().includes(SECRET).default(SECRET),
  secret: z.string().min(1),
  owners: z.array(z.string().min(1)).optional(),
});

/** A header that the proxy adds to requests for a host. */
export type Credential = z.infer<typeof CREDENTIAL>;

/** The headers that the proxy adds, by host and owner. */
export class Credentials {
  readonly #byHost: ReadonlyMap<string, Credential>;
  readonly #secrets: SecretSource;

  constructor(byHost: ReadonlyMap<string, Credential>, secrets: SecretSource) {
    this.#byHost = byHost;
    this.#secrets = secrets;
  }

  /** The credential for a host that is granted to an owner. */
  find(host: string, owner: string): Credential | undefined {
    const found = this.#byHost.get(host);
    return found?.owners?.includes(owner) === false ? undefined : found;
  }

  /** The header's value. @throws as {@link SecretSource.read} */
  async valueOf({ secret, value }: Credential): Promise<string> {
    const text = await this.#secrets.read(secret);
    return value.replaceAll(SECRET, () => text);
  }
}

/** Without any. */
export const NO_CREDENTIALS = new Credentials(new Map(), {
  read: async (name) => {
    throw new Error(`there is no secret ${name}`);
  },
});

/**
 * Reads the operator's file: a JSON object that has, for each host, the header, its value with `{secret}` in it, the
 * file of the secret (relative to this file), and the owners that it is for (default: all).
 * @throws `INVALID_ARGUMENT` that names what is wrong, and never a secret.
 */
export async function loadCredentials(file: string): Promise<Credentials> {
  const refused = (problem: string, cause?: unknown): BerthError =>
    new BerthError("INVALID_ARGUMENT", `--egress-credentials ${file}: ${problem}.`, { cause });
  let content: unknown;
  try {
    content = JSON.parse(await readFile(file, "utf8"));
  } catch (error) {
    throw refused(error instanceof SyntaxError ? "it is no JSON" : "it cannot be read", error);
  }
  const parsed = z.record(z.string(), CREDENTIAL).safeParse(content);
  if (!parsed.success) {
    const [issue] = parsed.error.issues;
    throw refused(`${issue?.path.join(".") ?? ""}: ${issue?.message ?? "it is malformed"}`);
  }
  const byHost = new Map<string, Credential>();
  for (const [host, credential] of Object.entries(parsed.data)) {
    const rule = parseDomainRule(host);
    if (typeof rule === "string") throw refused(`${JSON.stringify(host)}: ${rule}`);
    if (rule.below || host.includes(":"))
      throw refused(`${JSON.stringify(host)}: name one host, without a port`);
    byHost.set(rule.name, credential);
  }
  const secrets = secretFiles(path.dirname(file));
  for (const [host, { secret }] of byHost) {
    await secrets.read(secret).catch((error: unknown) => {
      throw refused(`${host}: the secret's file ${secret} cannot be read`, error);
    });
  }
  return new Credentials(byHost, secrets);
}

/** Secrets in files, as Docker and Kubernetes mount them; a line's end at their end is not part of them. */
function secretFiles(directory: string): SecretSource {
  return {
    read: async (name) => (await readFile(path.resolve(directory, name), "utf8")).replace(/\r?\n$/, ""),
  };
}
