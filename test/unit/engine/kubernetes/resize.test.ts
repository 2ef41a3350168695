import { expect, onTestFinished, test } from "vitest";
import { KubernetesEngine } from "../../../../src/engine/kubernetes/engine.ts";
import { serveApi, writeKubeconfig } from "../../../support/kubernetes-api.ts";
import { MemoryLog } from "../../../support/memory-log.ts";

const POD = {
  metadata: { name: "pod", uid: "uid", resourceVersion: "5", labels: { "berth.dev/role": "sandbox" } },
  spec: { containers: [{ name: "main", image: "image" }] },
  status: { phase: "Running" },
};

test.each([
  [
    "smaller memory",
    422,
    'Pod "pod" is invalid: spec.containers[0].resources.limits[memory]: Forbidden: memory limits cannot be decreased',
  ],
  ["no right", 403, 'pods "pod" is forbidden: User "berth" cannot patch resource "pods/resize"'],
])("a change of limits that the API server refuses is UNSUPPORTED: %s", async (_, status, message) => {
  const cluster = await serveApi((request, response) => {
    if (request.method === "PATCH") response.writeHead(status).end(JSON.stringify({ message }));
    else if (request.url?.includes("watch=1")) response.flushHeaders();
    else response.end(JSON.stringify({ metadata: { resourceVersion: "5" }, items: [POD] }));
  });
  const kubeconfig = await writeKubeconfig(cluster);
  const engine = await KubernetesEngine.open({ kubeconfig, instance: "one", logger: new MemoryLog() });
  onTestFinished(() => engine.close());
  const resources = { memoryBytes: 64 << 20, cpuMillis: 500, pidsLimit: 64, diskBytes: undefined };
  const change = engine.setResources("pod.uid", resources);
  await expect(change).rejects.toMatchObject({
    reason: "UNSUPPORTED",
    message: expect.stringContaining(message),
  });
});
