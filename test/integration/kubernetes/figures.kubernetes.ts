import { describe, expect, test } from "vitest";
import { Api } from "../../../src/engine/kubernetes/api.ts";
import { ExecSocket } from "../../../src/engine/kubernetes/exec-socket.ts";
import { useApp } from "../../support/app.ts";
import { eventually } from "../../support/eventually.ts";
import { berthKubeconfig, kubectl, NAMESPACE, podOf } from "../../support/kubernetes.ts";
import { percentile } from "../../support/percentile.ts";

const service = useApp({ engine: "kubernetes", kubeconfig: berthKubeconfig() });

async function timed(act: () => Promise<unknown>): Promise<number> {
  const began = performance.now();
  await act();
  return performance.now() - began;
}

/** What Kubernetes itself takes to run a command. */
async function rawExec(api: Api, pod: string): Promise<void> {
  const closed = Promise.withResolvers<unknown>();
  const streams = { stdin: false, tty: false };
  await ExecSocket.open(api, pod, ["true"], streams, { data() {}, close: closed.resolve });
  await closed.promise;
}

describe("what the engine kubernetes takes, in turn with Kubernetes itself", () => {
  test("a command takes a small part of an exec of the API", async () => {
    const { client } = service;
    const { sandbox_id: id } = await client.createSandbox({});
    const api = await Api.open({ kubeconfig: berthKubeconfig() });
    const { name: pod } = await podOf(id);
    for (let i = 0; i < 100; i++) await client.run(id, ["true"]);
    const lane: number[] = [];
    const raw: number[] = [];
    for (let i = 0; i < 40; i++) {
      raw.push(await timed(() => rawExec(api, pod)));
      for (let j = 0; j < 5; j++) lane.push(await timed(() => client.run(id, ["true"])));
    }
    const [berth, kubernetes] = [percentile(lane, 0.5), percentile(raw, 0.5)];
    console.info(`exec of true, p50: ${berth.toFixed(1)} ms; by the API: ${kubernetes.toFixed(1)} ms`);
    // About 10 where two cores carry the cluster, the service and this test.
    expect(kubernetes / berth).toBeGreaterThan(6);
    await client.deleteSandbox(id);
  });

  test("a sandbox takes at most a tenth more than a bare pod that is ready", async () => {
    const { client } = service;
    const cold: number[] = [];
    const bare: number[] = [];
    // The image's user is known from the first on.
    await client.deleteSandbox((await client.createSandbox({})).sandbox_id);
    for (let i = 0; i < 8; i++) {
      let id = "";
      cold.push(await timed(async () => ({ sandbox_id: id } = await client.createSandbox({}))));
      await client.deleteSandbox(id);
      const name = `bare-${process.pid}-${i}`;
      bare.push(await timed(() => barePod(name)));
      await kubectl(["delete", "pod", name, `--namespace=${NAMESPACE}`, "--grace-period=1"]);
    }
    const [berth, kubernetes] = [percentile(cold, 0.5), percentile(bare, 0.5)];
    console.info(`create, p50: ${berth.toFixed(0)} ms; a bare pod: ${kubernetes.toFixed(0)} ms`);
    expect(berth / kubernetes).toBeLessThan(1.1);
  });
});

/** Creates a pod by the API, and waits until it is ready. */
async function barePod(name: string): Promise<void> {
  const api = await Api.open({ kubeconfig: berthKubeconfig() });
  const command = ["/bin/sh", "-c", "while :; do sleep 3600; done"];
  const containers = [{ name: "main", image: "berth/test:latest", imagePullPolicy: "Never", command }];
  const spec = { restartPolicy: "Never", terminationGracePeriodSeconds: 0, containers };
  const body = { apiVersion: "v1", kind: "Pod", metadata: { name }, spec };
  await api.call("POST", api.path("pods"), "creating a bare pod", { body });
  await eventually(
    async () => {
      type Conditions = { status?: { conditions?: { type: string; status: string }[] } };
      const pod = await api.call<Conditions>("GET", api.path(`pods/${name}`), "reading a bare pod");
      return pod.status?.conditions?.some(({ type, status }) => type === "Ready" && status === "True");
    },
    { timeoutMs: 60_000 },
  );
}
