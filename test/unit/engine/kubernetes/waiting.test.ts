import type { V1ContainerStateWaiting, V1Pod, V1PodCondition } from "@kubernetes/client-node";
import { expect, test } from "vitest";
import { type PodFacts, sandboxPod } from "../../../../src/engine/kubernetes/pod.ts";
import { waitingPods } from "../../../../src/engine/kubernetes/start.ts";

const facts: PodFacts = { instance: "one", user: "1000:1000", isolation: "CONTAINER" };
const since = new Date(1_790_000_000_000);

/** A sandbox's pod that has not started, with the state that its node or the scheduler reports. */
function pendingPod(waiting?: V1ContainerStateWaiting, condition?: Partial<V1PodCondition>): V1Pod {
  const pod = sandboxPod(
    "berth-a",
    {
      ...{
        sandboxId: "late",
        generation: 1,
        owner: "olga",
        image: "image:1",
        env: {},
        workingDir: "/",
        user: "",
      },
      resources: { memoryBytes: 1 << 20, cpuMillis: 100, pidsLimit: 64, diskBytes: undefined },
      ...{ network: "NONE", mounts: [], runtime: "" },
    },
    facts,
  );
  const container = pod.spec?.containers[0];
  return {
    ...pod,
    metadata: { ...pod.metadata, uid: "u1", creationTimestamp: since },
    status: {
      phase: "Pending",
      conditions: condition ? [{ type: "PodScheduled", status: "False", ...condition }] : [],
      containerStatuses: [
        {
          ...{ name: container?.name ?? "", image: "image:1", imageID: "", ready: false, restartCount: 0 },
          state: waiting ? { waiting } : {},
        },
      ],
    },
  };
}

const said = (text: string) => ({ lastOf: () => text });

test.each([
  ["STARTING", pendingPod(), ""],
  ["STARTING", pendingPod({ reason: "ContainerCreating" }), ""],
  [
    "UNSCHEDULABLE",
    pendingPod(undefined, { reason: "Unschedulable", message: "0/1 nodes: Insufficient memory" }),
    "",
  ],
  ["VOLUME", pendingPod(undefined, { message: 'persistentvolumeclaim "berth-w" not found' }), ""],
  [
    "VOLUME",
    pendingPod(undefined, { message: "0/2 nodes: 2 node(s) had volume node affinity conflict" }),
    "",
  ],
  ["VOLUME", pendingPod({ reason: "ContainerCreating" }), "FailedMount: MountVolume.SetUp failed for volume"],
  [
    "VOLUME",
    pendingPod({ reason: "ContainerCreating" }),
    "FailedAttachVolume: Multi-Attach error for volume",
  ],
  ["IMAGE", pendingPod({ reason: "ImagePullBackOff", message: "Back-off pulling image" }), ""],
  ["IMAGE", pendingPod({ reason: "ErrImagePull" }), ""],
  ["IMAGE", pendingPod({ reason: "RegistryUnavailable" }), ""],
  ["IMAGE", pendingPod({ reason: "ContainerCreating" }), 'Failed: Failed to pull image "image:1"'],
  [
    "RUNTIME",
    pendingPod({ reason: "ContainerCreating" }),
    'FailedCreatePodSandBox: no runtime for "runsc" is configured',
  ],
])("a pod waits by reason of %s (%#)", (reason, pod, warning) => {
  const found = waitingPods([pod], said(warning));
  expect(found).toMatchObject([
    { sandboxId: "late", owner: "olga", image: "image:1", reason, sinceMs: since.getTime() },
  ]);
  expect(found[0]?.message).toContain(warning);
});

test("a message has at most 500 characters", () => {
  const [found] = waitingPods([pendingPod()], said("x".repeat(5_000)));
  expect(found?.message.length).toBeLessThanOrEqual(500);
});

test("a pod that runs, has ended, is being deleted, or is neither a sandbox nor an image probe does not count as waiting", () => {
  const pod = pendingPod();
  const state = (container: object): V1Pod => ({
    ...pod,
    status: {
      ...pod.status,
      containerStatuses: pod.status?.containerStatuses?.map((one) => ({ ...one, state: container })) ?? [],
    },
  });
  const others: V1Pod[] = [
    state({ running: { startedAt: since } }),
    { ...state({ terminated: { exitCode: 1 } }), status: { ...pod.status, phase: "Failed" } },
    { ...pod, metadata: { ...pod.metadata, deletionTimestamp: since } },
    { ...pod, metadata: { ...pod.metadata, labels: { ...pod.metadata?.labels, "berth.dev/role": "files" } } },
  ];
  expect(waitingPods(others, said(""))).toEqual([]);
  expect(waitingPods([pod], said(""))).toHaveLength(1);
});
