import type { V1Pod } from "@kubernetes/client-node";
import { describe, expect, onTestFinished, test } from "vitest";
import { forEachConcurrently } from "../../../src/base/async.ts";
import { newId } from "../../../src/base/ids.ts";
import { Api } from "../../../src/engine/kubernetes/api.ts";
import { newPodName, refOf } from "../../../src/engine/kubernetes/pod.ts";
import { Store } from "../../../src/store.ts";
import { useApp } from "../../support/app.ts";
import { Client } from "../../support/client.ts";
import { eventually } from "../../support/eventually.ts";
import { adminKubeconfig, berthKubeconfig, kubectl, NAMESPACE, podOf } from "../../support/kubernetes.ts";
import { memoryOf } from "../../support/memory.ts";
import { ServeProcess } from "../../support/program.ts";
import { rawExec } from "../engine/kubernetes/support.ts";

const MIB = 2 ** 20;

const PODS = 5_000;
/** How many of them end while the service watches. */
const ENDED = PODS / 5;
const AT_ONCE = 16;
/** A node without a kubelet: the test writes the states of its pods. */
const NODE = `paper-${process.pid}`;
const OPTIONS = [
  ...["--engine", "kubernetes", "--network-policy", "open", "--kubeconfig", berthKubeconfig()],
  ...["--max-sandboxes", String(PODS + 1), "--leave-sandboxes", "--idle-timeout", "10h"],
];

test(`one service finds ${PODS} sandboxes again, and notices their ends`, async () => {
  const admin = await Api.open({ kubeconfig: adminKubeconfig(), namespace: NAMESPACE });
  const node = { apiVersion: "v1", kind: "Node", metadata: { name: NODE }, spec: { unschedulable: true } };
  await admin.call("POST", "api/v1/nodes", "creating a node", { body: node });
  let service = await ServeProcess.start(OPTIONS);
  const { instance } = service;
  // Before the next test, which lists pods.
  onTestFinished(async () => {
    await service.dispose();
    const query = new URLSearchParams({
      ...{ labelSelector: `berth.dev/instance=${instance}`, gracePeriodSeconds: "0" },
    });
    await admin.call("DELETE", `${admin.path("pods")}?${query}`, "deleting pods", { timeoutMs: 240_000 });
    await kubectl(["delete", "node", NODE, "--ignore-not-found"]);
  }, 300_000);
  const client = new Client(service.address);
  const { sandbox_id: id } = await client.createSandbox({});
  const { name } = await podOf(id);
  const real = await admin.call<V1Pod>("GET", admin.path(`pods/${name}`), "reading a pod");
  client.close();
  await service.stop();

  // Copies of the real pod, for which the test writes what a kubelet would.
  let began = performance.now();
  const copies: V1Pod[] = [];
  await forEachConcurrently(
    Array.from({ length: PODS }),
    async () => {
      copies.push(await copyOf(real, admin));
    },
    AT_ONCE,
  );
  const copied = PODS / seconds(began);
  const store = Store.open(service.dataDir);
  try {
    const [first] = store.sandboxes.load();
    if (first?.phase.state !== "RUNNING") throw new Error("the service kept no sandbox");
    const { engine } = first.phase;
    store.transaction(() => {
      for (const [i, pod] of copies.entries()) {
        const sandboxId = sandboxIdOf(pod);
        const phase = { state: "RUNNING" as const, engine: { ...engine, ref: refOf(pod), sandboxId } };
        store.sandboxes.put({ ...first, spec: first.spec(), sandboxId, place: first.place + 1 + i, phase });
      }
    });
  } finally {
    store.close();
  }

  began = performance.now();
  service = await service.again(OPTIONS);
  const startSeconds = seconds(began);
  const again = new Client(service.address);
  const live = async (): Promise<number> =>
    Number((await again.call("SandboxService/GetStats")).total_sandboxes);
  expect(await live()).toBe(PODS + 1);
  expect(await again.output(id, "echo here")).toBe("here\n");
  const memory = (await memoryOf(service.pid)) / MIB;

  const doomed = copies.slice(0, ENDED);
  began = performance.now();
  const ending = forEachConcurrently(doomed, (pod) => end(pod, admin), AT_ONCE);
  // However slow the machine is, more of them end.
  for (let left = await live(); left > PODS + 1 - ENDED; )
    left = await eventually(async () => {
      const now = await live();
      return now < left && now;
    });
  expect(await live()).toBe(PODS + 1 - ENDED);
  const ends = ENDED / seconds(began);
  await ending;
  // The cluster's own sandboxes still work.
  expect(await again.output(id, "echo here")).toBe("here\n");
  const sample = doomed[0];
  if (sample === undefined) throw new Error("none has ended");
  expect(await again.getSandbox(sandboxIdOf(sample))).toMatchObject({
    state: "SANDBOX_STATE_TERMINATED",
    termination: { message: expect.stringContaining("Evicted") },
  });
  await again.deleteSandbox(id);
  again.close();
  console.info(
    `${PODS} pods: written at ${copied.toFixed(0)} a second; Berth listens after ${startSeconds.toFixed(1)} s with ${memory.toFixed(0)} MiB; ${ends.toFixed(0)} ends a second, with their removal`,
  );
}, 900_000);

describe("the traffic of the API server", () => {
  const app = useApp({ engine: "kubernetes", kubeconfig: berthKubeconfig() });

  test.each([1, 8, 32])("%i commands at once, through Berth and through the API", async (atOnce) => {
    const { client } = app;
    const { sandbox_id: id } = await client.createSandbox({});
    const api = await Api.open({ kubeconfig: berthKubeconfig() });
    const { name } = await podOf(id);
    const berth = await rate(atOnce, 30 * atOnce, async () => void (await client.run(id, ["true"])));
    const raw = await rate(atOnce, Math.min(24, 3 * atOnce), () => rawExec(api, name));
    console.info(
      `${atOnce} at once: ${berth.toFixed(0)} commands a second by Berth, ${raw.toFixed(1)} by the API`,
    );
    expect(berth).toBeGreaterThan(raw);
    await client.deleteSandbox(id);
  });
});

/** How many per second, with `atOnce` at the same time. */
async function rate(atOnce: number, count: number, act: () => Promise<void>): Promise<number> {
  await act();
  const began = performance.now();
  await forEachConcurrently(Array.from({ length: count }), act, atOnce);
  return count / seconds(began);
}

function seconds(began: number): number {
  return (performance.now() - began) / 1000;
}

function sandboxIdOf(pod: V1Pod): string {
  return pod.metadata?.annotations?.["berth.dev/sandbox-id"] ?? "";
}

/** A copy of a pod with its own sandbox id, which runs as far as anyone can tell. */
async function copyOf({ metadata, spec, status }: V1Pod, api: Api): Promise<V1Pod> {
  const name = newPodName();
  const body = {
    ...{ apiVersion: "v1", kind: "Pod" },
    metadata: {
      ...{ name, labels: metadata?.labels },
      annotations: { ...metadata?.annotations, "berth.dev/sandbox-id": newId("sbx") },
    },
    spec: { ...spec, nodeName: NODE },
  };
  await api.call("POST", api.path("pods"), "creating a pod", { body });
  return api.call<V1Pod>("PATCH", api.path(`pods/${name}/status`), "writing a pod's status", {
    body: { status },
    contentType: "application/merge-patch+json",
  });
}

/** Ends a pod of {@link copyOf} like a node that is short of memory. */
async function end({ metadata }: V1Pod, api: Api): Promise<void> {
  const status = { phase: "Failed", reason: "Evicted", message: "The node was low on resource: memory." };
  await api.call("PATCH", api.path(`pods/${metadata?.name}/status`), "writing a pod's status", {
    body: { status: { ...status, containerStatuses: null } },
    contentType: "application/merge-patch+json",
  });
}
