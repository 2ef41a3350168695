import { randomBytes } from "node:crypto";
import { open, realpath, rename, rm } from "node:fs/promises";
import net from "node:net";
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { type Document, isMap, isSeq } from "yaml";
import { type PrivateText, readPrivateFile } from "./private-file.ts";
import { hashOf, newToken } from "./token.ts";
import {
  assertTenantName,
  readTokenDocument,
  TokenFileError,
  type TokenRecord,
  type TokenTable,
} from "./token-file.ts";

/** How long to wait for another program that edits the same file, in milliseconds. */
const LOCK_TIMEOUT_MS = 10_000;
const LOCK_POLL_MS = 50;

const NEW_FILE = `# Who may call the service. Written by \`berth token create\` and \`berth token revoke\`, and by hand:
# comments stay. It holds hashes of tokens, never a token. The service reads it again when it changes.
tenants: {}
tokens: []
`;

/** The properties of a new token. */
export interface TokenWanted {
  readonly tenant: string;
  readonly scope: TokenRecord["scope"];
  /** Milliseconds since the Unix epoch; undefined: never. */
  readonly expires: number | undefined;
  readonly note: string | undefined;
}

/**
 * Adds a token to a file. Creates the file, and adds the tenant, if they are missing.
 * @returns its id, and its text, which is not stored anywhere.
 * @throws TokenFileError
 */
export async function addToken(
  file: string,
  { tenant, scope, expires, note }: TokenWanted,
): Promise<{ readonly id: string; readonly text: string }> {
  assertTenantName(tenant);
  return edit(file, true, (document, table) => {
    const { id, text } = newToken();
    if (!table.tenants.has(tenant)) document.setIn(["tenants", tenant], document.createNode({}));
    const record = {
      ...{ id, tenant, scope, sha256: hashOf(text).toString("hex") },
      ...(expires !== undefined && { expires: new Date(expires).toISOString() }),
      ...(note !== undefined && { note }),
    };
    const tokens = document.get("tokens");
    if (!isSeq(tokens)) throw new Error("tokens is a list: the file was checked");
    // A list written as [] would otherwise continue on one line.
    tokens.flow = false;
    tokens.add(document.createNode(record));
    const tenants = document.get("tenants");
    if (isMap(tenants)) tenants.flow = false;
    return { id, text };
  });
}

/**
 * Removes tokens from a file.
 * @returns the ids that were in the file.
 * @throws TokenFileError
 */
export function revokeTokens(file: string, ids: readonly string[]): Promise<ReadonlySet<string>> {
  return edit(file, false, (document, table) => {
    const found = new Set(ids.filter((id) => table.tokens.has(id)));
    const places = [...table.tokens.keys()].flatMap((id, place) => (found.has(id) ? [place] : []));
    for (const place of places.reverse()) document.deleteIn(["tokens", place]);
    return found;
  });
}

/**
 * Changes a file atomically, one program at a time. A reader sees the old or the new version.
 * @param change called again if another program has changed the file meanwhile
 */
async function edit<T>(
  named: string,
  mayMake: boolean,
  change: (document: Document, table: TokenTable) => T,
): Promise<T> {
  const file = await realpath(named).catch(() => path.resolve(named));
  const read = () =>
    readPrivateFile(file, "tokens").catch((error: unknown) => {
      if (mayMake && isMissing(error)) return undefined;
      throw error;
    });
  for (const end = performance.now() + LOCK_TIMEOUT_MS; ; ) {
    const before = await read();
    const { document, table } = readTokenDocument(before?.text ?? NEW_FILE, named);
    const result = change(document, table);
    const text = document.toString({ lineWidth: 0 });
    if (text === before?.text) return result;
    // Make sure that the new text is valid, whatever the arguments were.
    readTokenDocument(text, named);
    using lock = await lockVersion(file, before?.text);
    if (lock !== undefined && (await read())?.text === before?.text) {
      await replace(file, text, before).catch((cause: unknown) => {
        const { code } = cause as NodeJS.ErrnoException;
        throw new TokenFileError(`${named} cannot be written (${code ?? cause})`, { cause });
      });
      return result;
    }
    if (performance.now() > end) {
      throw new TokenFileError(`${file} is being changed by another program; try again`);
    }
    await sleep(LOCK_POLL_MS);
  }
}

function isMissing(error: unknown): boolean {
  return (
    error instanceof TokenFileError && (error.cause as NodeJS.ErrnoException | undefined)?.code === "ENOENT"
  );
}

async function replace(file: string, text: string, before: PrivateText | undefined): Promise<void> {
  const directory = path.dirname(file);
  const temporary = path.join(directory, `.${path.basename(file)}.${randomBytes(6).toString("hex")}`);
  try {
    await using handle = await open(temporary, "wx", 0o600);
    // If root edits the file of the service's user, that user must still be able to read it afterwards.
    if (before && process.geteuid?.() === 0) await handle.chown(before.uid, before.gid);
    await handle.writeFile(text);
    await handle.sync();
    await rename(temporary, file);
  } catch (error) {
    await rm(temporary, { force: true });
    throw error;
  }
  await using above = await open(directory, "r");
  await above.sync();
}

/**
 * Locks a version of a file, which only the holder may replace, against edits by other programs on this machine, with an
 * abstract socket. The kernel releases it when the program ends, even by a crash. Every user of the machine may hold any
 * such name, and sees those that are held, so the name depends on the text: nobody else can guess that of a later version.
 * @param text undefined: the file does not exist
 * @returns undefined if another program holds it
 */
async function lockVersion(file: string, text: string | undefined): Promise<Disposable | undefined> {
  const server = net.createServer();
  const problem = await new Promise<NodeJS.ErrnoException | undefined>((resolve) => {
    server.once("listening", () => resolve(undefined)).once("error", resolve);
    server.listen(`\0berth-tokens-${hashOf(`${file}\0${text}`).toString("hex")}`).unref();
  });
  if (problem === undefined) return { [Symbol.dispose]: () => void server.close() };
  if (problem.code === "EADDRINUSE") return undefined;
  throw problem;
}
