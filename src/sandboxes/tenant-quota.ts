/** What one tenant may have at once. Unset: only the service's own limits bound it. */
export interface TenantQuota {
  /** Live sandboxes, those being created and removed included. */
  readonly sandboxes?: number | undefined;
  /** The sum of its sandboxes' memory limits, in bytes. */
  readonly memoryBytes?: number | undefined;
  /** The sum of its sandboxes' CPU limits, in thousandths of a CPU. */
  readonly cpuMillis?: number | undefined;
  /** The sum of its sandboxes' pids limits. */
  readonly pids?: number | undefined;
  /** Commands that run at once, in all its sandboxes. */
  readonly execs?: number | undefined;
  /** Sandboxes that it may create each second, on average; as many at once. */
  readonly createsPerSecond?: number | undefined;
  /** Stored output of its commands, in bytes. Beyond it the oldest gives way. */
  readonly transcriptBytes?: number | undefined;
  /** Its workspaces and its shared directory together, as last measured, in bytes. */
  readonly workspaceBytes?: number | undefined;
}

/** What a quota is for. */
export type QuotaName = keyof TenantQuota;

/** The names of quotas on the wire: in metadata of errors and in statistics. */
export const QUOTA_NAMES: Readonly<Record<QuotaName, string>> = {
  sandboxes: "sandboxes",
  memoryBytes: "memory_bytes",
  cpuMillis: "cpu_millis",
  pids: "pids",
  execs: "execs",
  createsPerSecond: "creates_per_second",
  transcriptBytes: "transcript_bytes",
  workspaceBytes: "workspace_bytes",
};
