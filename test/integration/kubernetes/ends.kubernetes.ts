import { writeFileSync } from "node:fs";
import path from "node:path";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { parseRef } from "../../../src/engine/kubernetes/pod.ts";
import type { EngineEvent } from "../../../src/engine/port.ts";
import { useApp } from "../../support/app.ts";
import { failureOf } from "../../support/client.ts";
import { eventually } from "../../support/eventually.ts";
import { TEST_IMAGE } from "../../support/images.ts";
import { kubectl, NAMESPACE, podOf } from "../../support/kubernetes.ts";
import { newDataDir } from "../../support/settings.ts";
import type { Sandbox } from "../../support/wire.ts";
import { Worker } from "../../support/worker.ts";
import { failure, spec } from "../engine/docker/support.ts";
import { openEngine } from "../engine/kubernetes/support.ts";

const WITHIN = { timeoutMs: 120_000 };
const MIB = 2 ** 20;
/** Of disk, because a pod's own directory in memory does not end the pod. */
const SCRATCH_BYTES = 2 * MIB;

const podTemplate = path.join(newDataDir(), "template.yaml");
writeFileSync(
  podTemplate,
  `
kind: Pod
spec:
  containers: [{name: main, volumeMounts: [{name: scratch, mountPath: /scratch}]}]
  volumes: [{name: scratch, emptyDir: {sizeLimit: ${SCRATCH_BYTES}}}]
`,
);

describe("a sandbox that Kubernetes ends", () => {
  const app = useApp({ engine: "kubernetes", podTemplate });

  const ended = (id: string): Promise<Sandbox> =>
    eventually(async () => {
      const sandbox = await app.client.getSandbox(id);
      return sandbox.state === "SANDBOX_STATE_TERMINATED" ? sandbox : undefined;
    }, WITHIN);

  test("together with its node reports that, with the node's name, to its commands and sessions, and is gone", async () => {
    const { client } = app;
    const { sandbox_id: id } = await client.createSandbox();
    const worker = new Worker(client, "lost");
    expect((await worker.create("bash", undefined, { sandbox_id: id })).failure).toBeNull();
    const call = failureOf(worker.bash("echo >/tmp/started; sleep 600"));
    const streaming = client.exec(id, "echo started; sleep 600");
    await streaming.until("started");
    expect(await client.output(id, "until [ -e /tmp/started ]; do sleep 0.05; done; echo started")).toBe(
      "started\n",
    );

    const { name } = await podOf(id);
    // As the collector of pods does when a node is gone.
    await lose(name);

    expect(await ended(id)).toMatchObject({
      termination: { cause: "TERMINATION_CAUSE_ENGINE_LOST", message: "Its node node was lost." },
    });
    expect((await streaming.result).exit).toMatchObject({
      cause: "EXIT_CAUSE_SANDBOX_TERMINATED",
      message: expect.stringContaining("node node was lost"),
    });
    expect(await call).toMatchObject({
      code: "ABORTED",
      reason: "SANDBOX_TERMINATED",
      message: expect.stringContaining("node node was lost"),
      metadata: { cause: "ENGINE_LOST", node: "node" },
    });
    expect((await failureOf(client.run(id, "true"))).message).toContain("node node was lost");
    await expect(podOf(id)).rejects.toThrow("no pod");
  });

  test("because an operator evicts it, as before a node's maintenance, reports that", async () => {
    const { sandbox_id: id } = await app.client.createSandbox();
    const exec = app.client.exec(id, "echo started; sleep 600");
    await exec.until("started");
    const { name } = await podOf(id);
    const eviction = { apiVersion: "policy/v1", kind: "Eviction", metadata: { name, namespace: NAMESPACE } };
    const path = `/api/v1/namespaces/${NAMESPACE}/pods/${name}/eviction`;
    await kubectl(["create", "--raw", path, "--filename=-"], { input: JSON.stringify(eviction) });
    const message = expect.stringContaining("evicted by an operator from the node node");
    const cause = "TERMINATION_CAUSE_REMOVED_EXTERNALLY";
    expect((await ended(id)).termination).toMatchObject({ cause, message });
    expect((await exec.result).exit).toMatchObject({ cause: "EXIT_CAUSE_SANDBOX_TERMINATED", message });
  });

  test("for its disk reports which limit, to its commands too", async () => {
    const { sandbox_id: id } = await app.client.createSandbox();
    const exec = app.client.exec(id, `head -c ${4 * SCRATCH_BYTES} /dev/zero >/scratch/x; sleep 600`);
    const message = expect.stringMatching(/evict.*scratch.*limit "2097152"/i);
    expect(await ended(id)).toMatchObject({ termination: { cause: "TERMINATION_CAUSE_EXITED", message } });
    expect((await exec.result).exit).toMatchObject({ cause: "EXIT_CAUSE_SANDBOX_TERMINATED", message });
  });

  test("because it ran out of memory reports that; a command alone that runs out of memory ends nothing else", async () => {
    const { client } = app;
    const { sandbox_id: id } = await client.createSandbox({ resources: { memory_bytes: 64 * MIB } });
    expect((await client.run(id, ["python3", "-c", "bytearray(1 << 30)"])).exit_status).toMatchObject({
      exit_code: 137,
    });
    expect(await client.output(id, "echo lives")).toBe("lives\n");
    // Memory that no process owns runs out, and the main process is the first that the kernel kills.
    const hog =
      "for pid in $(ls /proc | grep '^[0-9]*$'); do case $(tr '\\0' ' ' <\"/proc/$pid/cmdline\") in *'while read -r x'*) [ $pid = $$ ] || echo 1000 >/proc/$pid/oom_score_adj;; esac; done; head -c 128M /dev/zero >/dev/shm/x; sleep 600";
    const exec = client.exec(id, hog, { user: "root" });
    expect(await ended(id)).toMatchObject({ termination: { cause: "TERMINATION_CAUSE_OUT_OF_MEMORY" } });
    await exec.result;
  });
});

test("at the template's deadline, which works without Berth, reports that", async () => {
  const template = { kind: "Pod", spec: { activeDeadlineSeconds: 4, containers: [] } };
  const { engine } = await openEngine({ template });
  const { ref } = await engine.create(spec());
  const found = await eventually(
    async () => (await engine.list()).find((one) => one.ref === ref && one.state === "ended"),
    WITHIN,
  );
  expect(found.end?.cause).toContain("DeadlineExceeded");
  await engine.remove(ref);
});

describe("a node without a kubelet", async () => {
  const { engine, instance } = await openEngine();
  const abort = new AbortController();
  const events: EngineEvent[] = [];
  const nodes = ["silent", "deleted"].map((kind) => `${kind}-${process.pid}`);
  let collecting: Promise<void> | undefined;

  beforeAll(async () => {
    // Ready once, with a pod that ran: what remains of a node that is cut off.
    for (const name of nodes) {
      await kubectl(["create", "--filename=-"], { input: node(name) });
      await patchStatus("node", name, {
        conditions: [{ ...READY, lastHeartbeatTime: new Date().toISOString() }],
      });
    }
    collecting = (async () => {
      for await (const event of engine.events(abort.signal)) events.push(event);
    })();
    await engine.list();
    for (const name of nodes) {
      await kubectl(["create", `--namespace=${NAMESPACE}`, "--filename=-"], { input: pod(name, instance) });
      const running = {
        state: { running: {} },
        name: "main",
        image: "x",
        imageID: "x",
        restartCount: 0,
        ready: true,
      };
      const conditions = [READY, { ...READY, type: "ContainersReady" }];
      await patchStatus("pod", name, { phase: "Running", conditions, containerStatuses: [running] });
    }
    const [, deleted = ""] = nodes;
    await kubectl(["delete", "node", deleted]);
  });
  afterAll(async () => {
    abort.abort();
    await collecting;
    await kubectl(["delete", "node", "--ignore-not-found", ...nodes]);
    const pods = ["delete", "pod", `--namespace=${NAMESPACE}`, "--ignore-not-found", "--force", ...nodes];
    await kubectl(pods);
  });

  test.each([
    ["silent", "Kubernetes evicts its pods, which nobody ends"],
    ["deleted", "Kubernetes collects its pods"],
  ])(
    "%s: %s, so that its sandboxes end with the node's name, and can be removed",
    async (kind) => {
      const name = `${kind}-${process.pid}`;
      const end = { outOfMemory: false, exitCode: 137, cause: `node ${name} was lost`, lostNode: name };
      const seen = await eventually(() => events.find(({ sandboxId }) => sandboxId === name), {
        timeoutMs: 170_000,
      });
      expect(seen).toMatchObject({ type: "ended", end });
      const began = performance.now();
      await engine.remove(seen.ref);
      expect(performance.now() - began).toBeLessThan(10_000);
      await eventually(() => events.some(({ type, ref }) => type === "removed" && ref === seen.ref));
    },
    200_000,
  );
});

const READY = {
  type: "Ready",
  status: "True",
  reason: "KubeletReady",
  lastTransitionTime: "2026-01-01T00:00:00Z",
};

/** A node that only takes pods bound to it by hand. */
function node(name: string): string {
  const taints = [{ key: "berth.dev/test", effect: "NoSchedule" }];
  return JSON.stringify({
    apiVersion: "v1",
    kind: "Node",
    metadata: { name },
    spec: { unschedulable: true, taints },
  });
}

/** A sandbox's pod on a node. It is soon evicted from a silent node. */
function pod(name: string, instance: string): string {
  const labels = { "berth.dev/instance": instance, "berth.dev/role": "sandbox" };
  const annotations = { "berth.dev/sandbox-id": name };
  const unreachable = { key: "node.kubernetes.io/unreachable", operator: "Exists", effect: "NoExecute" };
  return JSON.stringify({
    apiVersion: "v1",
    kind: "Pod",
    metadata: { name, labels, annotations },
    spec: {
      nodeName: name,
      tolerations: [name.startsWith("deleted") ? unreachable : { ...unreachable, tolerationSeconds: 2 }],
      containers: [{ name: "main", image: "x" }],
    },
  });
}

async function patchStatus(kind: "node" | "pod", name: string, status: object): Promise<void> {
  const patch = JSON.stringify({ status });
  const namespace = kind === "pod" ? [`--namespace=${NAMESPACE}`] : [];
  await kubectl(["patch", kind, name, ...namespace, "--subresource=status", `--patch=${patch}`]);
}

function lose(pod: string): Promise<void> {
  const reason = { reason: "DeletionByPodGC", message: "PodGC: node no longer exists" };
  const condition = { ...READY, ...reason, type: "DisruptionTarget" };
  return patchStatus("pod", pod, { conditions: [condition] });
}

test("a sandbox whose pod is kept by other programs' finalizers says so", async () => {
  const { engine } = await openEngine();
  const { ref } = await engine.create(spec());
  const { name } = parseRef(ref);
  const finalizers = (value: string): Promise<string> => {
    const patch = `--patch={"metadata":{"finalizers":${value}}}`;
    return kubectl(["patch", "pod", name, `--namespace=${NAMESPACE}`, "--type=merge", patch]);
  };
  await finalizers('["example.com/keep"]');
  onTestFinished(async () => {
    await finalizers("null").catch(() => {});
  });
  const { message } = await failure(engine.remove(ref), "ENGINE_UNAVAILABLE");
  expect(message).toContain(`pod ${name} is not gone after 60 s: it has finalizers (example.com/keep)`);
  await finalizers("null");
  await engine.remove(ref);
});

test("the check of an image that no node accepts ends as soon as a sandbox that none accepts", async () => {
  const { engine } = await openEngine({ nodeSelector: { nowhere: "yes" }, startTimeoutMs: 2_000 });
  const looking = engine.ensureImage(TEST_IMAGE, { signal: AbortSignal.timeout(30_000) });
  const { message } = await failure(looking, "SANDBOX_START_FAILED");
  expect(message).toContain("it was not ready within 2 s");
  expect(message).toContain("didn't match Pod's node affinity/selector");
});
