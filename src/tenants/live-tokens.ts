import type { Finding } from "../base/diagnosis.ts";
import { FollowedFiles } from "../base/followed-files.ts";
import type { Logger } from "../base/logger.ts";
import { parseAside } from "./parse-aside.ts";
import { readPrivateFile } from "./private-file.ts";
import { optionError, parseTokenFile, TokenFileError, type TokenTable } from "./token-file.ts";

/** Reads a tokens file. @throws TokenFileError that says what is wrong, where, and what to do. */
export async function readTokenFile(path: string): Promise<TokenTable> {
  const { text } = await readPrivateFile(path, "tokens");
  return parseTokenFile(text, path);
}

/** The tokens of a file, which follow its changes. */
export class LiveTokens {
  readonly #path: string;
  readonly #logger: Logger;
  readonly #followed: FollowedFiles;
  #table: TokenTable;
  readonly #stopping = new AbortController();

  private constructor(path: string, table: TokenTable, followed: FollowedFiles, logger: Logger) {
    this.#path = path;
    this.#logger = logger;
    this.#table = table;
    this.#followed = followed;
  }

  /**
   * Reads the file and follows its changes until {@link stop}.
   * @throws `INVALID_ARGUMENT`, with the line and what to do, if it cannot be used.
   */
  static async start(path: string, logger: Logger): Promise<LiveTokens> {
    const followed = await FollowedFiles.note([path]);
    const table = await readTokenFile(path).catch((error: unknown) => {
      throw optionError("tokens", error);
    });
    const tokens = new LiveTokens(path, table, followed, logger);
    tokens.#log("tokens read");
    followed.follow({
      read: () => tokens.#readAgain(),
      onProblem: (problem) =>
        logger.error(
          { problem },
          "the tokens file has changed and cannot be used; the tokens it held before stay in force",
        ),
    });
    return tokens;
  }

  /** The tokens in effect. */
  get table(): TokenTable {
    return this.#table;
  }

  /** Whether the file has changed and could not be read, so that its previous contents stay in effect. */
  get isStale(): boolean {
    return this.#followed.isStale;
  }

  async stop(): Promise<void> {
    this.#stopping.abort();
    await this.#followed.stop();
  }

  async #readAgain(): Promise<void> {
    const { text } = await readPrivateFile(this.#path, "tokens");
    this.#table = await parseAside("tokens", text, this.#path, this.#stopping.signal);
    this.#log("tokens read again");
  }

  #log(message: string): void {
    const { tokens, tenants } = this.#table;
    this.#logger.info({ tokens: tokens.size, tenants: tenants.size }, message);
  }
}

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

function counted(count: number, noun: string): string {
  return `${count} ${noun}${count === 1 ? "" : "s"}`;
}
