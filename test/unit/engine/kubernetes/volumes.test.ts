import type { V1Pod } from "@kubernetes/client-node";
import { expect, test } from "vitest";
import { addClaims, claimLabel } from "../../../../src/engine/kubernetes/volumes.ts";
import type { VolumeMount } from "../../../../src/engine/port.ts";

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
  addClaims(made, [mount(), mount({ target: "/x", directory: "t1" })], "ReadWriteOnce");
  const [{ name = "" } = {}] = made.spec?.volumes ?? [];
  expect(made.spec?.volumes).toEqual([{ name, persistentVolumeClaim: { claimName: "claim" } }]);
  expect(made.spec?.containers[0]?.volumeMounts).toEqual([
    { name, mountPath: "/w", subPath: "t0", readOnly: false },
    { name, mountPath: "/x", subPath: "t1", readOnly: false },
  ]);
  expect(made.metadata?.labels).toEqual({ kept: "yes", [claimLabel("claim")]: "" });
  expect(made.spec?.initContainers).toBeUndefined();
});

test("pods with the same claim are scheduled on one node if the claim requires it, in addition to the operator's terms", () => {
  const term = { topologyKey: "zone" };
  const template = {
    affinity: { podAffinity: { requiredDuringSchedulingIgnoredDuringExecution: [term] }, nodeAffinity: {} },
  };
  const once = pod(template);
  addClaims(once, [mount()], "ReadWriteOnce");
  expect(once.spec?.affinity).toEqual({
    nodeAffinity: {},
    podAffinity: {
      requiredDuringSchedulingIgnoredDuringExecution: [
        term,
        {
          labelSelector: { matchExpressions: [{ key: claimLabel("claim"), operator: "Exists" }] },
          topologyKey: "kubernetes.io/hostname",
        },
      ],
    },
  });
  const many = pod(template);
  addClaims(many, [mount()], "ReadWriteMany");
  expect(many.spec?.affinity).toEqual(template.affinity);
});

test("a read-only directory is created before the container starts", () => {
  const made = pod();
  addClaims(made, [mount({ readOnly: true })], "ReadWriteOnce");
  const [before] = made.spec?.initContainers ?? [];
  expect(before).toMatchObject({ image: "image", volumeMounts: [{ mountPath: "/volumes/0" }] });
  expect(before?.command?.at(-1)).toBe("/volumes/0/t0");
  expect(made.spec?.containers[0]?.volumeMounts).toMatchObject([{ readOnly: true }]);
});

test("a pod without volumes stays as it is", () => {
  const made = pod();
  addClaims(made, [], "ReadWriteOnce");
  expect(made).toEqual(pod());
});
