import { readFile } from "node:fs/promises";
import { BerthError } from "../base/errors.ts";
import { SANDBOX_DEFAULTS, type SandboxDefaults } from "../sandboxes/spec.ts";
import type { TenantQuota } from "../sandboxes/tenant-quota.ts";
import { formatListenAddress } from "../server/listen-address.ts";
import type { TlsOptions } from "../server/listener.ts";
import type { Config } from "./options.ts";

/** The options that {@link settingsOf} puts together. */
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

/** How a service is set up: its options, with files read and the defaults of sandboxes in one place. */
export interface AppSettings extends Omit<Config, Merged> {
  /** As {@link parseListenAddress} reads it. */
  readonly listen: string;
  readonly tls: TlsOptions | undefined;
  readonly defaults: SandboxDefaults;
  /** Of every tenant, where the tokens file says nothing else. */
  readonly tenantQuota: TenantQuota;
}

/**
 * Makes the settings of a configuration.
 * @throws BerthError `INVALID_ARGUMENT` for a certificate or key that cannot be read
 */
export async function settingsOf(config: Config): Promise<AppSettings> {
  const { tlsCert, tlsKey, tlsClientCa } = config;
  return {
    ...config,
    listen: formatListenAddress(config.listen),
    tls:
      tlsCert === undefined || tlsKey === undefined
        ? undefined
        : {
            cert: await readPem("--tls-cert", tlsCert),
            key: await readPem("--tls-key", tlsKey),
            clientCa: tlsClientCa === undefined ? undefined : await readPem("--tls-client-ca", tlsClientCa),
          },
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

async function readPem(flag: string, path: string): Promise<Buffer> {
  try {
    return await readFile(path);
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code ?? "unknown error";
    throw new BerthError("INVALID_ARGUMENT", `${flag}: ${path} cannot be read (${code}).`, { cause: error });
  }
}
