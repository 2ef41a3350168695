import type { V1NetworkPolicy, V1Node } from "@kubernetes/client-node";
import { expect, onTestFinished, test, vi } from "vitest";
import { type Logger, SILENT } from "../../../../src/base/logger.ts";
import type { Api } from "../../../../src/engine/kubernetes/api.ts";
import { PolicyKeeper } from "../../../../src/engine/kubernetes/network/keeper.ts";
import { labelsOfNone } from "../../../../src/engine/kubernetes/pod.ts";

/** An API server that has policies and nodes. */
class Cluster {
  readonly policies = new Map<string, V1NetworkPolicy>();
  nodes: readonly string[] = ["192.0.2.1"];

  readonly api = {
    server: "https://192.0.2.100:6443",
    path: (rest: string) => rest,
    call: async (
      method: string,
      _path: string,
      _doing: string,
      { body }: { body?: V1NetworkPolicy } = {},
    ) => {
      if (body !== undefined) this.policies.set(body.metadata?.name ?? "", structuredClone(body));
      return method === "GET" ? { items: [...this.policies.values()] } : body;
    },
    list: async <T>(_path: string, _doing: string, pick: (node: V1Node) => T) => ({
      items: this.nodes.map((address) =>
        pick({ status: { addresses: [{ type: "InternalIP", address }] } } as V1Node),
      ),
    }),
  } as unknown as Api;

  get egress(): V1NetworkPolicy | undefined {
    return [...this.policies.values()].find(({ metadata }) => metadata?.name?.endsWith("-egress"));
  }
}

test("policies that follow the cluster's nodes were changed by nobody else", async () => {
  vi.useFakeTimers({ toFake: ["performance"] });
  onTestFinished(() => void vi.useRealTimers());
  const cluster = new Cluster();
  const warn = vi.fn<Logger["warn"]>();
  const logger = { warn } as unknown as Logger;
  const keeper = new PolicyKeeper({ api: cluster.api, instance: "one", options: {}, labels: [], logger });
  await keeper.ensure();
  cluster.nodes = ["192.0.2.1", "93.184.215.14"];
  vi.advanceTimersByTime(60_000);
  await keeper.ensure();
  expect(JSON.stringify(cluster.egress)).toContain("93.184.215.14/32");
  expect(warn).not.toHaveBeenCalled();

  const { metadata } = cluster.egress ?? {};
  cluster.policies.set(metadata?.name ?? "", { metadata, spec: { podSelector: {}, egress: [{}] } });
  vi.advanceTimersByTime(1_000);
  await keeper.ensure();
  expect(JSON.stringify(cluster.egress)).toContain("93.184.215.14/32");
  expect(warn.mock.calls).toMatchObject([[{ policy: metadata?.name, was: "changed" }, expect.anything()]]);
});

test("an API server whose name cannot be looked up is reported as such", async () => {
  // A label is too long, so no resolver is asked.
  const api = { ...new Cluster().api, server: `https://${"x".repeat(64)}.example:6443` } as unknown as Api;
  const keeper = new PolicyKeeper({ api, instance: "one", options: {}, labels: [], logger: SILENT });
  await expect(keeper.ensure()).rejects.toMatchObject({
    reason: "ENGINE_UNAVAILABLE",
    message: expect.stringContaining("Check the address in the kubeconfig"),
  });
});

test("a policy of others that opens only the pods which look at images is found", async () => {
  const cluster = new Cluster();
  const labels = labelsOfNone({ instance: "one", user: "", isolation: "CONTAINER" });
  const keeper = new PolicyKeeper({
    ...{ api: cluster.api, instance: "one", options: {} },
    labels,
    logger: SILENT,
  });
  const notSandboxes = { key: "berth.dev/role", operator: "NotIn", values: ["sandbox"] };
  const spec = { podSelector: { matchExpressions: [notSandboxes] }, egress: [{}] };
  cluster.policies.set("others", { metadata: { name: "others" }, spec });
  expect(await keeper.ensure()).toEqual({ openedBy: ["others"] });
});
