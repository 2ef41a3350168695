import { afterAll, beforeEach, describe, expect, test } from "vitest";
import { ApiProxy, type ApiRequest } from "../../support/api-proxy.ts";
import { useApp } from "../../support/app.ts";
import { failureOf } from "../../support/client.ts";
import { eventually } from "../../support/eventually.ts";
import { TEST_IMAGE } from "../../support/images.ts";
import { kubectl, NAMESPACE } from "../../support/kubernetes.ts";
import { RunDriver } from "../../support/run-driver.ts";
import { Worker } from "../../support/worker.ts";
import { WorkspaceClient } from "../../support/workspaces.ts";
import { failure, spec } from "../engine/docker/support.ts";
import { openEngine } from "../engine/kubernetes/support.ts";

const api = await ApiProxy.open();
const { engine, instance } = await openEngine({ kubeconfig: api.kubeconfig });

beforeEach(() => {
  api.fault = () => undefined;
});
afterAll(() => api[Symbol.asyncDispose]());

const isExec = ({ path }: ApiRequest): boolean => path.endsWith("/exec");

const podNames = async (of = instance): Promise<string[]> => {
  const selector = `--selector=berth.dev/instance=${of},berth.dev/role=sandbox`;
  const names = await kubectl(["get", "pods", `--namespace=${NAMESPACE}`, selector, "--output=name"]);
  return names.split("\n").filter((name) => name !== "");
};

const podName = (of?: string): Promise<string> =>
  eventually(async () => (await podNames(of))[0], { timeoutMs: 30_000 });

async function evict(pod: string): Promise<void> {
  const name = pod.replace("pod/", "");
  const body = { apiVersion: "policy/v1", kind: "Eviction", metadata: { name, namespace: NAMESPACE } };
  const path = `/api/v1/namespaces/${NAMESPACE}/pods/${name}/eviction`;
  await kubectl(["create", "--raw", path, "--filename=-"], { input: JSON.stringify(body) });
}

const remove = async (pod: string, ...options: string[]): Promise<void> => {
  await kubectl(["delete", pod, `--namespace=${NAMESPACE}`, ...options]);
};

/** Creates a sandbox, and calls `act` with the pod's name before its set-up. */
async function createBeside(act: (pod: string) => Promise<void>): Promise<Error> {
  let acted: Promise<void> | undefined;
  api.fault = async (request) => {
    if (!isExec(request)) return undefined;
    acted ??= podName().then(act);
    await acted;
    return undefined;
  };
  return failure(engine.create(spec({ user: "nobody" })), "SANDBOX_START_FAILED");
}

describe("a create whose pod", () => {
  test.each<[string, (pod: string) => Promise<void>, RegExp]>([
    ["others delete", (pod) => remove(pod), /its pod was deleted meanwhile/],
    [
      "others delete at once",
      (pod) => remove(pod, "--force", "--grace-period=0"),
      /its pod was deleted meanwhile/,
    ],
    ["an operator evicts", evict, /evicted by an operator from the node node/],
  ])("%s before its set-up fails with that", async (_what, act, words) => {
    const error = await createBeside(act);
    expect(error.message).toMatch(words);
    expect(error.message).not.toContain("/bin/sh");
    await expect.poll(() => podNames()).toEqual([]);
  });

  test.each<[string, (pod: string) => Promise<void>]>([
    ["delete", (pod) => remove(pod)],
    ["evict", evict],
  ])("others %s before a node takes it fails with that", async (_what, act) => {
    const { engine: nowhere, instance: own } = await openEngine({ nodeSelector: { nowhere: "yes" } });
    const failed = failure(nowhere.create(spec({ user: "nobody" })), "SANDBOX_START_FAILED");
    await act(await podName(own));
    expect((await failed).message).toContain("its pod was deleted meanwhile");
  });

  test("others delete as soon as it exists fails with that", async () => {
    // From before a node takes it until it is ready.
    for (let i = 0; i < 8; i++) {
      const failed = engine.create(spec({ user: "nobody" })).then(
        () => undefined,
        (error: Error) => error,
      );
      const pod = await podName();
      await new Promise((resolve) => setTimeout(resolve, i * 150));
      await remove(pod, "--grace-period=1");
      const error = await failed;
      if (error !== undefined)
        expect(error).toMatchObject({
          reason: "SANDBOX_START_FAILED",
          message: expect.stringContaining("its pod was deleted meanwhile"),
        });
      await expect.poll(() => podNames(), { timeout: 20_000 }).toEqual([]);
    }
  });
});

describe("a node that is drained", () => {
  const app = useApp({ engine: "kubernetes", warmPools: [{ image: TEST_IMAGE, count: 1 }] });
  const workspaces = new WorkspaceClient(() => app.client);
  const words = "evicted by an operator from the node node";
  const message = expect.stringContaining(words);

  const warmReady = async (): Promise<boolean> =>
    (await app.client.call("SandboxService/GetStats", {})).warm_pools?.[0]?.ready === 1;

  test("takes its sandboxes with it: each caller gets the reason, workspaces keep their files, the warm pool fills again", async () => {
    const { client } = app;
    await eventually(warmReady, { timeoutMs: 60_000 });
    const { sandbox_id: id } = await client.createSandbox({ user: "nobody" });
    const [busy, idle] = [new Worker(client, "busy"), new Worker(client, "idle")];
    await busy.create("bash", undefined, { sandbox_id: id });
    await idle.create("bash", undefined, { sandbox_id: id });
    await idle.bash("x=1");
    const { sandbox } = await workspaces.ensure("drained");
    await client.output(sandbox?.sandbox_id ?? "", "echo kept >file");
    const run = await RunDriver.start(client, { sandbox_id: id });
    const call = failureOf(busy.bash("echo >/tmp/started; sleep 600"));
    const streaming = client.exec(id, "echo started; sleep 600");
    await streaming.until("started");
    const waiting = client.run(id, "sleep 600");
    const until = "until [ -e /tmp/started ]; do sleep 0.05; done; echo started";
    expect(await client.output(id, until)).toBe("started\n");
    await eventually(warmReady, { timeoutMs: 60_000 });

    // As kubectl drain does.
    const pods = await podNames(app.instance);
    expect(pods).toHaveLength(3);
    await Promise.all(pods.map(evict));

    const exit = { cause: "EXIT_CAUSE_SANDBOX_TERMINATED", message };
    expect((await streaming.result).exit).toMatchObject(exit);
    expect((await waiting).exit_status).toMatchObject(exit);
    expect(await call).toMatchObject({ reason: "SANDBOX_TERMINATED", message });
    expect(await failureOf(idle.bash("echo $x"))).toMatchObject({ reason: "SESSION_LOST", message });
    expect(await run.get()).toMatchObject({ state: "RUN_STATE_ERROR", message });
    const ended = await eventually(
      async () => {
        const found = await client.getSandbox(id);
        return found.state === "SANDBOX_STATE_TERMINATED" && found;
      },
      { timeoutMs: 30_000 },
    );
    expect(ended.termination).toMatchObject({ cause: "TERMINATION_CAUSE_REMOVED_EXTERNALLY", message });
    expect(await failureOf(client.run(id, "true"))).toMatchObject({ message });

    const again = await workspaces.sandbox("drained");
    expect(await client.output(again, "cat file")).toBe("kept\n");
    await eventually(warmReady, { timeoutMs: 60_000 });
    await workspaces.cleanup("drained", { force: true });
  });
});

describe("a warm sandbox whose pod others delete", () => {
  const proxied = useApp({
    ...{ engine: "kubernetes", kubeconfig: api.kubeconfig, warmPools: [{ image: TEST_IMAGE, count: 1 }] },
  });

  const isReady = async (): Promise<boolean> =>
    (await proxied.client.call("SandboxService/GetStats", {})).warm_pools?.[0]?.ready === 1;

  test("while it is claimed is replaced by a new one", async () => {
    const { client } = proxied;
    await eventually(isReady, { timeoutMs: 60_000 });
    const [pod = ""] = await podNames(proxied.instance);
    let deleting: Promise<void> | undefined;
    api.fault = async ({ path }) => {
      if (!path.endsWith("/resize")) return undefined;
      deleting ??= remove(pod, "--force", "--grace-period=0");
      await deleting;
      return undefined;
    };
    // With other limits than the pool's.
    const { sandbox_id: id } = await client.createSandbox({ resources: { cpu_millis: 700 } });
    expect(deleting).toBeDefined();
    expect(await client.output(id, "echo lives")).toBe("lives\n");
    await client.deleteSandbox(id);
  });

  test("while it is claimed, after its limits were changed, is replaced by a new one", async () => {
    const { client } = proxied;
    await eventually(isReady, { timeoutMs: 60_000 });
    const [pod = ""] = await podNames(proxied.instance);
    const { sandbox_id: other } = await client.createSandbox({ user: "nobody" });
    const [last = ""] = (await podNames(proxied.instance)).filter((name) => name !== pod);
    let deleting: Promise<void> | undefined;
    const deleteSeen = async (): Promise<void> => {
      await remove(pod, "--force", "--grace-period=0");
      // Changes arrive in order: once the service has seen this one, it has seen the one before.
      await remove(last, "--force", "--grace-period=0");
      await eventually(async () => (await client.getSandbox(other)).state === "SANDBOX_STATE_TERMINATED", {
        timeoutMs: 30_000,
      });
    };
    api.fault = ({ path }) => {
      if (!path.endsWith("/resize") || deleting !== undefined) return undefined;
      return { before: () => (deleting = deleteSeen()) };
    };
    const { sandbox_id: id } = await client.createSandbox({ resources: { cpu_millis: 700 } });
    expect(deleting).toBeDefined();
    expect(await client.getSandbox(id)).toMatchObject({ state: "SANDBOX_STATE_RUNNING" });
    const ran = await client.run(id, "exit 7").catch((error: unknown) => error);
    expect(ran).toMatchObject({ exit_status: { cause: "EXIT_CAUSE_EXITED", exit_code: 7 } });
    await client.deleteSandbox(id);
  });
});
