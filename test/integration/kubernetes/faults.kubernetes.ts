import { spawn } from "node:child_process";
import { once as onceEmitted } from "node:events";
import { writeFileSync } from "node:fs";
import path from "node:path";
import { createInterface } from "node:readline";
import { afterAll, beforeAll, beforeEach, describe, expect, onTestFinished, test } from "vitest";
import { Api } from "../../../src/engine/kubernetes/api.ts";
import { type ApiFault, ApiProxy, type ApiRequest } from "../../support/api-proxy.ts";
import { startTestApp, type TestApp } from "../../support/app.ts";
import { failureOf } from "../../support/client.ts";
import { eventually } from "../../support/eventually.ts";
import { BUSYBOX_IMAGE } from "../../support/images.ts";
import { kubectl, NAMESPACE } from "../../support/kubernetes.ts";
import { newDataDir } from "../../support/settings.ts";
import { failure, run, spec } from "../engine/docker/support.ts";
import { openEngine } from "../engine/kubernetes/support.ts";

const MANY_PODS = 120;

let api: ApiProxy;
let app: TestApp;

beforeAll(async () => {
  api = await ApiProxy.open();
  app = await startTestApp({ engine: "kubernetes", kubeconfig: api.kubeconfig });
  // From here on its image is known.
  await app.client.deleteSandbox((await app.client.createSandbox()).sandbox_id);
});
beforeEach(() => {
  api.fault = () => undefined;
});
afterAll(async () => {
  api.fault = () => undefined;
  await app.stop();
  await api[Symbol.asyncDispose]();
});

const isPodWatch = ({ isWatch, path }: ApiRequest): boolean => isWatch && path.endsWith("/pods");
const isExec = ({ path }: ApiRequest): boolean => path.endsWith("/exec");
const makesPod = ({ method, path }: ApiRequest): boolean => method === "POST" && path.endsWith("/pods");
const removesPod = ({ method, path }: ApiRequest): boolean => method === "DELETE" && path.includes("/pods/");

/** Forwards every call except the first `times` of these. */
function once(isIt: (request: ApiRequest) => boolean, fault: ApiFault, times = 1): void {
  let failed = 0;
  api.fault = (request) => (isIt(request) && failed++ < times ? fault : undefined);
}

/** Names of the instance's pods. */
async function podNames(role = "sandbox"): Promise<string[]> {
  const selector = `--selector=berth.dev/instance=${app.instance},berth.dev/role=${role}`;
  const names = await kubectl(["get", "pods", `--namespace=${NAMESPACE}`, selector, "--output=name"]);
  return names.split("\n").filter((name) => name !== "");
}

/** Waits for a sandbox that is being created, and deletes it. */
async function expectMade(made: Promise<{ readonly sandbox_id: string }>): Promise<void> {
  await expect(made).resolves.toHaveProperty("sandbox_id");
  await app.client.deleteSandbox((await made).sandbox_id);
}

describe("a create continues", () => {
  test("if a watch breaks", async () => {
    const seen = api.requests.length;
    const made = app.client.createSandbox();
    made.catch(() => {});
    await eventually(() => api.requests.slice(seen).some(makesPod), { timeoutMs: 30_000 });
    api.cutWatches();
    await expectMade(made);
  });

  test("if a request to the API server fails once", async () => {
    for (const status of [429, 500, 503]) {
      const { promise: asked, resolve } = Promise.withResolvers<undefined>();
      let isAsked = false;
      api.fault = (request) => {
        // The create waits until the service has asked whether the cluster answers, which it does every five seconds.
        if (isExec(request)) return asked;
        if (isAsked || request.path !== "/version") return undefined;
        isAsked = true;
        setTimeout(() => resolve(undefined), 1_000);
        return { status };
      };
      await expectMade(app.client.createSandbox());
    }
  });

  test("if the API server has too many requests for a moment", async () => {
    once(makesPod, { status: 429, reason: "TooManyRequests" });
    await expectMade(app.client.createSandbox());
  });

  test("if the API server has too many requests for its set-up for a moment", async () => {
    let refused = 0;
    api.fault = (request) =>
      isExec(request) && refused++ === 0 ? { status: 429, reason: "TooManyRequests" } : undefined;
    await expectMade(app.client.createSandbox());
    expect(refused).toBeGreaterThan(1);
  });

  test.each([429, 503])(
    "if a watch breaks, and the next one is refused once with status %i",
    async (status) => {
      const seen = api.requests.length;
      const made = app.client.createSandbox();
      made.catch(() => {});
      await eventually(() => api.requests.slice(seen).some(makesPod), { timeoutMs: 30_000 });
      once(isPodWatch, { status });
      api.cutWatches();
      await expectMade(made);
    },
  );

  test("if a watch goes silent", async () => {
    api.fault = (request) => (isPodWatch(request) ? "silent" : undefined);
    api.cutWatches();
    const seen = api.requests.length;
    await eventually(() => api.requests.slice(seen).some(isPodWatch), { timeoutMs: 30_000 });
    api.fault = () => undefined;
    await expectMade(app.client.createSandbox());
  }, 300_000);
});

test("a watch that ends at once is not restarted without a pause", async () => {
  for (const fault of ["end", { status: 410, reason: "Expired" }] as const) {
    api.fault = (request) => (isPodWatch(request) ? fault : undefined);
    api.cutWatches();
    const seen = api.requests.length;
    await new Promise((resolve) => setTimeout(resolve, 4_000));
    expect(api.requests.slice(seen).filter(isPodWatch).length).toBeLessThan(40);
    api.fault = () => undefined;
    await expectMade(app.client.createSandbox());
  }
});

test("a new pod that accepts no commands is the engine's failure, not the caller's", async () => {
  api.fault = (request) => (isExec(request) ? "silent" : undefined);
  expect(await failureOf(app.client.createSandbox())).toMatchObject({
    code: "UNAVAILABLE",
    reason: "ENGINE_UNAVAILABLE",
  });
  expect(await podNames()).toEqual([]);
}, 180_000);

test("a removal that fails once is retried", async () => {
  const { sandbox_id: id } = await app.client.createSandbox();
  once(removesPod, { status: 503 });
  await expect(app.client.deleteSandbox(id)).resolves.toBeUndefined();
  expect(await podNames()).toEqual([]);
});

test("a pod that Kubernetes created all the same is removed with the failed create", async () => {
  once(makesPod, { status: 500, made: true });
  expect(await failureOf(app.client.createSandbox())).toMatchObject({ reason: "ENGINE_UNAVAILABLE" });
  expect(await podNames()).toEqual([]);
});

test("an API server that stops answering fails a create in seconds; what it created all the same is removed later", async () => {
  api.fault = (request) => (makesPod(request) ? "unanswered" : "hang");
  const began = performance.now();
  expect(await failureOf(app.client.createSandbox())).toMatchObject({
    code: "UNAVAILABLE",
    reason: "ENGINE_UNAVAILABLE",
  });
  expect(performance.now() - began).toBeLessThan(25_000);
  expect(await podNames()).toHaveLength(1);
  api.fault = () => undefined;
  await expect.poll(() => podNames(), { timeout: 90_000, interval: 500 }).toEqual([]);
  // Other tests use the service once it has noticed.
  await eventually(
    () =>
      app.client.createSandbox().then(
        ({ sandbox_id: id }) => app.client.deleteSandbox(id).then(() => true),
        () => false,
      ),
    {
      timeoutMs: 30_000,
    },
  );
}, 180_000);

test("a command that the API server does not answer says so", async () => {
  const { engine } = await openEngine({ kubeconfig: api.kubeconfig });
  const { ref } = await engine.create(spec({ user: "nobody" }));
  api.fault = (request) => (isExec(request) ? "hang" : undefined);
  expect(await failure(run(engine, ref, ["true"]), "ENGINE_UNAVAILABLE")).toMatchObject({
    message: "The API server did not answer in time while starting a process.",
  });
  await engine.remove(ref);
});

test("a create that the API server still works on may take longer than a simple answer", async () => {
  api.fault = async (request) => {
    if (makesPod(request)) await new Promise((resolve) => setTimeout(resolve, 15_000));
    return undefined;
  };
  await expectMade(app.client.createSandbox());
});

test("a service that was held up does not take the API server for away", async () => {
  // In another process: it answers while this one is held up.
  const script = `require("node:http").createServer((request, answer) =>
    setTimeout(() => answer.end("{}"), request.url === "/slow" ? 15000 : 1000),
  ).listen(0, "127.0.0.1", function () { console.log(this.address().port); })`;
  const server = spawn(process.execPath, ["-e", script], { stdio: ["ignore", "pipe", "inherit"] });
  onTestFinished(() => void server.kill());
  const [line] = await onceEmitted(createInterface(server.stdout), "line");
  const file = path.join(newDataDir(), "kubeconfig");
  const config = {
    ...{ apiVersion: "v1", kind: "Config", "current-context": "c", users: [] },
    clusters: [
      { name: "c", cluster: { server: `http://127.0.0.1:${line}`, "insecure-skip-tls-verify": true } },
    ],
    contexts: [{ name: "c", context: { cluster: "c" } }],
  };
  writeFileSync(file, JSON.stringify(config));
  const slow = await Api.open({ kubeconfig: file });
  const call = slow.call("GET", "slow", "testing");
  call.catch(() => {});
  // It asks for the version, and is held up before the answer.
  await new Promise((resolve) => setTimeout(resolve, 3_000));
  // In the phase of the event loop after which timers come first.
  await new Promise((resolve) => setImmediate(resolve));
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 9_000);
  await expect(call).resolves.toEqual({});
}, 60_000);

test("many pods are listed in small pages, and from the start again if a page has expired", async () => {
  const { engine, instance } = await openEngine({ kubeconfig: api.kubeconfig });
  // Nothing schedules them.
  const items = Array.from({ length: MANY_PODS }, (_, i) => ({
    ...{ apiVersion: "v1", kind: "Pod" },
    metadata: {
      name: `${instance}-${i}`,
      labels: { "berth.dev/instance": instance, "berth.dev/role": "sandbox" },
    },
    spec: { schedulerName: "nobody", containers: [{ name: "main", image: "x" }] },
  }));
  const list = { apiVersion: "v1", kind: "List", items };
  await kubectl(["create", `--namespace=${NAMESPACE}`, "--filename=-"], { input: JSON.stringify(list) });
  const isOwnList = ({ isWatch, query }: ApiRequest): boolean =>
    !isWatch && query.get("labelSelector") === `berth.dev/instance=${instance}`;
  once((request) => isOwnList(request) && request.query.has("continue"), { status: 410, reason: "Expired" });
  const found = await engine.list();
  expect(new Set(found.map(({ ref }) => ref)).size).toBe(MANY_PODS);
  expect(found).toHaveLength(MANY_PODS);
  const limits = api.requests.filter(isOwnList).map(({ query }) => Number(query.get("limit")));
  // An answer is parsed in one go, while no other call gets on.
  expect(Math.max(...limits)).toBeLessThanOrEqual(50);
  // One page and the one that expired; then all of them.
  expect(limits).toHaveLength(2 + Math.ceil(MANY_PODS / 50));
});

test("nodes are not listed again for each health check", async () => {
  const { engine } = await openEngine({ kubeconfig: api.kubeconfig });
  const seen = api.requests.length;
  for (let i = 0; i < 3; i++) await engine.info();
  // The service of this file asks too, at most once.
  expect(api.requests.slice(seen).filter(({ path }) => path === "/api/v1/nodes").length).toBeLessThan(3);
});

describe("a claim", () => {
  const makesClaim = ({ method, path }: ApiRequest): boolean =>
    method === "POST" && path.endsWith("/persistentvolumeclaims");

  test.each<[string, ApiFault]>([
    // As when two API servers count against one quota.
    ["conflicts with something", { status: 409, reason: "Conflict" }],
    ["goes through although nobody says so", { status: 504, made: true }],
  ])("whose creation %s belongs to its workspace", async (_what, fault) => {
    once(makesClaim, fault);
    const name = { workspace_id: "claimed" };
    const making = app.client.call("WorkspaceService/CreateWorkspace", name);
    await expect(making).resolves.toMatchObject({ created: true });
    const { workspace } = await app.client.call("WorkspaceService/GetWorkspace", name);
    const [namespace = "", claim = ""] = workspace.path.split("/");
    const found = await kubectl(["get", "pvc", claim, `--namespace=${namespace}`, "--output=name"]);
    expect(found.trim()).toBe(`persistentvolumeclaim/${claim}`);
    await app.client.call("WorkspaceService/CleanupWorkspace", { ...name, force: true });
  });

  const isClaims = ({ path }: ApiRequest): boolean => path.includes("/persistentvolumeclaims");
  /** Lets the API server create a claim and then answer nothing about claims. The call fails. */
  const failToMake = async (workspace_id: string): Promise<void> => {
    let isAway = false;
    api.fault = (request) => {
      if (makesClaim(request)) {
        isAway = true;
        return { status: 504, made: true };
      }
      return isAway && isClaims(request) ? { status: 503 } : undefined;
    };
    const making = app.client.call("WorkspaceService/CreateWorkspace", { workspace_id });
    expect(await failureOf(making)).toMatchObject({ reason: "ENGINE_UNAVAILABLE" });
    expect(await claims()).toHaveLength(1);
    api.fault = () => undefined;
  };
  const claims = async (): Promise<string[]> => {
    const selector = `--selector=berth.dev/instance=${app.instance}`;
    const names = await kubectl(["get", "pvc", `--namespace=${NAMESPACE}`, selector, "--output=name"]);
    return names.split("\n").filter((name) => name !== "");
  };

  test("that an API server created before it went away does not keep its workspace's id", async () => {
    await failToMake("freed");
    const name = { workspace_id: "freed" };
    const again = app.client.call("WorkspaceService/CreateWorkspace", name);
    await expect(again).resolves.toMatchObject({ created: true });
    expect(await claims()).toHaveLength(1);
    await app.client.call("WorkspaceService/CleanupWorkspace", { ...name, force: true });
  });

  test("that an API server created before it went away is removed, even if nobody asks for it again", async () => {
    await failToMake("left");
    await expect.poll(claims, { timeout: 100_000, interval: 1_000 }).toEqual([]);
  }, 180_000);
});

test("the pod of an image check is removed later if it cannot be removed at once", async () => {
  // As often as it is retried.
  once(removesPod, { status: 503 }, 3);
  await expectMade(app.client.createSandbox({ image: BUSYBOX_IMAGE }));
  await expect.poll(() => podNames("probe"), { timeout: 90_000, interval: 1_000 }).toEqual([]);
}, 180_000);

test("a removal that fails with a conflict has removed nothing", async () => {
  const { sandbox_id: id } = await app.client.createSandbox();
  once(removesPod, { status: 409, reason: "Conflict" });
  // If the delete reports success, the pod is gone.
  await app.client.deleteSandbox(id).catch(() => {});
  const { state } = await app.client.getSandbox(id);
  if (state === "SANDBOX_STATE_TERMINATED") expect(await podNames()).toEqual([]);
  await eventually(async () => (await app.client.getSandbox(id)).state === "SANDBOX_STATE_TERMINATED", {
    timeoutMs: 30_000,
  });
  expect(await podNames()).toEqual([]);
});
