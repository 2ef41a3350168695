import type { Registry } from "prom-client";
import type { RotatedFile } from "./base/rotated-file.ts";
import type { DataDisk } from "./data-disk.ts";
import { type Engine, WAIT_REASONS } from "./engine/port.ts";
import type { TranscriptBudget } from "./processes/transcript-budget.ts";
import type { EngineMonitor } from "./sandboxes/engine-monitor.ts";
import type { SandboxManager } from "./sandboxes/manager.ts";
import type { TenantQuotas, TenantUsage } from "./sandboxes/tenant-quotas.ts";
import type { LiveTls } from "./server/live-tls.ts";
import { showGauge, showLabelledGauge } from "./server/metrics.ts";
import type { RequestLog } from "./state/request-log.ts";
import type { LiveTokens } from "./tenants/live-tokens.ts";
import type { WorkspaceQuota } from "./workspaces/quota.ts";

interface GaugeSources {
  readonly sandboxes: Pick<SandboxManager, "places" | "stuckRemovals">;
  readonly engine: Pick<Engine, "figures">;
  readonly monitor: Pick<EngineMonitor, "available">;
  readonly quotas: Pick<TenantQuotas, "usages">;
  readonly transcripts: Pick<TranscriptBudget, "usage">;
  readonly state: { readonly requests: Pick<RequestLog, "answerBytes"> };
  readonly quota: Pick<WorkspaceQuota, "shared">;
  readonly disk: Pick<DataDisk, "freeBytes" | "totalBytes">;
  /** Undefined without a tokens file. */
  readonly tokens: LiveTokens | undefined;
  /** Undefined without TLS. */
  readonly tls: LiveTls | undefined;
  /** Undefined without an audit log. */
  readonly audit: RotatedFile | undefined;
}

/** Adds the gauges of the service's parts to the metrics. */
export function showGauges(
  metrics: Registry,
  { sandboxes, engine, monitor, quotas, transcripts, state, quota, disk, tokens, tls, audit }: GaugeSources,
): void {
  const answerBytes = () => state.requests.answerBytes();
  const usage = () => transcripts.usage;
  const shared = () => quota.shared;
  const gauges: Readonly<Record<string, readonly [help: string, read: () => number]>> = {
    berth_engine_available: [
      "1 while the engine answers; the log says why it does not.",
      () => (monitor.available ? 1 : 0),
    ],
    berth_sandboxes: [
      "Sandboxes that count towards --max-sandboxes: those being created and removed, too, but not those of the warm pool.",
      () => sandboxes.places.taken,
    ],
    berth_sandboxes_limit: ["The value of --max-sandboxes.", () => sandboxes.places.limit],
    berth_sandboxes_stuck_deleting: [
      "Sandboxes that could not be removed so far; the log says why. Berth keeps retrying.",
      () => sandboxes.stuckRemovals,
    ],
    berth_sandboxes_without_pipes: [
      "Sandboxes whose output comes through Docker's own streams, which is slower; the log says why. Berth keeps retrying.",
      () => engine.figures().sandboxesWithoutPipes,
    ],
    berth_orphaned_pipes: [
      "Commands that have ended but whose output is still held open by something they left behind.",
      () => engine.figures().orphanedPipes,
    ],
    berth_data_disk_free_bytes: [
      "Free space on the disk of the data directory, at most 5 s ago; NaN while the disk does not answer.",
      () => disk.freeBytes,
    ],
    berth_data_disk_total_bytes: [
      "Size of the disk of the data directory; NaN while the disk does not answer.",
      () => disk.totalBytes,
    ],
    berth_transcript_bytes: ["Stored output of commands, in memory and on disk.", () => usage().bytes],
    berth_transcript_memory_bytes: ["Stored output of commands, in memory alone.", () => usage().memoryBytes],
    berth_answer_bytes: ["Answers that are stored for retries by request_id.", answerBytes],
    berth_shared_directory_bytes: [
      "Size of the shared directories that have a quota, as last measured.",
      () => shared().sizeBytes,
    ],
    berth_tokens: [
      "Tokens that are in force or expired; 0 without a tokens file.",
      () => tokens?.table.tokens.size ?? 0,
    ],
    berth_tokens_file_stale: [
      "1 while the tokens file has changed and cannot be used, so that the tokens it held before stay in force; the log says why.",
      () => (tokens?.isStale ? 1 : 0),
    ],
    berth_tls_expire_time_seconds: [
      "When the TLS certificate in use expires, in seconds since the Unix epoch; NaN without TLS.",
      () => (tls?.expireTimeMs ?? Number.NaN) / 1000,
    ],
    berth_audit_lines_lost: [
      "Lines that the audit log lost since the start, because it could not be written; the log says why.",
      () => audit?.lost ?? 0,
    ],
    berth_shared_directories_over_quota: ["Shared directories that exceed their quota.", () => shared().over],
  };
  for (const [name, [help, read]] of Object.entries(gauges)) showGauge(metrics, name, help, read);
  showLabelledGauge(
    metrics,
    "berth_engine_waiting",
    "Sandboxes that wait to start in the engine, by what each waits for; GetStats has the engine's words.",
    "reason",
    () => {
      const counts = new Map<string, number>(WAIT_REASONS.map((reason) => [reason.toLowerCase(), 0]));
      for (const { reason } of engine.figures().waiting) {
        const word = reason.toLowerCase();
        counts.set(word, (counts.get(word) ?? 0) + 1);
      }
      return counts;
    },
  );
  const tenantGauges: Readonly<Record<string, readonly [help: string, of: keyof TenantUsage]>> = {
    berth_tenant_sandboxes: [
      "Sandboxes of each tenant, those being created and removed included.",
      "sandboxes",
    ],
    berth_tenant_memory_bytes: ["Sum of the memory limits of each tenant's sandboxes.", "memoryBytes"],
    berth_tenant_commands: ["Commands of each tenant that run.", "execs"],
    berth_tenant_sessions: ["Sessions of each tenant, without those that exist for one call.", "sessions"],
  };
  for (const [name, [help, of]] of Object.entries(tenantGauges))
    showLabelledGauge(
      metrics,
      name,
      help,
      "tenant",
      () => new Map([...quotas.usages()].map(([tenant, used]) => [tenant, used[of]])),
    );
}
