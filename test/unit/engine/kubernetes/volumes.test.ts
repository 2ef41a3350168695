import type { V1Pod } from "@kubernetes/client-node";
import { expect, test } from "vitest";
import { addClaims, claimLabel } from "../../../../src/engine/kubernetes/volumes.ts";
import type { VolumeMount } from "../../../../src/engine/port.ts";

const ONCE = { accessMode: "ReadWriteOnce", image: "own" } as const;

function mount(changes: Partial<VolumeMount> = {}): VolumeMount {
  const place = { target: "/w", readOnly: false, giveToUser: true };
  return { kind: "volume", volume: "claim", directory: "t0", ...place, ...changes };
}

function pod(spec: object = {}): V1Pod {
  return {
    metadata: { labels: { kept: "yes" } },
    spec: { containers: [{ name: "main", image: "image" }], ...spec },
  };
}

test("a claim that is mounted several times is in the pod once", () => {
  const made = pod();
  addClaims(made, [mount(), mount({ target: "/x", directory: "t1" })], ONCE);
  const [{ name = "" } = {}] = made.spec?.volumes ?? [];
  expect(made.spec?.volumes).toEqual([{ name, persistentVolumeClaim: { claimName: "claim" } }]);
  expect(made.spec?.containers[0]?.volumeMounts).toEqual([
    { name, mountPath: "/w", subPath: "t0", readOnly: false },
    { name, mountPath: "/x", subPath: "t1", readOnly: false },
  ]);
  expect(made.metadata?.labels).toEqual({ kept: "yes", [claimLabel("claim")]: "" });
  expect(made.spec?.initContainers).toBeUndefined();
});

const term = (claim: string) => ({
  labelSelector: { matchExpressions: [{ key: claimLabel(claim), operator: "Exists" }] },
  topologyKey: "kubernetes.io/hostname",
});

/** A pod that runs on a node and has a claim. */
function user(claim: string, node: string | undefined, changes: V1Pod = {}): V1Pod {
  return {
    metadata: { labels: { [claimLabel(claim)]: "" }, ...changes.metadata },
    spec: { containers: [], ...(node !== undefined && { nodeName: node }) },
    status: { phase: "Running", ...changes.status },
  };
}

const onNode = (node: string) => ({
  matchFields: [{ key: "metadata.name", operator: "In", values: [node] }],
});

test("pods with the same claim are scheduled on one node if the claim requires it", () => {
  const template = { affinity: { nodeAffinity: {} } };
  const once = pod(template);
  addClaims(once, [mount()], ONCE, { others: [user("claim", "node-1")] });
  expect(once.spec?.affinity).toEqual({
    nodeAffinity: {},
    podAffinity: { requiredDuringSchedulingIgnoredDuringExecution: [term("claim")] },
  });
  const many = pod(template);
  addClaims(many, [mount()], { ...ONCE, accessMode: "ReadWriteMany" });
  expect(many.spec?.affinity).toEqual(template.affinity);
});

test("a pod with several claims is scheduled on the node of a pod that has one of them", () => {
  const made = pod();
  const mounts = [mount(), mount({ volume: "other" })];
  const others = [
    user("third", "node-1"),
    user("claim", undefined),
    user("claim", "node-2", { status: { phase: "Failed" } }),
    user("claim", "node-3", {
      metadata: { labels: { [claimLabel("claim")]: "" }, deletionTimestamp: new Date() },
    }),
    user("other", "node-4"),
  ];
  addClaims(made, mounts, ONCE, { others });
  expect(made.spec?.affinity).toEqual({
    podAffinity: { requiredDuringSchedulingIgnoredDuringExecution: [term("claim"), term("other")] },
    nodeAffinity: {
      requiredDuringSchedulingIgnoredDuringExecution: { nodeSelectorTerms: [onNode("node-4")] },
    },
  });
  const alone = pod();
  addClaims(alone, mounts, ONCE, { others: others.slice(0, -1) });
  expect(alone.spec?.affinity?.nodeAffinity).toBeUndefined();
});

test("the operator's terms stay alone, since the scheduler wants one pod that matches all terms", () => {
  const zone = { labelSelector: { matchLabels: { app: "cache" } }, topologyKey: "zone" };
  const pools = ["small", "large"].map((pool) => ({
    matchExpressions: [{ key: "pool", operator: "In", values: [pool] }],
  }));
  const podAffinity = { requiredDuringSchedulingIgnoredDuringExecution: [zone] };
  const made = pod({
    affinity: {
      podAffinity,
      nodeAffinity: { requiredDuringSchedulingIgnoredDuringExecution: { nodeSelectorTerms: pools } },
    },
  });
  addClaims(made, [mount()], ONCE, { others: [user("claim", "node-1")] });
  expect(made.spec?.affinity).toEqual({
    podAffinity,
    nodeAffinity: {
      requiredDuringSchedulingIgnoredDuringExecution: {
        nodeSelectorTerms: pools.map((pool) => ({ ...pool, ...onNode("node-1") })),
      },
    },
  });
});

test("a read-only directory is created before the container starts, by no program of the sandbox's image", () => {
  const made = pod();
  addClaims(made, [mount({ readOnly: true })], ONCE);
  const [before] = made.spec?.initContainers ?? [];
  expect(before).toMatchObject({ image: "own", volumeMounts: [{ mountPath: "/volumes/0" }] });
  expect(before?.command?.at(-1)).toBe("/volumes/0/t0");
  expect(made.spec?.containers[0]?.volumeMounts).toMatchObject([{ readOnly: true }]);
});

test("a pod without volumes stays as it is", () => {
  const made = pod();
  addClaims(made, [], ONCE);
  expect(made).toEqual(pod());
});
