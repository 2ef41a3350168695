import type { V1Pod } from "@kubernetes/client-node";
import type { WaitingSandbox, WaitReason } from "../port.ts";
import { quoted } from "./errors.ts";
import { containerStatus, describePod, endOf, ROLE_LABEL } from "./pod.ts";
import { pendingCause } from "./start.ts";
import type { PodWarnings } from "./warnings.ts";

/** Pods of sandboxes and of image probes that do not run yet, and what each waits for. */
export function waitingPods(pods: Iterable<V1Pod>, warnings: Pick<PodWarnings, "lastOf">): WaitingSandbox[] {
  const waiting: WaitingSandbox[] = [];
  for (const pod of pods) {
    const { labels, name = "", creationTimestamp, deletionTimestamp } = pod.metadata ?? {};
    const role = labels?.[ROLE_LABEL];
    if ((role !== "sandbox" && role !== "probe") || deletionTimestamp !== undefined) continue;
    if (endOf(pod) !== undefined || containerStatus(pod)?.state?.running !== undefined) continue;
    const { sandboxId, owner } = describePod(pod);
    const warning = warnings.lastOf(name) ?? "";
    const image = pod.spec?.containers[0]?.image ?? "";
    const message = quoted([pendingCause(pod), warning].filter((text) => text !== "").join("; "));
    const sinceMs = creationTimestamp === undefined ? Date.now() : Number(new Date(creationTimestamp));
    waiting.push({ sandboxId, owner, image, reason: reasonOf(pod, warning), message, sinceMs });
  }
  return waiting;
}

function reasonOf(pod: V1Pod, warning: string): WaitReason {
  const scheduled = pod.status?.conditions?.find(({ type }) => type === "PodScheduled");
  if (scheduled?.status === "False")
    return /persistentvolumeclaim|volume node affinity/i.test(scheduled.message ?? "")
      ? "VOLUME"
      : "UNSCHEDULABLE";
  const { reason = "" } = containerStatus(pod)?.state?.waiting ?? {};
  if (/Image|Registry/.test(reason)) return "IMAGE";
  // Only events show problems that precede the container.
  if (/no runtime for|RuntimeHandler .* not supported/i.test(warning)) return "RUNTIME";
  if (/^(FailedMount|FailedAttachVolume|FailedMapVolume|VolumeResizeFailed)\b/.test(warning)) return "VOLUME";
  if (/^Failed: .*pull/i.test(warning)) return "IMAGE";
  return "STARTING";
}
