import { FollowedFiles } from "../base/followed-files.ts";
import type { Logger } from "../base/logger.ts";
import type { TlsOptions } from "./listener.ts";

/** Where {@link TlsOptions} come from. */
export interface TlsFiles {
  /** Those that may change. */
  readonly paths: readonly string[];
  /** @throws where a file cannot be read, or is not what it should be */
  read(): TlsOptions;
}

/** The certificate, key and authorities of files, and of what the files become, as when a certificate is renewed. */
export class LiveTls {
  readonly #files: TlsFiles;
  readonly #followed: FollowedFiles;
  readonly #logger: Logger;
  #problem: string | undefined;
  /** What the port starts with. */
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

  /** Calls back with what the files become, until {@link stop}. @param use throws where that cannot be used */
  follow(use: (options: TlsOptions) => void): void {
    this.#followed.follow(async () => this.#reload(use));
  }

  /** Whether the files have changed and cannot be used, so that what they held before stays in use. */
  get isStale(): boolean {
    return this.#problem !== undefined;
  }

  stop(): Promise<void> {
    return this.#followed.stop();
  }

  #reload(use: (options: TlsOptions) => void): void {
    try {
      use(this.#files.read());
      this.#problem = undefined;
      this.#logger.info({}, "TLS certificate and key read again");
    } catch (error) {
      this.#problem = error instanceof Error ? error.message : String(error);
      this.#logger.error(
        { problem: this.#problem },
        "the TLS files have changed and cannot be used; the certificate from before stays in use",
      );
    }
  }
}
