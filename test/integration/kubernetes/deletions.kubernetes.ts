import { afterAll, beforeEach, describe, expect, test } from "vitest";
import { ApiProxy, type ApiRequest } from "../../support/api-proxy.ts";
import { eventually } from "../../support/eventually.ts";
import { kubectl, NAMESPACE } from "../../support/kubernetes.ts";
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
