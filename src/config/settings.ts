import { readFile } from "node:fs/promises";
import { BerthError } from "../base/errors.ts";
import type { EngineSettings } from "../engine/choose.ts";
import { SANDBOX_DEFAULTS, type SandboxDefaults } from "../sandboxes/spec.ts";
import type { WarmPoolTarget } from "../sandboxes/warm-pool.ts";
import { formatListenAddress } from "../server/listen-address.ts";
import type { TlsOptions } from "../server/listener.ts";
import type { WorkspaceSettings } from "../workspaces/parts.ts";
import type { Config } from "./config.ts";

/** How a service is set up. Times in milliseconds. */
export interface AppSettings extends EngineSettings, WorkspaceSettings {
  /** As {@link parseListenAddress} reads it. */
  readonly listen: string;
  readonly tls: TlsOptions | undefined;
  readonly allowHosts: readonly string[];
  readonly corsOrigins: readonly string[];
  /** Id of this service in its containers' labels; undefined: the data directory's, which is random at first. */
  readonly instance: string | undefined;
  readonly defaults: SandboxDefaults;
  readonly maxSandboxes: number;
  readonly maxProcessesPerSandbox: number;
  readonly cleanupIntervalMs: number;
  readonly deleteGraceMs: number;
  /** How long a session lives after its last use, where its creator does not say. */
  readonly sessionTtlMs: number;
  /** How long a stop may take in all. */
  readonly stopTimeoutMs: number;
  /** How far a process may run ahead of its reader, in bytes. */
  readonly transcriptWindowBytes: number;
  /** What all transcripts may hold, and those of one owner. */
  readonly transcriptQuotaBytes: number;
  readonly transcriptOwnerQuotaBytes: number;
  /** What all answers kept for retries may hold, and those of one owner. */
  readonly answerQuotaBytes: number;
  readonly answerOwnerQuotaBytes: number;
  /** Where the service keeps what it has on disk. */
  readonly dataDir: string;
  /** Sandboxes that are kept ready to be claimed. */
  readonly warmPools: readonly WarmPoolTarget[];
}

/**
 * What the app needs of a configuration: files read, defaults put together.
 * @throws BerthError `INVALID_ARGUMENT` for a certificate or key that cannot be read
 */
export async function settingsOf(config: Config): Promise<AppSettings> {
  const { tlsCert, tlsKey } = config;
  return {
    ...config,
    listen: formatListenAddress(config.listen),
    tls:
      tlsCert === undefined || tlsKey === undefined
        ? undefined
        : { cert: await readPem("--tls-cert", tlsCert), key: await readPem("--tls-key", tlsKey) },
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
