import { X509Certificate } from "node:crypto";
import { BerthError } from "../base/errors.ts";
import { SANDBOX_DEFAULTS, type SandboxDefaults } from "../sandboxes/spec.ts";
import type { TenantQuota } from "../sandboxes/tenant-quotas.ts";
import { formatListenAddress } from "../server/listen-address.ts";
import type { TlsFiles } from "../server/live-tls.ts";
import type { Config } from "./options.ts";
import { isOwnDescriptor, readGivenFile } from "./read-file.ts";

/** The options that {@link settingsOf} combines. */
type Merged =
  | "listen"
  | "insecure"
  | "tlsCert"
  | "tlsKey"
  | "tlsClientCa"
  | "defaultImage"
  | "defaultMemoryBytes"
  | "defaultCpuMillis"
  | "idleTimeoutMs"
  | "maxLifetimeMs"
  | "commandTimeoutMs"
  | "logLevel"
  | "logFormat"
  | "tenantMaxSandboxes"
  | "tenantMaxMemoryBytes"
  | "tenantMaxCpuMillis"
  | "tenantMaxPids"
  | "tenantMaxExecs"
  | "tenantMaxCreatesPerSecond"
  | "tenantMaxTranscriptBytes"
  | "tenantMaxWorkspaceBytes";

/** The settings of a service: its options, with files read and the defaults of sandboxes combined. */
export interface AppSettings extends Omit<Config, Merged> {
  /** In the syntax of {@link parseListenAddress}. */
  readonly listen: string;
  /** Undefined: no TLS. */
  readonly tls: TlsFiles | undefined;
  readonly defaults: SandboxDefaults;
  /** The quota of every tenant, unless the tokens file overrides it. */
  readonly tenantQuota: TenantQuota;
}

/** Builds the settings from a configuration. */
export function settingsOf(config: Config): AppSettings {
  return {
    ...config,
    listen: formatListenAddress(config.listen),
    tls: tlsFiles(config),
    tenantQuota: {
      sandboxes: config.tenantMaxSandboxes,
      memoryBytes: config.tenantMaxMemoryBytes,
      cpuMillis: config.tenantMaxCpuMillis,
      pids: config.tenantMaxPids,
      execs: config.tenantMaxExecs,
      createsPerSecond: config.tenantMaxCreatesPerSecond,
      transcriptBytes: config.tenantMaxTranscriptBytes,
      workspaceBytes: config.tenantMaxWorkspaceBytes,
    },
    defaults: {
      ...SANDBOX_DEFAULTS,
      image: config.defaultImage,
      memoryBytes: config.defaultMemoryBytes,
      cpuMillis: config.defaultCpuMillis,
      idleTimeoutMs: config.idleTimeoutMs,
      maxLifetimeMs: config.maxLifetimeMs,
      commandTimeoutMs: config.commandTimeoutMs,
    },
  };
}

function tlsFiles({ tlsCert, tlsKey, tlsClientCa }: Config): TlsFiles | undefined {
  if (tlsCert === undefined || tlsKey === undefined) return undefined;
  return {
    // Do not follow files that the shell pipes in: they can be read only once.
    paths: [tlsCert, tlsKey, tlsClientCa ?? []].flat().filter((path) => !isOwnDescriptor(path)),
    read: () => ({
      cert: readPem("--tls-cert", tlsCert),
      key: readPem("--tls-key", tlsKey),
      clientCa: tlsClientCa === undefined ? undefined : readAuthorities("--tls-client-ca", tlsClientCa),
    }),
  };
}

/** @throws BerthError `INVALID_ARGUMENT` if the file cannot be read */
function readPem(flag: string, path: string): Buffer {
  try {
    return readGivenFile(path);
  } catch (error) {
    if (error instanceof BerthError) throw unusable(`${flag}: ${path}: ${error.message}.`, error);
    const code = (error as NodeJS.ErrnoException).code ?? "unknown error";
    throw unusable(`${flag}: ${path} cannot be read (${code}).`, error);
  }
}

const CERTIFICATE = /-----BEGIN (?:TRUSTED |X509 )?CERTIFICATE-----/g;

/**
 * Checks that there is a certificate. Node would treat a file without one as no authorities, and then refuse every
 * client without saying why.
 */
function readAuthorities(flag: string, path: string): Buffer {
  const pem = readPem(flag, path);
  const text = pem.toString("latin1");
  const places = Array.from(text.matchAll(CERTIFICATE), ({ index }) => index);
  if (places.length === 0) {
    throw unusable(
      `${flag}: ${path} holds no certificate. It must be PEM: of the authorities of your clients.`,
    );
  }
  places.forEach((place, index) => {
    try {
      new X509Certificate(Buffer.from(text.slice(place, places[index + 1]), "latin1"));
    } catch (error) {
      throw unusable(`${flag}: certificate ${index + 1} of ${path} cannot be read.`, error);
    }
  });
  return pem;
}

function unusable(message: string, cause?: unknown): BerthError {
  return new BerthError("INVALID_ARGUMENT", message, { cause });
}
