import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { diagnoseKubernetes } from "../../../src/engine/kubernetes/diagnose.ts";
import { startTestApp, useApp } from "../../support/app.ts";
import { eventually } from "../../support/eventually.ts";
import { TEST_IMAGE } from "../../support/images.ts";
import { berthKubeconfig, kubectl } from "../../support/kubernetes.ts";
import { makeNamespace, removeNamespace } from "../../support/kubernetes-namespace.ts";
import { silent } from "../engine/docker/support.ts";

const NAMESPACE = `waiting-${process.pid}`;
const OPEN = `waiting-open-${process.pid}`;
const STRICT = `waiting-strict-${process.pid}`;

beforeAll(async () => {
  await makeNamespace(NAMESPACE);
  await makeNamespace(OPEN, "privileged");
  await makeNamespace(STRICT, "restricted");
});
afterAll(async () => {
  for (const name of [NAMESPACE, OPEN, STRICT]) await removeNamespace(name);
});

describe("sandboxes that no node accepts", () => {
  const app = useApp({ engine: "kubernetes", namespace: NAMESPACE, nodeSelector: { nowhere: "yes" } });

  test("are listed with the scheduler's message and counted, until nobody waits any more", async () => {
    const abort = new AbortController();
    const creating = app.client
      .call(
        "SandboxService/CreateSandbox",
        { sandbox_id: "late", spec: { user: "nobody" } },
        { signal: abort.signal },
      )
      .catch(() => undefined);
    const stats = await eventually(
      async () => {
        const found = await app.client.call("SandboxService/GetStats", {});
        return found.waiting?.some(({ reason }) => reason === "WAIT_REASON_UNSCHEDULABLE") && found;
      },
      { timeoutMs: 30_000 },
    );
    const [first] = stats.waiting ?? [];
    expect(stats.waiting_sandboxes).toBe(1);
    expect(first?.message).toContain("didn't match Pod's node affinity/selector");
    expect(first?.message.length).toBeLessThanOrEqual(500);
    const metrics = await (await fetch(`http://${app.app.address}/metrics`)).text();
    expect(metrics).toMatch(/^berth_engine_waiting\{reason="unschedulable"\} 1$/m);
    expect(metrics).toMatch(/^berth_engine_waiting\{reason="image"\} 0$/m);
    // The check of the image comes first.
    expect(first).toMatchObject({ sandbox_id: "", image: TEST_IMAGE });
    abort.abort();
    await creating;
    await eventually(
      async () => (await app.client.call("SandboxService/GetStats", {})).waiting_sandboxes === 0,
      { timeoutMs: 30_000 },
    );
  });
});

describe("a sandbox that is too large for every node", () => {
  const app = useApp({ engine: "kubernetes", namespace: NAMESPACE });

  test("is listed by its id", async () => {
    const { sandbox_id: known } = await app.client.createSandbox();
    await app.client.deleteSandbox(known);
    const abort = new AbortController();
    const spec = { resources: { memory_bytes: 2 ** 42 } };
    const creating = app.client
      .call("SandboxService/CreateSandbox", { sandbox_id: "late", spec }, { signal: abort.signal })
      .catch((error: Error) => error);
    const stats = await eventually(
      async () => {
        const found = await app.client.call("SandboxService/GetStats", {});
        return found.waiting?.some(({ reason }) => reason === "WAIT_REASON_UNSCHEDULABLE") && found;
      },
      { timeoutMs: 30_000 },
    );
    expect(stats.waiting?.[0]).toMatchObject({ sandbox_id: "late", image: TEST_IMAGE });
    expect(stats.waiting?.[0]?.message).toContain("Insufficient memory");
    abort.abort();
    await creating;
  });
});

describe("a service whose network policies are not enforced", () => {
  test("says so in its health, and its sandboxes say that they are open", async () => {
    const app = await startTestApp({ engine: "kubernetes", namespace: NAMESPACE, networkPolicy: "enforced" });
    onTestFinished(() => app.stop());
    const ready = await eventually(
      async () => {
        const answer = await fetch(`http://${app.app.address}/readyz`);
        const text = await answer.text();
        return text.includes("NONE are refused") && { status: answer.status, text };
      },
      { timeoutMs: 100_000 },
    );
    expect(ready.status).toBe(200);
    expect(ready.text).toContain("the cluster does not enforce its network policy");
  });
});

describe("berth doctor", () => {
  const diagnose = (namespace: string, options: object = {}) =>
    diagnoseKubernetes(
      { instance: "doctor", logger: silent, kubeconfig: berthKubeconfig(), namespace, ...options },
      TEST_IMAGE,
    );

  test("shows what the test of the network reached, and leaves nothing", async () => {
    const findings = await diagnose(NAMESPACE, { networkPolicy: "enforced" });
    expect(findings.find(({ subject }) => subject === "network NONE")).toMatchObject({
      status: "missing",
      found: expect.stringContaining("it reached the API server"),
      fix: expect.stringContaining("get networkpolicies"),
    });
    expect(findings.find(({ subject }) => subject === "network EGRESS")?.status).toBe("limited");
    expect(findings.find(({ subject }) => subject === "pod security")).toMatchObject({ status: "ok" });
    const left = ["get", "pods,networkpolicies", `--namespace=${NAMESPACE}`, "--output=name"];
    await eventually(async () => !(await kubectl([...left, "--selector=berth.dev/role=network-probe"])));
    const policies = JSON.parse(
      await kubectl(["get", "networkpolicies", `--namespace=${NAMESPACE}`, "--output=json"]),
    ) as { items: { metadata: { labels: Record<string, string> } }[] };
    expect(
      policies.items.filter(({ metadata }) => metadata.labels["berth.dev/instance"]?.startsWith("doctor-")),
    ).toEqual([]);
  });

  test("names a PodSecurity level that refuses sandboxes, and one that refuses nothing", async () => {
    const of = async (namespace: string) =>
      (await diagnose(namespace, { networkPolicy: "open" })).find(
        ({ subject }) => subject === "pod security",
      );
    expect(await of(STRICT)).toMatchObject({
      status: "missing",
      found: expect.stringContaining('violates PodSecurity "restricted'),
      fix: `kubectl label namespace ${STRICT} pod-security.kubernetes.io/enforce=baseline --overwrite`,
    });
    expect(await of(OPEN)).toMatchObject({
      status: "limited",
      found: expect.stringContaining("takes privileged pods"),
      fix: expect.stringContaining("enforce=baseline"),
    });
  });
});
