import type { IsolationLevel } from "../port.ts";

/** Who a container belongs to and what must be known of it without a store. Set at create, immutable after. */
export interface SandboxLabels {
  readonly instance: string;
  readonly sandboxId: string;
  readonly generation: number;
  readonly owner: string;
  /** Whom commands run as where they name nobody; empty: root. */
  readonly user: string;
  readonly isolation: IsolationLevel;
}

const ISOLATION_LEVELS: readonly string[] = [
  "NAMESPACE",
  "CONTAINER",
  "USER_KERNEL",
  "VIRTUAL_MACHINE",
] satisfies IsolationLevel[];

/** The label every container of a Berth service carries; its value is the instance. */
export const INSTANCE_LABEL = "berth.instance";

export function formatLabels(labels: SandboxLabels): Record<string, string> {
  return {
    [INSTANCE_LABEL]: labels.instance,
    "berth.sandbox_id": labels.sandboxId,
    "berth.generation": String(labels.generation),
    "berth.owner": labels.owner,
    "berth.user": labels.user,
    "berth.isolation": labels.isolation,
  };
}

/** Reads what {@link formatLabels} wrote; what is missing takes the most cautious value. */
export function parseLabels(labels: Readonly<Record<string, string>>): SandboxLabels {
  const isolation = labels["berth.isolation"] ?? "";
  return {
    instance: labels[INSTANCE_LABEL] ?? "",
    sandboxId: labels["berth.sandbox_id"] ?? "",
    generation: Number(labels["berth.generation"] ?? 0),
    owner: labels["berth.owner"] ?? "",
    user: labels["berth.user"] ?? "",
    isolation: ISOLATION_LEVELS.includes(isolation) ? (isolation as IsolationLevel) : "CONTAINER",
  };
}
