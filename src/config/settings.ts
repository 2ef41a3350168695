import { SANDBOX_DEFAULTS, type SandboxDefaults } from "../sandboxes/spec.ts";
import type { TenantQuota } from "../sandboxes/tenant-quotas.ts";
import { formatListenAddress } from "../server/listen-address.ts";
import type { TlsFiles } from "../server/live-tls.ts";
import type { Config } from "./options.ts";
import { tlsFiles } from "./tls-files.ts";

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
  | "tenantMaxSessions"
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
      sessions: config.tenantMaxSessions,
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
