import type { ServerResponse } from "node:http";
import { json } from "node:stream/consumers";
import type { V1Pod } from "@kubernetes/client-node";
import { expect, onTestFinished, test, vi } from "vitest";
import type { Finding } from "../../../../src/base/diagnosis.ts";
import { diagnoseKubernetes, removeLeftovers } from "../../../../src/engine/kubernetes/diagnose.ts";
import { openApi, serveApi, writeKubeconfig } from "../../../support/kubernetes-api.ts";
import { MemoryLog } from "../../../support/memory-log.ts";

async function diagnose(cluster: string, options: { readonly pullTimeoutMs?: number } = {}) {
  const kubeconfig = await writeKubeconfig(cluster);
  const findings = await diagnoseKubernetes(
    { kubeconfig, instance: "doctor", logger: new MemoryLog(), networkPolicy: "open", ...options },
    "image",
  );
  return (subject: string): Finding | undefined => findings.find((finding) => finding.subject === subject);
}

test("an API server that does not answer is reported as that", async () => {
  const late = new AbortController();
  const cluster = await serveApi(() => late.abort());
  vi.spyOn(AbortSignal, "timeout").mockReturnValue(late.signal);
  onTestFinished(() => void vi.restoreAllMocks());
  const finding = await diagnose(cluster);
  expect(finding("cluster")?.found).toContain("The API server did not answer in time");
});

test("a probe pod that does not start in time is reported with the cause, and removed", async () => {
  const pods = new Map<string, V1Pod>();
  const watches = new Set<ServerResponse>();
  const answerOf = async (method: string, url: URL, body: () => Promise<unknown>): Promise<unknown> => {
    if (url.pathname === "/version") return { gitVersion: "v1.34.0" };
    if (url.pathname.endsWith("/selfsubjectaccessreviews")) return { status: { allowed: true } };
    const [, name = ""] = /\/pods\/(.+)$/.exec(url.pathname) ?? [];
    if (method === "DELETE") {
      const pod = pods.get(name);
      pods.delete(name);
      return pod;
    }
    if (method === "GET") {
      if (name !== "") return pods.get(name);
      return { metadata: { resourceVersion: "1" }, items: [] };
    }
    const pod = (await body()) as V1Pod;
    if (!url.search.includes("dryRun")) {
      pods.set(pod.metadata?.name ?? "", pod);
      const waiting = { reason: "ContainerCreating", message: "the node is slow" };
      const status = { phase: "Pending", containerStatuses: [{ name: "main", state: { waiting } }] };
      const event = { type: "ADDED", object: { ...pod, spec: { ...pod.spec, nodeName: "node" }, status } };
      for (const watch of watches) watch.write(`${JSON.stringify(event)}\n`);
    }
    return pod;
  };
  const cluster = await serveApi(async (request, response) => {
    const url = new URL(request.url ?? "", "http://server");
    if (url.searchParams.has("watch")) {
      if (url.pathname.endsWith("/pods")) watches.add(response);
      response.flushHeaders();
      return;
    }
    const answer = await answerOf(request.method ?? "", url, () => json(request));
    response.writeHead(answer === undefined ? 404 : 200).end(JSON.stringify(answer ?? { message: "none" }));
  });
  const finding = await diagnose(cluster, { pullTimeoutMs: 1_000 });
  expect(finding("probe pod")).toMatchObject({
    status: "missing",
    found: "The sandbox did not start: it was not ready within 1 s: ContainerCreating: the node is slow",
  });
  expect(pods.size).toBe(0);
});

test("what a killed doctor left behind is removed, and nothing of a service that is called like one", async () => {
  const policyOf = (instance: string, creationTimestamp: string) => ({
    metadata: { name: `of-${instance}`, labels: { "berth.dev/instance": instance }, creationTimestamp },
  });
  const items = [
    policyOf("doctor-00000001", "2026-01-01T12:00:00Z"),
    policyOf("doctor-00000002", "2026-01-01T11:00:00Z"),
    policyOf("doctor-00000003", "2026-01-01T11:59:00Z"),
    policyOf("doctor-kit", "2026-01-01T11:00:00Z"),
    policyOf("berth", "2026-01-01T11:00:00Z"),
  ];
  const removed: string[] = [];
  const cluster = await serveApi(({ method, url = "" }, response) => {
    if (method === "DELETE") removed.push(url.slice(url.lastIndexOf("/") + 1));
    response.end(JSON.stringify({ items: url.includes("networkpolicies") ? items : [] }));
  });
  await removeLeftovers(await openApi(cluster), "doctor-00000001");
  expect(removed).toEqual(["of-doctor-00000002"]);
});
