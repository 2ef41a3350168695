import { createServer } from "node:net";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { KubernetesEngine, type KubernetesEngineOptions } from "../../../src/engine/kubernetes/engine.ts";
import { parseRef } from "../../../src/engine/kubernetes/pod.ts";
import { eventually } from "../../support/eventually.ts";
import { TEST_IMAGE } from "../../support/images.ts";
import { berthKubeconfig, kubectl } from "../../support/kubernetes.ts";
import { makeNamespace, removeNamespace } from "../../support/kubernetes-namespace.ts";
import { MemoryLog } from "../../support/memory-log.ts";
import { PolicyEnforcer, serveInNode } from "../../support/policy-enforcer.ts";
import { newInstance } from "../../support/settings.ts";
import { failure, run, spec } from "../engine/docker/support.ts";

const NAMESPACE = `network-${process.pid}`;
const NODE = "10.222.0.2";
const API = "10.222.2.1";
/** This machine, as the node's network reaches it. */
const HOST = "10.222.0.1";
const PUBLIC = "93.184.215.14";
const METADATA = "169.254.169.254";

beforeAll(() => makeNamespace(NAMESPACE));
afterAll(() => removeNamespace(NAMESPACE));

interface Opened {
  readonly engine: KubernetesEngine;
  readonly instance: string;
  readonly log: MemoryLog;
}

async function open(options: Partial<KubernetesEngineOptions> = {}): Promise<Opened> {
  const instance = newInstance();
  const log = new MemoryLog();
  const engine = await KubernetesEngine.open({
    ...{ instance, logger: log, kubeconfig: berthKubeconfig(), namespace: NAMESPACE },
    ...{ networkPolicy: "enforced", probeImage: TEST_IMAGE, ...options },
  });
  return { engine, instance, log };
}

const inNamespace = (...args: readonly string[]) => kubectl([`--namespace=${NAMESPACE}`, ...args]);

/** Whether a process in a sandbox can connect to an address within two seconds. */
async function reaches(
  engine: KubernetesEngine,
  ref: string,
  address: string,
  port: number,
): Promise<boolean> {
  const script = `import socket,sys
try: socket.create_connection(("${address}", ${port}), 2).close()
except OSError as error: print(error); sys.exit(3)`;
  const { exitCode, stderr } = await run(engine, ref, ["python3", "-c", script]);
  expect([0, 3], stderr.toString()).toContain(exitCode);
  return exitCode === 0;
}

async function addressOf(ref: string): Promise<string> {
  return inNamespace("get", "pod", parseRef(ref).name, "--output=jsonpath={.status.podIP}");
}

async function expectNoProbes(instance: string): Promise<void> {
  const selector = `--selector=berth.dev/instance=${instance},berth.dev/role=network-probe`;
  await eventually(async () => (await inNamespace("get", "pods", selector, "--output=name")) === "", {
    timeoutMs: 20_000,
  });
}

describe("on a cluster that enforces no policy", () => {
  test("the operator's setting does not count: sandboxes are refused with what a test reached", async () => {
    const { engine, instance, log } = await open();
    onTestFinished(() => engine.close());
    const none = await failure(engine.create(spec()), "UNSUPPORTED");
    expect(none.metadata).toEqual({ capability: "network_none" });
    expect(none.message).toContain("The network NONE cannot be guaranteed: the cluster does not enforce");
    expect(none.message).toMatch(/it reached another pod \(10\.222\.1\.\d+:\d+\)/);
    expect(none.message).toContain(`it reached the API server (${API}:443)`);
    expect(none.message).toContain(`it reached the API server (${NODE}:6443)`);
    expect(none.message).toContain(`it reached a node (${NODE}:10250)`);
    expect(none.message).toContain("another pod reached it");
    const egress = await failure(engine.create(spec({ network: "EGRESS" })), "UNSUPPORTED");
    expect(egress.message).toContain("The network EGRESS cannot be guaranteed: the cluster does not enforce");
    // An image runs for a moment before its first sandbox, so that is refused too.
    const early = await failure(engine.ensureImage(TEST_IMAGE, { sandbox: spec() }), "UNSUPPORTED");
    expect(early.message).toBe(none.message);
    expect(await engine.info()).toMatchObject({
      capabilities: { egress: false },
      openNetwork: true,
      warning: expect.stringContaining("Sandboxes with the network NONE are refused: the cluster does not"),
    });
    expect(log.lines.map(({ message }) => message).join()).toContain(
      "the network of sandboxes does not hold",
    );
    await expectNoProbes(instance);
  });
});

describe("on a cluster that enforces policies", () => {
  let enforcer: PolicyEnforcer;
  beforeAll(async () => {
    enforcer = await PolicyEnforcer.start(NAMESPACE);
  });
  afterAll(() => enforcer?.stop());

  test("NONE reaches nothing, and EGRESS only what is allowed", async () => {
    await using _public = await serveInNode(PUBLIC, 8080);
    await using _metadata = await serveInNode(METADATA, 80);
    const server = createServer((socket) => socket.on("error", () => {}).end()).listen(0, HOST);
    onTestFinished(() => void server.close());
    await new Promise((resolve) => server.once("listening", resolve));
    const { port } = server.address() as { port: number };

    const { engine, instance, log } = await open({ egressCidrs: [`${HOST}/32`] });
    onTestFinished(() => engine.close());
    const [none, egress] = await Promise.all([
      engine.create(spec()),
      engine.create(spec({ network: "EGRESS" })),
    ]);
    onTestFinished(async () => {
      await engine.remove(none.ref);
      await engine.remove(egress.ref);
    });
    expect(log.lines.find(({ message }) => message.includes("policies hold"))?.fields.tested).toContain(
      "a metadata service (169.254.169.254:80)",
    );
    await expectNoProbes(instance);
    expect(await engine.info()).toMatchObject({ capabilities: { egress: true }, openNetwork: false });

    const peer = ["run", "peer", "--image=berth/test", "--image-pull-policy=Never", "--restart=Never"];
    await inNamespace(...peer, "--command", "--", "python3", "-m", "http.server", "8000");
    await inNamespace("wait", "pod/peer", "--for=condition=Ready", "--timeout=60s");
    const others = await inNamespace("get", "pod", "peer", "--output=jsonpath={.status.podIP}");
    const closed: [string, number][] = [
      [API, 443],
      [NODE, 6443],
      [NODE, 10250],
      [METADATA, 80],
      [others, 8000],
    ];
    const opened: [string, number][] = [
      [PUBLIC, 8080],
      [HOST, port],
    ];
    // Without a policy both reach the closed addresses, so these exist.
    const label = (ref: string, value: string) =>
      inNamespace("label", "pod", parseRef(ref).name, `berth.dev/network=${value}`, "--overwrite");
    await label(none.ref, "open");
    for (const [address, at] of [...closed, ...opened])
      await eventually(() => reaches(engine, none.ref, address, at), { timeoutMs: 20_000 });
    await label(none.ref, "none");
    await eventually(async () => !(await reaches(engine, none.ref, HOST, port)), { timeoutMs: 20_000 });

    for (const [address, at] of [...closed, ...opened])
      expect(await reaches(engine, none.ref, address, at), `${address} from NONE`).toBe(false);
    for (const [address, at] of closed)
      expect(await reaches(engine, egress.ref, address, at), `${address} from EGRESS`).toBe(false);
    for (const [address, at] of opened)
      expect(await reaches(engine, egress.ref, address, at), `${address} from EGRESS`).toBe(true);

    // All of it still exists.
    await label(none.ref, "open");
    for (const [address, at] of [...closed, ...opened])
      await eventually(() => reaches(engine, none.ref, address, at), { timeoutMs: 20_000 });
    await label(none.ref, "none");
    await eventually(async () => !(await reaches(engine, none.ref, HOST, port)), { timeoutMs: 20_000 });

    // Sandboxes cannot reach each other, and no pod can reach one.
    const listen = "python3 -m http.server 8000 >/dev/null 2>&1 & sleep 1";
    for (const { ref } of [none, egress]) {
      await run(engine, ref, ["sh", "-c", listen]);
      expect(await reaches(engine, ref, "127.0.0.1", 8000)).toBe(true);
    }
    expect(await reaches(engine, egress.ref, await addressOf(none.ref), 8000)).toBe(false);
    expect(await reaches(engine, none.ref, await addressOf(egress.ref), 8000)).toBe(false);
    const connect = (address: string) =>
      inNamespace(
        "exec",
        "peer",
        "--",
        "python3",
        "-c",
        `import socket;socket.create_connection(("${address}",8000),2)`,
      );
    await expect(connect(await addressOf(none.ref))).rejects.toThrow("timed out");
    await expect(connect(await addressOf(egress.ref))).rejects.toThrow("timed out");

    const resolvers = (ref: string) => run(engine, ref, ["cat", "/etc/resolv.conf"]);
    expect((await resolvers(none.ref)).stdout.toString().trim()).toBe("nameserver 127.0.0.1");
    expect((await resolvers(egress.ref)).stdout.toString().trim()).toBe(
      "nameserver 1.1.1.1\nnameserver 8.8.8.8",
    );
    const began = performance.now();
    expect((await run(engine, none.ref, ["getent", "hosts", "example.com"])).exitCode).not.toBe(0);
    expect(performance.now() - began).toBeLessThan(4_000);
  });

  test("an image whose own shell looks around before its first sandbox reaches nothing", async () => {
    const look = `#!/usr/bin/python3
import os, socket, sys, time
if "termination-log" not in sys.argv[-1]: os.execv("/bin/bash", ["sh", *sys.argv[1:]])
found = "reached"
for _ in range(40):
  # The tests' network needs a moment for a new pod.
  try: socket.create_connection(("${NODE}", 6443), 1).close()
  except OSError:
    found = "blocked"
    break
  time.sleep(0.25)
open("/dev/termination-log", "w").write(found)`;
    const map = { apiVersion: "v1", kind: "ConfigMap", metadata: { name: "hostile" }, data: { sh: look } };
    await kubectl(["create", `--namespace=${NAMESPACE}`, "--filename=-"], { input: JSON.stringify(map) });
    onTestFinished(async () => void (await inNamespace("delete", "configmap", "hostile")));
    const volumes = [{ name: "hostile", configMap: { name: "hostile", defaultMode: 0o755 } }];
    const volumeMounts = [{ name: "hostile", mountPath: "/bin/sh", subPath: "sh" }];
    const template = { spec: { volumes, containers: [{ name: "main", volumeMounts }] } };
    const { engine } = await open({ template });
    onTestFinished(() => engine.close());
    for (const network of ["NONE", "EGRESS"] as const) {
      const running = engine.ensureImage(TEST_IMAGE, { sandbox: spec({ network }) });
      const { message } = await failure(running, "SANDBOX_START_FAILED");
      expect(message).toContain("its image does not report its user: blocked");
    }
  });

  test("a policy that was deleted or changed is restored", async () => {
    const { engine, instance, log } = await open();
    onTestFinished(() => engine.close());
    const selector = `--selector=berth.dev/instance=${instance}`;
    const policies = async () =>
      JSON.parse(await inNamespace("get", "networkpolicies", selector, "--output=json")).items as {
        metadata: { name: string; uid: string };
        spec: { egress?: unknown };
      }[];
    const before = await policies();
    expect(before).toHaveLength(2);
    const none = before.find(({ metadata }) => metadata.name.endsWith("-none"));
    const name = none?.metadata.name ?? "";
    await inNamespace("patch", "networkpolicy", name, "--type=merge", `--patch={"spec":{"egress":[{}]}}`);
    const restored = () => policies().then((all) => all.find(({ metadata }) => metadata.name === name));
    const opened = async (): Promise<boolean | undefined> => {
      await engine.info();
      const found = await restored();
      return found && found.spec.egress !== undefined;
    };
    await expect.poll(opened, { timeout: 30_000 }).toBe(false);
    expect((await restored())?.metadata.uid).toBe(none?.metadata.uid);
    await inNamespace("delete", "networkpolicy", name);
    await eventually(async () => {
      await engine.info();
      return (await restored()) !== undefined;
    });
    expect(
      log.lines.filter((line) => line.message.includes("somebody changed a network policy")),
    ).toHaveLength(2);
    await engine.remove((await engine.create(spec())).ref);
  });

  test("a foreign policy that opens NONE is found, and NONE is refused until it is gone", async () => {
    const { engine } = await open();
    onTestFinished(() => engine.close());
    const policy = {
      apiVersion: "networking.k8s.io/v1",
      kind: "NetworkPolicy",
      metadata: { name: "let-all-out" },
      spec: { podSelector: {}, policyTypes: ["Egress"], egress: [{}] },
    };
    await engine.remove((await engine.create(spec())).ref);
    await kubectl(["create", `--namespace=${NAMESPACE}`, "--filename=-"], { input: JSON.stringify(policy) });
    try {
      const { message } = await eventually(() =>
        engine.create(spec()).then(
          async ({ ref }) => {
            await engine.remove(ref);
            return undefined;
          },
          (error: Error) => error,
        ),
      );
      expect(message).toContain("these network policies of the namespace open it: let-all-out.");
      expect((await engine.info()).openNetwork).toBe(true);
    } finally {
      await inNamespace("delete", "networkpolicy", "let-all-out");
    }
    await eventually(async () => (await engine.info()).openNetwork === false);
    await engine.remove((await engine.create(spec())).ref);
  });

  test("without the right to policies, sandboxes are refused with the missing right", async () => {
    const role = JSON.parse(await inNamespace("get", "role", "berth", "--output=json"));
    const rules = (role.rules as { resources: string[] }[]).filter(
      ({ resources }) => !resources.includes("networkpolicies"),
    );
    await inNamespace("patch", "role", "berth", "--type=merge", `--patch=${JSON.stringify({ rules })}`);
    try {
      const { engine } = await open();
      onTestFinished(() => engine.close());
      const { message } = await failure(engine.create(spec()), "UNSUPPORTED");
      expect(message).toContain(
        "its network policy is not in force: The service lacks a right in the cluster",
      );
      expect(message).toContain('resource "networkpolicies"');
    } finally {
      await inNamespace(
        "patch",
        "role",
        "berth",
        "--type=merge",
        `--patch=${JSON.stringify({ rules: role.rules })}`,
      );
    }
  });

  test("options that contradict each other or the cluster fail the start", async () => {
    const refused = async (options: Partial<KubernetesEngineOptions>) =>
      (await failure(open(options), "INVALID_ARGUMENT")).message;
    expect(await refused({ egressCidrs: ["10.0.0.0/8"], denyCidrs: ["10.0.0.0/8"] })).toContain(
      "--egress-cidr 10.0.0.0/8 is also given with --deny-cidr",
    );
    expect(await refused({ egressCidrs: ["169.254.169.254/32"] })).toContain("closed to sandboxes for good");
    expect(await refused({ egressCidrs: [`${NODE}/32`] })).toContain(
      `--egress-cidr ${NODE}/32 is an address of the cluster itself`,
    );
  });

  test("probes left by a killed service are removed by the next one", async () => {
    const { engine, instance } = await open();
    await engine.close();
    await expectNoProbes(instance);
    await inNamespace(
      ...["run", "left", "--image=berth/test", "--image-pull-policy=Never", "--command"],
      `--labels=berth.dev/instance=${instance},berth.dev/role=network-probe`,
      ...["--", "sleep", "600"],
    );
    const again = await KubernetesEngine.open({
      ...{ instance, logger: new MemoryLog(), kubeconfig: berthKubeconfig(), namespace: NAMESPACE },
      ...{ networkPolicy: "enforced", probeImage: TEST_IMAGE },
    });
    onTestFinished(() => again.close());
    await again.create(spec()).then(({ ref }) => again.remove(ref));
    await expectNoProbes(instance);
  });
});
