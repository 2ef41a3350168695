import { isUtf8 } from "node:buffer";
import { type BigIntStats, constants, type Stats } from "node:fs";
import { open, realpath, stat } from "node:fs/promises";
import path from "node:path";
import type { Finding } from "../base/diagnosis.ts";
import { BerthError } from "../base/errors.ts";
import { FollowedFiles, identityOf, RETRY_MS } from "../base/followed-files.ts";
import type { Logger } from "../base/logger.ts";
import { quoteIfNeeded } from "../base/shell-quote.ts";
import { parseAside } from "./parse-aside.ts";
import { readPrivateFile, unreadable } from "./private-file.ts";
import { assertUsable, MAX_VALUE_BYTES, parseSecretsFile, SECRET_NAME } from "./secrets-file.ts";
import { optionError, TokenFileError } from "./token-file.ts";

const WRITABLE_BY_OTHERS = 0o022;
/** The version of a file that is missing, for instance while an editor replaces it. */
const MISSING = "";

/** Decides which secrets a tenant may use. */
export interface SecretGrants {
  allows(tenant: string, name: string): boolean;
}

/** The secrets of a file. */
interface FileContent {
  /** Differs after any change of the file. */
  readonly version: string;
  readonly values: ReadonlyMap<string, string>;
}

/** Without tokens there is one tenant, which may use all secrets. */
export const ALL_SECRETS: SecretGrants = { allows: () => true };

/**
 * The secrets of a file, `secrets: {NAME: VALUE}` in YAML, or of a directory with one file per secret, as Docker and
 * Kubernetes mount them. They are read at each use, so that a change takes effect with the next command. A file is also
 * read when it changes, see {@link follow}.
 */
export class Secrets {
  readonly #place: string | undefined;
  readonly #grants: SecretGrants;
  readonly #logger: Logger;
  /** Undefined: there is no file. */
  #followed: FollowedFiles | undefined;
  /** What the file held when it could last be used. Undefined: the secrets are in a directory. */
  #file: FileContent | undefined;
  /** The read of the file's latest requested version, in progress or done. */
  #reading: { readonly version: string; readonly values: Promise<ReadonlyMap<string, string>> } | undefined;
  /** A file that has changed and could not be used, and when to read it again. */
  #stale: { readonly version: string; readonly problem: string; readonly retryAt: number } | undefined;

  private constructor(place: string | undefined, grants: SecretGrants, logger: Logger) {
    this.#place = place;
    this.#grants = grants;
    this.#logger = logger;
  }

  /**
   * @param place undefined: there are no secrets
   * @throws `INVALID_ARGUMENT`, with what to do, if the file or the directory cannot be used
   */
  static async open(place: string | undefined, grants: SecretGrants, logger: Logger): Promise<Secrets> {
    const secrets = new Secrets(place, grants, logger);
    if (place !== undefined) {
      const followed = await FollowedFiles.note([place]);
      secrets.#file = await contentOf(place).catch((error: unknown) => {
        throw optionError("secrets", error);
      });
      if (secrets.#file !== undefined) secrets.#followed = followed;
      logger.info({ secrets: secrets.#file?.values.size }, "secrets found");
    }
    return secrets;
  }

  /**
   * Reads the file whenever it changes, until {@link stop}: whether it can be used is known at once, and not only when a
   * command needs a secret.
   */
  follow(): void {
    this.#followed?.follow({
      read: async () => {
        const file = this.#place ?? "";
        const found = await stat(file, { bigint: true }).catch(() => undefined);
        await this.#valuesOf(file, found ? identityOf(found) : MISSING);
        if (this.#stale !== undefined) throw new Error(this.#stale.problem);
      },
      // Logged where it is found, which may be a command.
      onProblem: () => {},
    });
  }

  async stop(): Promise<void> {
    await this.#followed?.stop();
  }

  /** Whether the file has changed and cannot be used, so that its previous contents stay in effect. */
  get isStale(): boolean {
    return this.#stale !== undefined;
  }

  /** Returns the values of secrets that an owner may use, in the order of the names. @throws `SECRET_NOT_FOUND`. */
  resolve(owner: string, names: readonly string[]): Promise<string[]> {
    return Promise.all(
      names.map((name) => {
        // Do not look for a secret that is not granted, so that neither the answer nor its time reveals whether it
        // exists.
        if (!this.#grants.allows(owner, name)) throw notFound(name);
        return this.read(name);
      }),
    );
  }

  /**
   * Returns the value of a secret without a check of grants, for the operator's own settings. @throws
   * `SECRET_NOT_FOUND`.
   */
  async read(name: string): Promise<string> {
    if (this.#place === undefined || !SECRET_NAME.test(name)) throw notFound(name);
    try {
      const found = await stat(this.#place, { bigint: true }).catch(() => undefined);
      // A directory in the place of a file is a file that cannot be used.
      const value =
        found?.isDirectory() && this.#file === undefined
          ? await readSecretFile(this.#place, name)
          : (await this.#valuesOf(this.#place, found ? identityOf(found) : MISSING)).get(name);
      if (value === undefined) throw notFound(name);
      return value;
    } catch (error) {
      if (error instanceof BerthError) throw error;
      this.#logger.error({ secret: name, problem: problemOf(error) }, "a secret cannot be read");
      throw notFound(name);
    }
  }

  async #valuesOf(file: string, version: string): Promise<ReadonlyMap<string, string>> {
    const last = this.#file;
    const stale = this.#stale;
    // A file that was missing may come back as it was.
    if (version === last?.version) this.#stale = undefined;
    const isStale = version === stale?.version && performance.now() < stale.retryAt;
    if (last && (version === last.version || isStale)) return last.values;
    // Commands that find the same change share one parse.
    if (this.#reading?.version !== version) {
      const values = this.#read(file, version).finally(() => {
        if (this.#reading?.values === values) this.#reading = undefined;
      });
      this.#reading = { version, values };
    }
    return this.#reading.values;
  }

  async #read(file: string, version: string): Promise<ReadonlyMap<string, string>> {
    try {
      const { text } = await readPrivateFile(file, "secrets");
      const values = await parseAside("secrets", text, file);
      this.#file = { version, values };
      this.#stale = undefined;
      this.#logger.info({ secrets: values.size }, "secrets read again");
      return values;
    } catch (error) {
      if (this.#file === undefined) throw error;
      const problem = problemOf(error);
      const isKnown = this.#stale?.version === version && this.#stale.problem === problem;
      this.#stale = { version, problem, retryAt: performance.now() + RETRY_MS };
      if (isKnown) return this.#file.values;
      this.#logger.error(
        { problem },
        "the secrets file has changed and cannot be used; the secrets it held before stay in force",
      );
      return this.#file.values;
    }
  }
}

/** Checks a file or directory of secrets. Returns what is in a file; undefined for a directory. @throws TokenFileError */
export async function contentOf(place: string): Promise<FileContent | undefined> {
  const found = await stat(place, { bigint: true }).catch((cause: unknown) => {
    throw unreadable(place, "secrets", cause);
  });
  if (!found.isDirectory()) return { version: identityOf(found), values: await readSecretsFile(place) };
  assertUnwritable(found, place);
  return undefined;
}

/** Checks whether the secrets can be used, and counts those of a file without naming them. */
export async function diagnoseSecrets(place: string): Promise<Finding> {
  const subject = "secrets";
  try {
    const count = (await contentOf(place))?.values.size;
    const found = count === undefined ? `the directory ${place}` : `${count} secret${count === 1 ? "" : "s"}`;
    return { subject, status: "ok", found };
  } catch (error) {
    if (!(error instanceof TokenFileError)) throw error;
    const { message, fix = `Correct ${place}, or name another with --secrets` } = error;
    return { subject, status: "missing", found: message, fix };
  }
}

/** Reads a secrets file. Errors contain positions and names of secrets, but never a value. @throws TokenFileError */
async function readSecretsFile(file: string): Promise<ReadonlyMap<string, string>> {
  const { text } = await readPrivateFile(file, "secrets");
  return parseSecretsFile(text, file);
}

/** Reads a secret from a directory; undefined if it does not exist. One trailing newline is not part of it. */
async function readSecretFile(directory: string, name: string): Promise<string | undefined> {
  const root = await realpath(directory);
  assertUnwritable(await stat(root), directory);
  // Kubernetes mounts NAME -> ..data/NAME -> ..TIME/NAME.
  const place = await realpath(path.join(root, name)).catch(() => undefined);
  if (place === undefined) return undefined;
  if (!place.startsWith(`${root === "/" ? "" : root}/`)) {
    throw new TokenFileError(`${path.join(directory, name)} leads out of its directory`);
  }
  const flags = constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOFOLLOW;
  await using file = await open(place, flags);
  const found = await file.stat();
  if (!found.isFile()) throw new TokenFileError(`${place} is not a file`);
  assertUnwritable(found, place);
  const { buffer, bytesRead } = await file.read(Buffer.alloc(MAX_VALUE_BYTES + 3));
  const bytes = buffer.subarray(0, bytesRead);
  // Variables contain text: with other bytes a command would get a different value than the file has.
  if (bytesRead < buffer.length && !isUtf8(bytes)) throw new TokenFileError(`${place} is not UTF-8 text`);
  const value = bytes.toString().replace(/\r?\n$/, "");
  assertUsable(value, place);
  return value;
}

/**
 * Checks write permission. Mounted secrets are often readable by everyone in their container, but no other user may
 * write them.
 */
function assertUnwritable(found: Stats | BigIntStats, place: string): void {
  const [uid, mode] = [Number(found.uid), Number(found.mode)];
  const own = process.geteuid?.() ?? uid;
  const isOwn = uid === own || uid === 0;
  const isShut = (mode & WRITABLE_BY_OTHERS) === 0 || (mode & 0o1000) !== 0;
  if (isOwn && isShut) return;
  throw new TokenFileError(`other users may write ${place}`, {
    fix: isOwn ? `chmod go-w ${quoteIfNeeded(place)}` : `sudo chown ${own} ${quoteIfNeeded(place)}`,
  });
}

function problemOf(error: unknown): string {
  if (error instanceof TokenFileError) return error.message;
  return (error as NodeJS.ErrnoException).code ?? "unknown error";
}

function notFound(name: string): BerthError {
  return new BerthError(
    "SECRET_NOT_FOUND",
    `There is no secret ${JSON.stringify(name.slice(0, 253))} that this tenant may use. Ask the operator to add or grant it.`,
    { metadata: { secret: name.slice(0, 253) } },
  );
}
