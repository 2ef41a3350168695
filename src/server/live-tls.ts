import { X509Certificate } from "node:crypto";
import type { Finding } from "../base/diagnosis.ts";
import { BerthError } from "../base/errors.ts";
import { FollowedFiles } from "../base/followed-files.ts";
import type { Logger } from "../base/logger.ts";
import { certificatesIn } from "../base/tls-problem.ts";
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
  #certificate: X509Certificate;
  #authorities: readonly X509Certificate[] = [];
  /** The options at the start. */
  readonly options: TlsOptions;

  private constructor(files: TlsFiles, followed: FollowedFiles, logger: Logger) {
    this.#files = files;
    this.#followed = followed;
    this.#logger = logger;
    this.options = files.read();
    this.#certificate = this.#check(this.options);
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
    this.#followed.follow({
      read: async () => {
        const options = this.#files.read();
        use(options);
        this.#certificate = this.#check(options);
        this.#logger.info({}, "TLS certificate and key read again");
      },
      onProblem: (problem) =>
        this.#logger.error(
          { problem },
          "the TLS files have changed and cannot be used; the certificate from before stays in use",
        ),
    });
  }

  /** Whether the files have changed but cannot be used, so that the previous options stay in use. */
  get isStale(): boolean {
    return this.#followed.isStale;
  }

  /** When the certificate in use expires, in milliseconds since the Unix epoch. */
  get expireTimeMs(): number {
    return this.#certificate.validToDate.getTime();
  }

  /** Why client certificates of an authority are refused at this time, one for each such authority. */
  get authorityProblems(): readonly string[] {
    return problemsOf(this.#authorities);
  }

  stop(): Promise<void> {
    return this.#followed.stop();
  }

  /**
   * Reads the certificates, and logs if clients refuse the service's own, or if clients of an authority are refused.
   * They are used all the same: some clients do not verify a certificate, and other authorities may be valid.
   */
  #check({ cert, clientCa }: TlsOptions): X509Certificate {
    this.#authorities = authoritiesIn(clientCa);
    for (const problem of this.authorityProblems)
      this.#logger.warn({ problem }, "client certificates of an authority are refused");
    const certificate = new X509Certificate(cert);
    const problem = problemOf(certificate);
    if (problem !== undefined) this.#logger.warn({ problem }, "clients refuse the TLS certificate");
    return certificate;
  }
}

/** Why clients refuse a certificate at this time. Undefined: they do not, or for another reason. */
function problemOf({ validFromDate: from, validToDate: to }: X509Certificate): string | undefined {
  const now = Date.now();
  if (to.getTime() <= now) return `the certificate has expired: it was valid until ${to.toISOString()}`;
  if (from.getTime() > now) return `the certificate is not valid before ${from.toISOString()}`;
  return undefined;
}

/** Whether a port could use TLS with these files. */
export function diagnoseTls(files: TlsFiles): Finding[] {
  const subject = "tls";
  try {
    const { cert, clientCa } = files.read();
    return [diagnoseCertificate(cert), ...(clientCa === undefined ? [] : [diagnoseAuthorities(clientCa)])];
  } catch (error) {
    if (!(error instanceof BerthError)) throw error;
    const fix = "Name a certificate and its key, both in PEM, with --tls-cert and --tls-key";
    return [{ subject, status: "missing", found: error.message, fix }];
  }
}

function authoritiesIn(clientCa: string | Buffer = ""): X509Certificate[] {
  return certificatesIn(clientCa).map((pem) => new X509Certificate(pem));
}

/** Why authorities are not trusted at this time, one for each that is not. */
function problemsOf(authorities: readonly X509Certificate[]): string[] {
  return authorities.flatMap((authority) => {
    const problem = problemOf(authority);
    return problem === undefined ? [] : [`${authority.subject.replaceAll("\n", ", ")}: ${problem}`];
  });
}

/** Whether certificates of clients can be valid. While one of several authorities is, some are. */
function diagnoseAuthorities(clientCa: string | Buffer): Finding {
  const subject = "client authorities";
  const authorities = authoritiesIn(clientCa);
  const problems = problemsOf(authorities);
  if (problems.length === 0)
    return { subject, status: "ok", found: `certificates to trust: ${authorities.length}` };
  const status = problems.length === authorities.length ? "missing" : "limited";
  const fix =
    "Replace it in the file of --tls-client-ca: certificates that it signed are refused. A running service needs no restart.";
  return { subject, status, found: problems.join("; "), fix };
}

function diagnoseCertificate(cert: TlsOptions["cert"]): Finding {
  const subject = "tls";
  const certificate = new X509Certificate(cert);
  const problem = problemOf(certificate);
  if (problem !== undefined) {
    const fix =
      "Renew it in the file of --tls-cert, if the clock is right. A running service needs no restart.";
    return { subject, status: "missing", found: problem, fix };
  }
  const until = certificate.validToDate.toISOString();
  return {
    subject,
    status: "ok",
    found: `the certificate and the key belong together; valid until ${until}`,
  };
}
