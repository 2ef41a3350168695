import type { IsolationLevel } from "../engine/port.ts";

import type { WarmPoolTarget } from "../sandboxes/warm-pool.ts";
import type { ListenAddress } from "../server/listen-address.ts";

/** How much the service logs. */
export type LogLevel = "trace" | "debug" | "info" | "warn" | "error" | "fatal" | "silent";

/**
 * How a service is set up: every option read, checked and filled in with its
 * default. Times are milliseconds, sizes bytes. `src/config/options.ts` says
 * what each option means, what it is called and what its default is.
 */
export interface Config {
  readonly listen: ListenAddress;
  /** Path of a PEM file. Set together with {@link tlsKey}. */
  readonly tlsCert: string | undefined;
  /** Path of a PEM file. */
  readonly tlsKey: string | undefined;
  readonly insecure: boolean;
  /** Host names without port. */
  readonly allowHosts: readonly string[];
  /** Origins, as in `https://app.example.com`. */
  readonly corsOrigins: readonly string[];

  readonly engine: "auto" | "docker" | "bubblewrap";
  readonly dockerRequired: boolean;
  /** As in `DOCKER_HOST`; undefined: what that says, else the standard socket. */
  readonly dockerHost: string | undefined;
  /** Absolute path; undefined: the machine\'s own system. */
  readonly rootfs: string | undefined;
  /** Undefined: what the data directory has, else a random one. */
  readonly instance: string | undefined;
  /** Absolute paths. */
  readonly allowHostPaths: readonly string[];
  /** OCI runtimes by name. */
  readonly allowRuntimes: Readonly<Record<string, IsolationLevel>>;

  readonly maxSandboxes: number;
  readonly defaultImage: string;
  readonly defaultMemoryBytes: number;
  readonly defaultCpuMillis: number;
  readonly idleTimeoutMs: number;
  /** Undefined: unbounded. */
  readonly maxLifetimeMs: number | undefined;
  readonly cleanupIntervalMs: number;
  readonly deleteGraceMs: number;
  readonly sessionTtlMs: number;

  readonly commandTimeoutMs: number;
  readonly maxProcessesPerSandbox: number;
  readonly transcriptWindowBytes: number;
  readonly transcriptQuotaBytes: number;
  readonly transcriptOwnerQuotaBytes: number;
  readonly answerQuotaBytes: number;
  readonly answerOwnerQuotaBytes: number;
  readonly dataDir: string;
  /** Undefined: below the data directory. */
  readonly workspacesRoot: string | undefined;
  /** Undefined: below the data directory. */
  readonly sharedRoot: string | undefined;
  /** Undefined: unbounded. */
  readonly workspaceQuotaBytes: number | undefined;
  readonly sharedQuotaBytes: number | undefined;

  readonly warmPools: readonly WarmPoolTarget[];

  readonly stopTimeoutMs: number;
  readonly leaveSandboxes: boolean;
  readonly logLevel: LogLevel;
}
