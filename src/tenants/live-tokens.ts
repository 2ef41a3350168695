import type { BigIntStats } from "node:fs";
import { stat } from "node:fs/promises";
import { BerthError } from "../base/errors.ts";
import type { Logger } from "../base/logger.ts";
import { parseAside } from "./parse-aside.ts";
import { readPrivateFile } from "./private-file.ts";
import { parseTokenFile, TokenFileError, type TokenTable } from "./token-file.ts";

/** How often the file is looked at, in milliseconds. */
const POLL_MS = 200;

/** Reads a tokens file. @throws TokenFileError that says what is wrong, where, and what to do. */
export async function readTokenFile(path: string): Promise<TokenTable> {
  const { text } = await readPrivateFile(path);
  return parseTokenFile(text, path);
}

/**
 * The tokens of a file, and of what the file becomes. It is polled: watching a
 * path misses what happens behind symbolic links, as Kubernetes changes its
 * secrets, and on network file systems.
 */
export class LiveTokens {
  readonly #path: string;
  readonly #logger: Logger;
  #table: TokenTable;
  /** What the file was when it was last read, and at the look before this one. */
  #read: string;
  #seen: string;
  #problem: string | undefined;
  #timer: NodeJS.Timeout | undefined;
  #looking: Promise<void> = Promise.resolve();
  readonly #stopping = new AbortController();

  private constructor(path: string, table: TokenTable, version: string, logger: Logger) {
    this.#path = path;
    this.#logger = logger;
    this.#table = table;
    this.#read = version;
    this.#seen = version;
  }

  /**
   * Reads the file and follows its changes until {@link stop}.
   * @throws `INVALID_ARGUMENT` where it cannot be used, with the line and what to do.
   */
  static async start(path: string, logger: Logger): Promise<LiveTokens> {
    const version = await versionOf(path);
    const table = await readTokenFile(path).catch((cause: unknown) => {
      if (!(cause instanceof TokenFileError)) throw cause;
      const fix = cause.fix === undefined ? "" : ` Type: ${cause.fix}`;
      const message = `--tokens: ${cause.message}.${fix}`;
      throw new BerthError("INVALID_ARGUMENT", message, { cause, metadata: { field: "tokens" } });
    });
    const tokens = new LiveTokens(path, table, version, logger);
    tokens.#log("tokens read");
    tokens.#wait();
    return tokens;
  }

  /** The tokens in force. */
  get table(): TokenTable {
    return this.#table;
  }

  /** Whether the file has changed and could not be read, so that what it was before stays in force. */
  get isStale(): boolean {
    return this.#problem !== undefined;
  }

  async stop(): Promise<void> {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#stopping.abort();
    await this.#looking;
  }

  #wait(): void {
    this.#timer = setTimeout(() => {
      this.#looking = this.#look().finally(() => {
        if (this.#timer !== undefined) this.#wait();
      });
    }, POLL_MS);
    this.#timer.unref();
  }

  async #look(): Promise<void> {
    const version = await versionOf(this.#path);
    // A file that is written in place is read once it rests: half of it may be valid, and lack tokens.
    const rests = version === this.#seen;
    this.#seen = version;
    if (!rests || version === this.#read) return;
    this.#read = version;
    const { signal } = this.#stopping;
    try {
      const { text } = await readPrivateFile(this.#path);
      this.#table = await parseAside("tokens", text, this.#path, signal);
      this.#problem = undefined;
      this.#log("tokens read again");
    } catch (error) {
      if (signal.aborted) return;
      this.#problem = error instanceof Error ? error.message : String(error);
      this.#logger.error(
        { problem: this.#problem },
        "the tokens file has changed and cannot be used; the tokens it held before stay in force",
      );
    }
  }

  #log(message: string): void {
    const { tokens, tenants } = this.#table;
    this.#logger.info({ tokens: tokens.size, tenants: tenants.size }, message);
  }
}

/** Differs from that of the file before and after any change; empty where there is none. */
async function versionOf(path: string): Promise<string> {
  const found = await stat(path, { bigint: true }).catch(() => undefined);
  if (found === undefined) return "";
  const { dev, ino, size, mtimeNs, ctimeNs }: BigIntStats = found;
  return [dev, ino, size, mtimeNs, ctimeNs].join(" ");
}
