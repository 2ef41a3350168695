import type { V1Pod } from "@kubernetes/client-node";
import { describe, expect, test } from "vitest";
import { exitCodeIn } from "../../../../src/engine/kubernetes/exec-socket.ts";
import { parseQuantity } from "../../../../src/engine/kubernetes/info.ts";
import {
  describePod,
  endOf,
  instanceLabel,
  newPodName,
  type PodFacts,
  parseRef,
  probePod,
  refOf,
  sandboxPod,
} from "../../../../src/engine/kubernetes/pod.ts";
import type { EngineSandboxSpec } from "../../../../src/engine/port.ts";

const facts: PodFacts = { instance: "one", user: "1000:1000", isolation: "CONTAINER" };
const spec: EngineSandboxSpec = {
  sandboxId: "ünï/../ 🎉",
  generation: 2,
  owner: "olga",
  image: "image:1",
  env: { PRICE: "$(HOME) $$ 5$" },
  workingDir: "/workspace",
  user: "",
  resources: { memoryBytes: 256 << 20, cpuMillis: 1500, pidsLimit: 64, diskBytes: undefined },
  network: "NONE",
  mounts: [],
  runtime: "",
};

describe("a sandbox's pod", () => {
  test("has annotations that identify the sandbox without the store, and can be found by them", () => {
    const pod = sandboxPod("berth-a", spec, facts);
    const seen: V1Pod = { ...pod, metadata: { ...pod.metadata, uid: "u1" } };
    expect(describePod(seen)).toEqual({
      ref: "berth-a.u1",
      sandboxId: "ünï/../ 🎉",
      generation: 2,
      owner: "olga",
      state: "running",
      isolation: "CONTAINER",
      user: "1000:1000",
    });
    expect(parseRef(refOf(seen))).toEqual({ name: "berth-a", uid: "u1" });
    expect(parseRef("0123456789ab")).toEqual({ name: "0123456789ab", uid: "" });
  });

  test("has no token, no link to services, no privilege, and the default filter of system calls", () => {
    const { spec: podSpec } = sandboxPod("berth-a", spec, facts);
    expect(podSpec).toMatchObject({
      automountServiceAccountToken: false,
      enableServiceLinks: false,
      hostNetwork: false,
      hostPID: false,
      hostIPC: false,
      restartPolicy: "Never",
    });
    expect(podSpec?.containers[0]?.securityContext).toMatchObject({
      privileged: false,
      allowPrivilegeEscalation: false,
      capabilities: { drop: ["ALL"] },
      seccompProfile: { type: "RuntimeDefault" },
    });
  });

  test("gets variables and limits unchanged", () => {
    const [main] = sandboxPod("berth-a", spec, facts).spec?.containers ?? [];
    // Kubernetes expands this to the value:
    // https://kubernetes.io/docs/tasks/inject-data-application/define-interdependent-environment-variables/
    expect(main?.env).toEqual([{ name: "PRICE", value: "$$(HOME) $$$$ 5$$" }]);
    expect(main?.resources?.limits).toEqual({ cpu: "1500m", memory: String(256 << 20) });
    expect(main?.resources?.requests).toEqual({ cpu: "150m", memory: String(64 << 20) });
  });

  test("has the template's fields where Berth sets none, and Berth's where both are set", () => {
    const template: V1Pod = {
      metadata: {
        annotations: { team: "agents", "berth.dev/owner": "mallory" },
        labels: { "berth.dev/instance": "other", tier: "low" },
      },
      spec: {
        priorityClassName: "low",
        hostNetwork: true,
        automountServiceAccountToken: true,
        nodeSelector: { disk: "fast" },
        volumes: [{ name: "cache", emptyDir: {} }],
        containers: [
          {
            name: "main",
            image: "evil",
            volumeMounts: [{ name: "cache", mountPath: "/cache" }],
            securityContext: { privileged: true },
          },
          { name: "side", image: "sidecar:1" },
        ],
      },
    };
    const pod = sandboxPod("berth-a", spec, { ...facts, template, nodeSelector: { pool: "sandboxes" } });
    expect(pod.metadata?.annotations).toMatchObject({ team: "agents", "berth.dev/owner": "olga" });
    expect(pod.metadata?.labels).toMatchObject({
      tier: "low",
      "berth.dev/instance": "one",
      "berth.dev/network": "none",
    });
    expect(pod.spec).toMatchObject({
      priorityClassName: "low",
      hostNetwork: false,
      automountServiceAccountToken: false,
      nodeSelector: { disk: "fast", pool: "sandboxes" },
    });
    const [main, side] = pod.spec?.containers ?? [];
    expect(main).toMatchObject({ image: "image:1", securityContext: { privileged: false } });
    expect(main?.volumeMounts?.map(({ mountPath }) => mountPath)).toEqual(["/cache", "/run/berth"]);
    expect(side?.image).toBe("sidecar:1");
  });

  test.each([
    ["the network NONE", { network: "NONE", runtime: "" }, "none", ["127.0.0.1"], "runc"],
    ["the network EGRESS", { network: "EGRESS", runtime: "" }, "egress", ["192.0.2.53"], "runc"],
    ["another runtime", { network: "NONE", runtime: "gvisor" }, "none", ["127.0.0.1"], "gvisor"],
  ] as const)(
    "is isolated, and so is the probe of its image: %s",
    (_, changes, label, nameservers, runtime) => {
      const own = {
        ...facts,
        networkPolicy: "enforced",
        egressDns: ["192.0.2.53"],
        runtimeClass: "runc",
      } as const;
      for (const pod of [
        sandboxPod("berth-a", { ...spec, ...changes }, own),
        probePod("berth-a", "image:1", changes, 1_000, own),
      ]) {
        expect(pod.metadata?.labels).toMatchObject({
          "berth.dev/instance": "one",
          "berth.dev/network": label,
        });
        expect(pod.spec).toMatchObject({
          ...{ dnsPolicy: "None", dnsConfig: { nameservers }, runtimeClassName: runtime },
        });
      }
    },
  );

  test("of a probe ends even if the service never comes back, unlike a sandbox's", () => {
    const probe = probePod("berth-a", "image:1", spec, 90_000, facts);
    expect(probe.spec?.activeDeadlineSeconds).toBe(90);
    // Sandboxes have no deadline of Kubernetes' own.
    expect(sandboxPod("berth-a", spec, facts).spec?.activeDeadlineSeconds).toBeUndefined();
  });

  test("has a unique name, and instances with any name have a label", () => {
    const names = Array.from({ length: 1000 }, newPodName);
    expect(new Set(names).size).toBe(1000);
    for (const name of names) expect(name).toMatch(/^berth-[a-z0-9]{16}$/);
    expect(instanceLabel("prod-1")).toBe("prod-1");
    for (const odd of ["ends-", "a".repeat(64), "ends."])
      expect(instanceLabel(odd)).toMatch(/^[0-9a-f]{32}$/);
  });
});

describe("the end of a pod", () => {
  const ended = (terminated: object, status: object = {}): V1Pod => ({
    metadata: { name: "a", uid: "u" },
    status: { ...status, containerStatuses: [{ name: "main", state: { terminated } } as never] },
  });

  test.each([
    [
      "its main process's code",
      ended({ exitCode: 143, reason: "Error" }),
      { exitCode: 143, outOfMemory: false },
    ],
    [
      "who deletes it, not the code that this gives its main process",
      {
        ...ended({ exitCode: 143, reason: "Error" }),
        metadata: { name: "a", uid: "u", deletionTimestamp: new Date(0) },
      },
      { exitCode: 143, outOfMemory: false, cause: "its pod was deleted" },
    ],
    ["memory", ended({ exitCode: 137, reason: "OOMKilled" }), { exitCode: 137, outOfMemory: true }],
    [
      "an eviction",
      { status: { phase: "Failed", reason: "Evicted", message: "The node was low on resource: memory." } },
      { exitCode: 137, outOfMemory: false, cause: "Evicted: The node was low on resource: memory." },
    ],
    [
      "a deadline",
      ended(
        { exitCode: 137, reason: "Error" },
        { phase: "Failed", reason: "DeadlineExceeded", message: "too long" },
      ),
      { exitCode: 137, outOfMemory: false, cause: "DeadlineExceeded: too long" },
    ],
    ["nothing while it runs", { status: { phase: "Running" } }, undefined],
  ])("recognizes %s", (_, pod, end) => {
    expect(endOf(pod as V1Pod)).toEqual(end);
  });
});

describe("the end of an exec", () => {
  test("has an exit code only if Kubernetes reports one", () => {
    const failed = {
      status: "Failure",
      reason: "NonZeroExitCode",
      details: { causes: [{ reason: "ExitCode", message: "42" }] },
    };
    expect(exitCodeIn(failed)).toBe(42);
    // A dying kubelet ends its streams like this.
    expect(exitCodeIn({ status: "Success" })).toBeUndefined();
    expect(exitCodeIn({ status: "Failure", reason: "InternalError", message: "x" })).toBeUndefined();
    expect(exitCodeIn(undefined)).toBeUndefined();
  });
});

test.each([
  ["2", 2],
  ["1500m", 1.5],
  ["512Mi", 512 << 20],
  ["16Gi", 16 * 2 ** 30],
  ["4k", 4000],
  ["", 0],
  ["many", 0],
])("the quantity %j is %d", (text, value) => {
  expect(parseQuantity(text)).toBe(value);
});
