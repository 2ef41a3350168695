import { spawnSync } from "node:child_process";
import type { IncomingMessage, ServerResponse } from "node:http";
import { json } from "node:stream/consumers";
import type { V1Pod, V1PodStatus } from "@kubernetes/client-node";
import { expect, onTestFinished, test } from "vitest";
import type { WebSocket } from "ws";
import { KubernetesEngine, type KubernetesEngineOptions } from "../../../../src/engine/kubernetes/engine.ts";
import type { EngineSandboxSpec } from "../../../../src/engine/port.ts";
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

async function openEngine(
  cluster: string,
  options: Partial<KubernetesEngineOptions> = {},
): Promise<KubernetesEngine> {
  const engine = await KubernetesEngine.open({
    ...{ instance: "one", logger: new MemoryLog(), networkPolicy: "open" },
    ...options,
    kubeconfig: await writeKubeconfig(cluster),
  });
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

const SPEC: EngineSandboxSpec = {
  ...{ sandboxId: "one", generation: 1, owner: "", image: "image:1", env: {}, workingDir: "/", user: "root" },
  resources: { memoryBytes: 64 << 20, cpuMillis: 500, pidsLimit: 64, diskBytes: undefined },
  ...{ network: "NONE", mounts: [], runtime: "" },
};

const CONTAINER_STATUS = { name: "main", image: "image:1", imageID: "", ready: false, restartCount: 0 };

/** Starts an API server that creates one pod, which gets this status. */
async function serveNewPod(status: V1PodStatus, onExec?: (socket: WebSocket) => void): Promise<string> {
  const created = Promise.withResolvers<V1Pod>();
  return serveApi(async (request, response) => {
    if (request.method === "DELETE") response.writeHead(404).end("{}");
    else if (request.method === "POST") {
      const made = (await json(request)) as V1Pod;
      created.resolve({
        ...made,
        metadata: { ...made.metadata, uid: "new", resourceVersion: "6" },
        status,
      });
      response.end("{}");
    } else {
      answer(request, response, podWith());
      if (!request.url?.includes("watch=1")) return;
      response.write(`${JSON.stringify({ type: "ADDED", object: await created.promise })}\n`);
    }
  }, onExec);
}

test.each([
  [
    "fails",
    { phase: "Failed", state: { terminated: { exitCode: 3, reason: "Error", message: "no way" } } },
    {
      reason: "SANDBOX_START_FAILED",
      message: 'The sandbox did not start: its init container "first" failed with exit code 3: no way',
    },
  ],
  [
    "has an image that cannot be pulled",
    { phase: "Pending", state: { waiting: { reason: "ErrImagePull", message: "not found" } } },
    {
      reason: "IMAGE_UNAVAILABLE",
      message: expect.stringMatching(/^The image "other:1" cannot be pulled: ErrImagePull: not found\. /),
    },
  ],
])("a create whose init container %s says so", async (_, { phase, state }, error) => {
  const cluster = await serveNewPod({
    phase,
    initContainerStatuses: [{ ...CONTAINER_STATUS, name: "first", image: "other:1", state }],
    containerStatuses: [{ ...CONTAINER_STATUS, state: { waiting: { reason: "PodInitializing" } } }],
  });
  const engine = await openEngine(cluster, { startTimeoutMs: 5_000 });
  await expect(engine.create(SPEC)).rejects.toMatchObject(error);
});

test("a create whose set-up Kubernetes cannot run says why", async () => {
  const status = { phase: "Running", containerStatuses: [{ ...CONTAINER_STATUS, state: { running: {} } }] };
  const message = "failed to create exec: message length 4683293 exceed maximum message size of 4194304";
  const cluster = await serveNewPod(status, (socket) => {
    const end = JSON.stringify({ status: "Failure", reason: "InternalError", message });
    socket.send(Buffer.concat([Buffer.of(3), Buffer.from(end)]));
    socket.close();
  });
  await expect((await openEngine(cluster)).create(SPEC)).rejects.toMatchObject({
    reason: "ENGINE_UNAVAILABLE",
    message: `Kubernetes could not start the process: ${message}`,
  });
});

test("what a sandbox uses can be asked for before the pods are listed", async () => {
  const cluster = await serveApi(
    (request, response) => answer(request, response, podWith()),
    (socket) => {
      for (const [channel, text] of [
        [1, "100 200 3\n"],
        [3, '{"status":"Success"}'],
      ] as const)
        socket.send(Buffer.concat([Buffer.of(channel), Buffer.from(text)]));
      socket.close();
    },
  );
  const engine = await openEngine(cluster);
  await expect(engine.usage("pod.uid")).resolves.toEqual({ memoryBytes: 100, cpuNanos: 200, pids: 2 });
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

test.each([
  ["network", { networkPolicy: undefined }, {}, "UNSUPPORTED"],
  ["network, which could not be tested", { networkPolicy: "enforced" }, {}, "UNSUPPORTED"],
  ["runtime", {}, { runtime: "gvisor" }, "NOT_ALLOWED"],
] as const)(
  "an image whose sandbox is refused for its %s does not run",
  async (_, options, changes, reason) => {
    const made: string[] = [];
    const cluster = await serveApi((request, response) => {
      if (request.method === "POST" && request.url?.endsWith("/pods")) made.push(request.url);
      if (request.method === "DELETE") response.writeHead(404).end("{}");
      else answer(request, response, podWith());
    });
    const engine = await openEngine(cluster, { ...options, pullTimeoutMs: 1_000 });
    const sandbox = { ...SPEC, user: "", ...changes };
    await expect(engine.ensureImage(sandbox.image, { sandbox })).rejects.toMatchObject({ reason });
    expect(made).toEqual([]);
  },
);

test("an image runs with the runtime of the sandbox that needs it, whatever is known from another one", async () => {
  const ended = { ...CONTAINER_STATUS, state: { terminated: { exitCode: 0, message: "1000" } } };
  const made: V1Pod[] = [];
  const watches = new Set<ServerResponse>();
  const cluster = await serveApi(async (request, response) => {
    if (request.method === "DELETE") return void response.writeHead(404).end("{}");
    if (request.method !== "POST") {
      if (request.url?.includes("watch=1")) watches.add(response);
      return answer(request, response, podWith());
    }
    const pod = (await json(request)) as V1Pod;
    made.push(pod);
    response.end("{}");
    const metadata = { ...pod.metadata, uid: `${made.length}`, resourceVersion: `${5 + made.length}` };
    const status = { phase: "Succeeded", containerStatuses: [ended] };
    for (const watch of watches)
      watch.write(`${JSON.stringify({ type: "ADDED", object: { ...pod, metadata, status } })}\n`);
  });
  const engine = await openEngine(cluster, { allowedRuntimes: { gvisor: "USER_KERNEL" } });
  for (const runtime of ["", "gvisor", "gvisor"])
    await engine.ensureImage(SPEC.image, { sandbox: { ...SPEC, runtime } });
  expect(made.map(({ spec }) => spec?.runtimeClassName)).toEqual([undefined, "gvisor"]);
});
