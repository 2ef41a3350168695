import type { V1Pod } from "@kubernetes/client-node";
import type { EngineSandboxEnd } from "../port.ts";

/** Reasons in the condition DisruptionTarget of a pod that Kubernetes ends, with Berth's words for each. */
const CAUSES: Readonly<Record<string, string>> = {
  DeletionByTaintManager: "evicted for a taint of",
  EvictionByEvictionAPI: "evicted by an operator from",
  PreemptionByScheduler: "ended for a pod of higher priority on",
  TerminationByKubelet: "ended by",
};

/** The one among them that the pod itself may have brought about, by using too much of the node. */
const BY_KUBELET = "TerminationByKubelet";

/**
 * Why Kubernetes itself ends a pod; undefined if it does not. Needs no permission to see nodes, because what happens to
 * a node shows in its pods too.
 */
export function disruptionOf(
  pod: V1Pod,
): Pick<EngineSandboxEnd, "cause" | "isRemoved" | "lostNode"> | undefined {
  const node = pod.spec?.nodeName;
  const target = condition(pod, "DisruptionTarget");
  const { reason = "", message = "" } = target?.status === "True" ? target : {};
  if (node === undefined) return undefined;
  if (isNodeLost(pod, reason)) return { cause: `node ${node} was lost`, lostNode: node };
  const what = CAUSES[reason];
  // An eviction may be withdrawn until the pod is being deleted.
  const ends = pod.metadata?.deletionTimestamp !== undefined || isOver(pod);
  if (what === undefined || !ends) return undefined;
  const words = pod.status?.message || message;
  const cause = `${what} the node ${node}${words === "" ? "" : `: ${words}`}`.slice(0, 500).trim();
  return { cause, ...(reason !== BY_KUBELET && { isRemoved: true }) };
}

function isNodeLost(pod: V1Pod, reason: string): boolean {
  if (pod.status?.reason === "NodeLost") return true;
  // The node's object is gone, or an operator has marked it as out of service.
  if (reason === "DeletionByPodGC") return true;
  return reason === "DeletionByTaintManager" && isNodeSilent(pod);
}

/** Whether the node does not answer: a kubelet never reports a pod as not ready while its containers are ready. */
function isNodeSilent(pod: V1Pod): boolean {
  return condition(pod, "Ready")?.status === "False" && condition(pod, "ContainersReady")?.status === "True";
}

function isOver({ status }: V1Pod): boolean {
  return status?.phase === "Failed" || status?.phase === "Succeeded";
}

function condition(pod: V1Pod, wanted: string) {
  return pod.status?.conditions?.find(({ type }) => type === wanted);
}
