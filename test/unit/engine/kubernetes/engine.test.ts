import { spawnSync } from "node:child_process";
import type { IncomingMessage, ServerResponse } from "node:http";
import type { V1Pod } from "@kubernetes/client-node";
import { expect, onTestFinished, test } from "vitest";
import { KubernetesEngine } from "../../../../src/engine/kubernetes/engine.ts";
import { serveApi, writeKubeconfig } from "../../../support/kubernetes-api.ts";
import { MemoryLog } from "../../../support/memory-log.ts";

/** A sandbox's pod that runs, with these variables. */
function podWith(env: Readonly<Record<string, string>> = {}): V1Pod {
  const variables = Object.entries(env).map(([name, value]) => ({ name, value }));
  return {
    metadata: { name: "pod", uid: "uid", resourceVersion: "5", labels: { "berth.dev/role": "sandbox" } },
    spec: { containers: [{ name: "main", image: "image", env: variables }] },
    status: { phase: "Running" },
  };
}

/** Answers a list of pods and a watch. */
function answer({ url }: IncomingMessage, response: ServerResponse, pod: V1Pod): void {
  if (url?.includes("watch=1")) response.flushHeaders();
  else response.end(JSON.stringify({ metadata: { resourceVersion: "5" }, items: [pod] }));
}

async function openEngine(cluster: string): Promise<KubernetesEngine> {
  const kubeconfig = await writeKubeconfig(cluster);
  const engine = await KubernetesEngine.open({ kubeconfig, instance: "one", logger: new MemoryLog() });
  onTestFinished(() => engine.close());
  return engine;
}

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
    else answer(request, response, podWith());
  });
  const engine = await openEngine(cluster);
  const resources = { memoryBytes: 64 << 20, cpuMillis: 500, pidsLimit: 64, diskBytes: undefined };
  const change = engine.setResources("pod.uid", resources);
  await expect(change).rejects.toMatchObject({
    reason: "UNSUPPORTED",
    message: expect.stringContaining(message),
  });
});

test("a process is given the variables of its sandbox that the script of pods drops", async () => {
  const env = { PLAIN: "1", "odd.name": "2", KUBERNETES_SERVICE_HOST: "10.0.0.1" };
  const request = Promise.withResolvers<string>();
  const cluster = await serveApi(
    (question, response) => answer(question, response, podWith(env)),
    (socket) =>
      socket.once("message", (message: Buffer) => {
        request.resolve(message.subarray(1).toString());
        socket.terminate();
      }),
  );
  const engine = await openEngine(cluster);
  const sink = { data() {}, end() {} };
  await engine.spawn("pod.uid", { argv: ["true"], stdin: false }, sink).catch(() => {});
  const script = `${await request.promise}printf '%s\\n' "$@"`;
  const words = spawnSync("/bin/sh", ["-c", script]).stdout.toString().split("\n");
  expect(words.slice(7, -1)).toEqual([
    "KUBERNETES_SERVICE_HOST=10.0.0.1",
    ...["--", "env", "--", "odd.name=2", "true"],
  ]);
});
