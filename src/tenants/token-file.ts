import { type Document, isMap, isNode, LineCounter, type Node, parseDocument, visit } from "yaml";
import { z } from "zod";
import { BerthError } from "../base/errors.ts";
import { IN_PLAIN_WORDS } from "../base/schema-words.ts";
import { parseCpus, parseSize, ValueError } from "../config/values.ts";
import type { TenantQuota } from "../sandboxes/tenant-quotas.ts";
import { TOKEN_ID } from "./token.ts";

/** A tokens file is invalid. The message says what is wrong, and where. */
export class TokenFileError extends Error {
  /** How to fix it; undefined if the message says enough. */
  readonly fix: string | undefined;

  constructor(message: string, options: { readonly fix?: string; readonly cause?: unknown } = {}) {
    super(message, { cause: options.cause });
    this.fix = options.fix;
  }
}

/** The error for an option of the service that names such a file. Returns other errors as they are. */
export function optionError(field: string, cause: unknown): unknown {
  if (!(cause instanceof TokenFileError)) return cause;
  const fix = cause.fix === undefined ? "" : ` Type: ${cause.fix}`;
  return new BerthError("INVALID_ARGUMENT", `--${field}: ${cause.message}.${fix}`, {
    cause,
    metadata: { field },
  });
}

/** Limits of the file: its size in bytes, and what it may contain. */
export const MAX_FILE_BYTES = 1 << 20;
const MAX_TOKENS = 4000;
const MAX_TENANTS = 1000;
const MAX_NOTE = 200;

/** The owner in the labels of sandboxes that wait in the warm pool. */
const RESERVED_TENANTS: ReadonlySet<string> = new Set(["warm-pool"]);

const SCOPES = ["admin", "user", "read-only"] as const;

const tenantName = z
  .string()
  .regex(
    /^[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?$/,
    'is not the name of a tenant: 1 to 63 of a-z, 0-9, ".", "_" and "-", with a letter or digit at both ends',
  )
  .refine((name) => !RESERVED_TENANTS.has(name), "is a name that Berth uses itself; choose another");

const token = z.strictObject({
  id: z.string().regex(TOKEN_ID, "is not the id of a token: 4 to 32 of a-z and 0-9"),
  tenant: z.string(),
  scope: z.enum(SCOPES, "is not a scope: write admin, user or read-only"),
  sha256: z.string().regex(/^[0-9a-f]{64}$/, "is not a SHA-256: 64 hexadecimal digits, in lower case"),
  expires: z.iso
    .datetime({ offset: true, error: "is not a time: write it as 2030-01-31T00:00:00Z" })
    .transform((text) => Date.parse(text))
    .optional(),
  note: z.string().max(MAX_NOTE, `is longer than ${MAX_NOTE} characters`).optional(),
});

const quotaCount = (min: number) => {
  const problem = `is not a whole number of ${min} or more`;
  return z.int(problem).min(min, problem).optional();
};
/** A value in the syntax of the service's options. */
const written = (read: (text: string) => number) =>
  z
    .union([z.string(), z.number()], "is not a text or number")
    .transform((value, context) => {
      try {
        return read(String(value));
      } catch (error) {
        if (!(error instanceof ValueError)) throw error;
        context.addIssue({ code: "custom", message: error.message });
        return z.NEVER;
      }
    })
    .optional();

const quota = z
  .strictObject(
    {
      sandboxes: quotaCount(0),
      memory: written(parseSize),
      cpus: written(parseCpus),
      pids: quotaCount(1),
      execs: quotaCount(0),
      sessions: quotaCount(0),
      creates_per_second: z
        .number("is not a number above 0")
        .positive("is not a number above 0")
        .max(1_000_000, "is above 1000000")
        .optional(),
      transcripts: written(parseSize),
      workspaces: written(parseSize),
    },
    "is not a map of quotas",
  )
  .transform((found) => defined(toQuota(found)));

const tenant = z.strictObject(
  { quota: quota.optional(), secrets: z.array(z.string(), "is not a list of secrets").optional() },
  "is not a tenant: write {}, or its quota and secrets",
);

const tokensFile = z.strictObject(
  {
    tenants: z.record(tenantName, tenant.nullable(), "is not a map of tenants"),
    tokens: z.array(token, "is not a list of tokens").max(MAX_TOKENS, `has more than ${MAX_TOKENS} tokens`),
  },
  "is not a map with tenants and tokens",
);

/** A token as stored, without its text. */
export type TokenRecord = z.output<typeof token>;

/** The tokens, and what their tenants may do. */
export interface TokenTable {
  /** The quotas in the file, by tenant. The service's options give the others. */
  readonly tenants: ReadonlyMap<string, TenantQuota>;
  /** The names of the secrets that each tenant may use. */
  readonly grants: ReadonlyMap<string, ReadonlySet<string>>;
  /** Tokens by id, in the order of the file. */
  readonly tokens: ReadonlyMap<string, TokenRecord>;
}

function toQuota(found: {
  readonly sandboxes?: number | undefined;
  readonly memory?: number | undefined;
  readonly cpus?: number | undefined;
  readonly pids?: number | undefined;
  readonly execs?: number | undefined;
  readonly sessions?: number | undefined;
  readonly creates_per_second?: number | undefined;
  readonly transcripts?: number | undefined;
  readonly workspaces?: number | undefined;
}): TenantQuota {
  return {
    sandboxes: found.sandboxes,
    memoryBytes: found.memory,
    cpuMillis: found.cpus,
    pids: found.pids,
    execs: found.execs,
    sessions: found.sessions,
    createsPerSecond: found.creates_per_second,
    transcriptBytes: found.transcripts,
    workspaceBytes: found.workspaces,
  };
}

/** Removes unset keys, which would hide the service's defaults. */
function defined(quota: TenantQuota): TenantQuota {
  return Object.fromEntries(Object.entries(quota).filter(([, limit]) => limit !== undefined));
}

/** @throws TokenFileError for an invalid name of a tenant */
export function assertTenantName(name: string): void {
  const { error } = tenantName.safeParse(name);
  if (error) throw new TokenFileError(`${JSON.stringify(name)} ${error.issues[0]?.message}`);
}

/**
 * Parses the text of a tokens file.
 * @param name the file's name, for errors: `tokens.yaml:3:5: …`
 * @throws TokenFileError with the line and column of what is wrong
 */
export function parseTokenFile(text: string, name: string): TokenTable {
  return readTokenDocument(text, name).table;
}

/** Like {@link parseTokenFile}, but also returns the document, which keeps its comments when it is edited. */
export function readTokenDocument(
  text: string,
  name: string,
): { readonly document: Document; readonly table: TokenTable } {
  const lines = new LineCounter();
  const document = parse(text, name, lines);
  const fault = (node: unknown, problem: string): TokenFileError => {
    const offset = (isNode(node) ? node.range?.[0] : undefined) ?? 0;
    const { line, col } = lines.linePos(offset);
    return new TokenFileError(`${name}:${line}:${col}: ${problem}`);
  };
  if (document.contents === null) {
    throw fault(
      undefined,
      "the file holds nothing; it takes tenants and tokens, as berth token create writes them",
    );
  }
  visit(document, {
    Alias: (_, node) => {
      throw fault(node, "uses an alias (*name); write out what it stands for");
    },
  });
  const found = tokensFile.safeParse(document.toJS(), IN_PLAIN_WORDS);
  if (!found.success) throw faultOf(document, found.error.issues[0], fault);
  const { tenants, tokens } = found.data;
  const named = new Map(Object.entries(tenants).map(([name, tenant]) => [name, tenant?.quota ?? {}]));
  if (named.size > MAX_TENANTS)
    throw fault(document.get("tenants", true), `tenants has more than ${MAX_TENANTS} tenants`);
  const grants = new Map(Object.entries(tenants).map(([name, of]) => [name, new Set(of?.secrets)] as const));
  const table = { tenants: named, grants, tokens: new Map<string, TokenRecord>() };
  for (const [index, record] of tokens.entries()) {
    const node = (key: string) => document.getIn(["tokens", index, key], true);
    if (table.tokens.has(record.id)) throw fault(node("id"), `id: two tokens have the id ${record.id}`);
    if (!table.tenants.has(record.tenant)) {
      throw fault(
        node("tenant"),
        `tenant: there is no tenant ${JSON.stringify(record.tenant)} under tenants`,
      );
    }
    table.tokens.set(record.id, record);
  }
  return { document, table };
}

function parse(text: string, name: string, lineCounter: LineCounter): Document {
  let document: Document.Parsed;
  try {
    document = parseDocument(text, { lineCounter, prettyErrors: false });
  } catch (cause) {
    // Nested too deeply for the parser.
    throw new TokenFileError(`${name}:1:1: is not YAML that can be read`, { cause });
  }
  const [problem] = [...document.errors, ...document.warnings].sort(
    (one, other) => one.pos[0] - other.pos[0],
  );
  if (problem === undefined) return document;
  const { line, col } = lineCounter.linePos(problem.pos[0]);
  throw new TokenFileError(`${name}:${line}:${col}: is not YAML (${problem.message})`);
}

/** Converts an error of the schema, with the position of the invalid node. */
function faultOf(
  document: Document,
  issue: z.core.$ZodIssue | undefined,
  fault: (node: unknown, problem: string) => TokenFileError,
): TokenFileError {
  const path = (issue?.path ?? []).map((key) => (typeof key === "symbol" ? String(key) : key));
  const node = document.getIn(path, true);
  const at = path.at(-1);
  if (issue?.code === "unrecognized_keys") {
    const [key = ""] = issue.keys;
    return fault(keyNode(node, key), `there is no key ${JSON.stringify(key)} here`);
  }
  if (issue?.code === "invalid_key") {
    const named = JSON.stringify(at);
    return fault(
      keyNode(document.getIn(path.slice(0, -1), true), at),
      `${named} ${issue.issues[0]?.message}`,
    );
  }
  const missing = node === undefined;
  const where = missing ? document.getIn(path.slice(0, -1), true) : node;
  const what = typeof at === "number" ? `${path[0] === "tokens" ? "token" : "secret"} ${at + 1}` : at;
  const problem = missing ? "is missing" : (issue?.message ?? "is wrong");
  return fault(where, what === undefined ? problem : `${what}: ${problem}`);
}

/** The node of a key in a map, for the position of an error. */
function keyNode(map: unknown, key: unknown): Node | undefined {
  if (!isMap(map)) return undefined;
  const found = map.items.find(({ key: node }) => isNode(node) && String(node) === String(key))?.key;
  return isNode(found) ? found : map;
}
