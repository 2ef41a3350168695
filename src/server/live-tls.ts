import type { Finding } from "../base/diagnosis.ts";
import { BerthError } from "../base/errors.ts";
import { FollowedFiles } from "../base/followed-files.ts";
import type { Logger } from "../base/logger.ts";
import type { TlsOptions } from "./listener.ts";

/** The source of {@link TlsOptions}. */
export interface TlsFiles {
  /** The files to watch for changes. */
  readonly paths: readonly string[];
  /** @throws BerthError `INVALID_ARGUMENT` that names the file which cannot be read or used */
  read(): TlsOptions;
}

/**
 * The certificate, key and authorities in files. Reloads them when the files change, for example when a certificate is
 * renewed.
 */
export class LiveTls {
  readonly #files: TlsFiles;
  readonly #followed: FollowedFiles;
  readonly #logger: Logger;
  #problem: string | undefined;
  /** The options at the start. */
  readonly options: TlsOptions;

  private constructor(files: TlsFiles, followed: FollowedFiles, logger: Logger) {
    this.#files = files;
    this.#followed = followed;
    this.#logger = logger;
    this.options = files.read();
  }

  /** Reads the files. @throws what {@link TlsFiles.read} throws */
  static async open(files: TlsFiles, logger: Logger): Promise<LiveTls> {
    return new LiveTls(files, await FollowedFiles.note(files.paths), logger);
  }

  /**
   * Calls `use` with the new options whenever the files change, until {@link stop}. @param use throws if they cannot be
   * used
   */
  follow(use: (options: TlsOptions) => void): void {
    this.#followed.follow(async (isRetry) => this.#reload(use, isRetry));
  }

  /** Whether the files have changed but cannot be used, so that the previous options stay in use. */
  get isStale(): boolean {
    return this.#problem !== undefined;
  }

  stop(): Promise<void> {
    return this.#followed.stop();
  }

  #reload(use: (options: TlsOptions) => void, isRetry: boolean): boolean {
    try {
      use(this.#files.read());
      this.#problem = undefined;
      this.#logger.info({}, "TLS certificate and key read again");
      return true;
    } catch (error) {
      const problem = error instanceof Error ? error.message : String(error);
      const isKnown = isRetry && problem === this.#problem;
      this.#problem = problem;
      if (isKnown) return false;
      this.#logger.error(
        { problem },
        "the TLS files have changed and cannot be used; the certificate from before stays in use",
      );
      return false;
    }
  }
}

/** Whether a port could use TLS with these files. */
export function diagnoseTls(files: TlsFiles): Finding {
  const subject = "tls";
  try {
    files.read();
    return { subject, status: "ok", found: "the certificate and the key belong together" };
  } catch (error) {
    if (!(error instanceof BerthError)) throw error;
    const fix = "Name a certificate and its key, both in PEM, with --tls-cert and --tls-key";
    return { subject, status: "missing", found: error.message, fix };
  }
}
