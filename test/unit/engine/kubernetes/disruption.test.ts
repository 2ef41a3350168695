import type { V1Pod, V1PodCondition } from "@kubernetes/client-node";
import { expect, test } from "vitest";
import { disruptionOf } from "../../../../src/engine/kubernetes/disruption.ts";
import { endOf } from "../../../../src/engine/kubernetes/pod.ts";

const CONTAINERS_READY: V1PodCondition = { type: "ContainersReady", status: "True" };
const READY: V1PodCondition = { type: "Ready", status: "True" };
const UNREADY: V1PodCondition = { type: "Ready", status: "False" };

function pod(
  reason: string | undefined,
  ready: V1PodCondition,
  changes: Partial<V1Pod["status"]> = {},
): V1Pod {
  const target = { type: "DisruptionTarget", status: "True", message: "Words.", ...(reason && { reason }) };
  return {
    metadata: { name: "p", uid: "u", deletionTimestamp: new Date(0) },
    spec: { nodeName: "n1", containers: [] },
    status: {
      phase: "Running",
      conditions: [CONTAINERS_READY, ready, ...(reason ? [target] : [])],
      ...changes,
    },
  };
}

test.each([
  ["collected", pod("DeletionByPodGC", READY)],
  ["silent until the taint", pod("DeletionByTaintManager", UNREADY)],
  ["as older clusters report", pod(undefined, READY, { reason: "NodeLost" })],
])("a node that Kubernetes has given up is lost: %s", (_how, given) => {
  const lost = { cause: "node n1 was lost", lostNode: "n1" };
  expect(disruptionOf(given)).toEqual(lost);
  expect(endOf(given)).toEqual({ exitCode: 137, outOfMemory: false, ...lost });
});

test.each([
  ["tainted", "DeletionByTaintManager", "evicted for a taint of the node n1: Words."],
  ["drained", "EvictionByEvictionAPI", "evicted by an operator from the node n1: Words."],
  ["preempted", "PreemptionByScheduler", "ended for a pod of higher priority on the node n1: Words."],
  ["under pressure", "TerminationByKubelet", "ended by the node n1: Words."],
])("an end on a node that answers is not a lost node: %s", (_how, reason, cause) => {
  const removed = reason === "TerminationByKubelet" ? {} : { isRemoved: true };
  expect(disruptionOf(pod(reason, READY))).toEqual({ cause, ...removed });
});

test("a pod that is not ready, or will be evicted but is not deleted yet, has not ended", () => {
  expect(disruptionOf(pod(undefined, UNREADY))).toBeUndefined();
  const { metadata: _deleted, ...kept } = pod("EvictionByEvictionAPI", READY);
  expect(endOf({ ...kept, metadata: { name: "p", uid: "u" } })).toBeUndefined();
});
