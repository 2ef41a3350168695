import { describe, expect, test } from "vitest";
import { Api } from "../../../src/engine/kubernetes/api.ts";
import { useApp } from "../../support/app.ts";
import { eventually } from "../../support/eventually.ts";
import { TEST_IMAGE } from "../../support/images.ts";
import { berthKubeconfig, kubectl, NAMESPACE, podOf } from "../../support/kubernetes.ts";
import { percentile, timed } from "../../support/measure.ts";
import { rawExec } from "../engine/kubernetes/support.ts";

const service = useApp({ engine: "kubernetes", kubeconfig: berthKubeconfig() });

/**
 * What something takes by itself, from the times of many rounds. Load only adds to a time, and adds most to what hands
 * over between processes often, so the middle of the times of a busy machine compares loads instead.
 */
function ownTime(times: readonly number[]): number {
  return percentile(times, 0.1);
}

describe("times on the engine kubernetes, measured alternately with Kubernetes itself", () => {
  test("a command takes a fraction of the time of an exec of the API", async () => {
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
    const ofBoth = (one: (times: readonly number[]) => number): string =>
      `${one(lane).toFixed(1)} ms; by the API ${one(raw).toFixed(1)} ms`;
    console.info(`exec of true: ${ofBoth(ownTime)}; p50 ${ofBoth((times) => percentile(times, 0.5))}`);
    // About 10 if two cores carry the cluster, the service and this test.
    expect(ownTime(raw) / ownTime(lane)).toBeGreaterThan(7);
    await client.deleteSandbox(id);
  });

  test("a sandbox takes at most a tenth longer than a bare pod until it is ready", async () => {
    const { client } = service;
    const cold: number[] = [];
    const bare: number[] = [];
    // After the first sandbox, the image's user is known.
    await client.deleteSandbox((await client.createSandbox({})).sandbox_id);
    for (let i = 0; i < 8; i++) {
      let id = "";
      cold.push(await timed(async () => ({ sandbox_id: id } = await client.createSandbox({}))));
      await client.deleteSandbox(id);
      const name = `bare-${process.pid}-${i}`;
      bare.push(await timed(() => barePod(name)));
      await kubectl(["delete", "pod", name, `--namespace=${NAMESPACE}`, "--grace-period=1"]);
    }
    const [berth, kubernetes] = [ownTime(cold), ownTime(bare)];
    console.info(`create: ${berth.toFixed(0)} ms; a bare pod: ${kubernetes.toFixed(0)} ms`);
    expect(berth / kubernetes).toBeLessThan(1.1);
  });
});

describe("the warm pool", () => {
  const warm = useApp({
    ...{ engine: "kubernetes", kubeconfig: berthKubeconfig() },
    warmPools: [{ image: TEST_IMAGE, count: 3 }],
  });

  test("makes a create and its first command as fast as a claim, and leaves nothing", async () => {
    const { client } = warm;
    const ready = async (): Promise<number> =>
      (await client.call("SandboxService/GetStats")).warm_pools[0]?.ready ?? 0;
    const creates: number[] = [];
    const commands: number[] = [];
    const later: number[] = [];
    for (let i = 0; i < 8; i++) {
      await eventually(async () => (await ready()) === 3, { timeoutMs: 60_000 });
      let id = "";
      creates.push(await timed(async () => ({ sandbox_id: id } = await client.createSandbox({}))));
      commands.push(await timed(() => client.run(id, ["true"])));
      for (let j = 0; j < 5; j++) later.push(await timed(() => client.run(id, ["true"])));
      await client.deleteSandbox(id);
    }
    const [create, first, next] = [creates, commands, later].map((times) => percentile(times, 0.5));
    console.info(
      `create from the pool, p50: ${create?.toFixed(1)} ms, its first command ${first?.toFixed(1)}, later ones ${next?.toFixed(1)}`,
    );
    expect(create).toBeLessThan(50);
    expect(first).toBeLessThan(3 * (next ?? 0));
  });
});

test("a hundred sandboxes run on the one node", async () => {
  const { client } = service;
  const began = performance.now();
  const made = await Promise.allSettled(
    Array.from({ length: 100 }, () =>
      client.createSandbox({ resources: { memory_bytes: 64 << 20, cpu_millis: 100 } }),
    ),
  );
  const ids = made.flatMap((one) => (one.status === "fulfilled" ? [one.value.sandbox_id] : []));
  const seconds = (performance.now() - began) / 1000;
  const failures = made.flatMap((one) => (one.status === "rejected" ? [String(one.reason)] : []));
  expect(failures).toEqual([]);
  const numbers = await Promise.all(ids.map((id, i) => client.output(id, `echo ${i}`)));
  expect(numbers).toEqual(ids.map((_, i) => `${i}\n`));
  console.info(`100 sandboxes: made in ${seconds.toFixed(1)} s`);
  await Promise.all(ids.map((id) => client.deleteSandbox(id)));
}, 600_000);

/** Creates a pod through the API, and waits until it is ready. */
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
