/** How much one tenant may have at once. Unset fields: only the service's own limits apply. */
export interface TenantQuota {
  /** Live sandboxes, including those being created or removed. */
  readonly sandboxes?: number | undefined;
  /** The sum of its sandboxes' memory limits, in bytes. */
  readonly memoryBytes?: number | undefined;
  /** The sum of its sandboxes' CPU limits, in thousandths of a CPU. */
  readonly cpuMillis?: number | undefined;
  /** The sum of its sandboxes' pids limits. */
  readonly pids?: number | undefined;
  /** Commands that run at the same time in all its sandboxes. */
  readonly execs?: number | undefined;
  /** Sandboxes that it may create per second on average, and at once as a burst. */
  readonly createsPerSecond?: number | undefined;
  /** Stored output of its commands, in bytes. Beyond it the oldest output is dropped. */
  readonly transcriptBytes?: number | undefined;
  /** Its workspaces and its shared directory together, as last measured, in bytes. */
  readonly workspaceBytes?: number | undefined;
}

/** The name of a quota. */
export type QuotaName = keyof TenantQuota;

/** The names of quotas on the wire, in error metadata and in statistics. */
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
