import { setTimeout as sleep } from "node:timers/promises";
import * as grpc from "@grpc/grpc-js";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { tokenIdIn } from "../../../src/tenants/token.ts";
import { type Client, failureOf } from "../../support/client.ts";
import { eventually } from "../../support/eventually.ts";
import type { Execution } from "../../support/execution.ts";
import { CHART, helm, set } from "../../support/helm.ts";
import { kubectl } from "../../support/kubernetes.ts";
import { startNginx } from "../../support/nginx.ts";
import type { RunningProxy } from "../../support/proxy.ts";
import { ServiceAddress } from "../../support/service-address.ts";
import { clientWith, TokensFile } from "../../support/tokens.ts";

const NAMESPACE = `replicas-${process.pid}`;
const SANDBOXES = `${NAMESPACE}-sandboxes`;
const RELEASE = "many";
const REPLICAS = [0, 1] as const;
const WHERE = `--namespace=${NAMESPACE}`;
const WAIT_MS = 120_000;

/** Twenty of them fit on the node, whose CPUs the other tests need too. */
const SMALL = { resources: { cpu_millis: 400, memory_bytes: 128 << 20 } };

/** A tenant, what it has, and its replica. */
interface Tenant {
  readonly name: string;
  readonly client: Client;
  readonly sandbox: string;
  /** Runs until it is killed. Its stream ends with it. */
  readonly running: Execution;
  readonly processId: string;
  readonly replica: number;
}

describe("20 tenants on two replicas of the chart, behind deploy/nginx.conf", () => {
  const file = new TokensFile();
  const tokens = new Map<string, string>();
  const clients: Client[] = [];
  let tenants: Tenant[] = [];
  let addresses: ServiceAddress[] = [];
  let nginx: RunningProxy;

  const tokenOf = (name: string): string => tokens.get(name) ?? "";
  const keep = (client: Client): Client => {
    clients.push(client);
    return client;
  };
  const direct = (replica: number, name: string): Client =>
    keep(clientWith(addresses[replica]?.address ?? "", tokenOf(name)));

  beforeAll(async () => {
    for (let i = 0; i < 20; i++) tokens.set(`tenant-${i}`, await file.add(`tenant-${i}`));
    for (const name of [NAMESPACE, SANDBOXES]) await kubectl(["create", "namespace", name]);
    const secret = ["secret", "generic", "berth-tokens", WHERE, `--from-file=${file.path}`];
    await kubectl(["create", ...secret]);
    const values = {
      replicas: String(REPLICAS.length),
      "image.pullPolicy": "Never",
      "sandboxes.namespace": SANDBOXES,
      "sandboxes.createNamespace": "false",
      "sandboxes.image": "berth/test:latest",
      "options.network-policy": "open",
      "resources.requests.cpu": "50m",
    };
    await helm("install", RELEASE, CHART, WHERE, "--wait", "--timeout=180s", ...set(values));
    addresses = await Promise.all(
      REPLICAS.map((replica) => ServiceAddress.open(NAMESPACE, `${RELEASE}-berth-${replica}`)),
    );
    const ids = new Map([...tokens].map(([name, token]) => [tokenIdIn(token) ?? "", name]));
    nginx = await startNginx(
      addresses.map(({ address }) => address),
      ids,
    );
    tenants = await Promise.all([...tokens.keys()].map(settle));
  }, 300_000);

  afterAll(async () => {
    for (const client of clients) client.close();
    await nginx?.[Symbol.asyncDispose]();
    for (const address of addresses) await address[Symbol.asyncDispose]();
    await kubectl(["delete", "namespace", NAMESPACE, SANDBOXES, "--wait=false"]);
  });

  /** Creates a tenant's sandbox, with a file and a process. */
  async function settle(name: string): Promise<Tenant> {
    const credentials = grpc.credentials.createSsl(nginx.certificate);
    const client = keep(clientWith(nginx.address, tokenOf(name), {}, credentials));
    const { sandbox_id: sandbox } = await client.createSandbox(SMALL);
    await client.output(sandbox, `echo ${name} >/tmp/whose`);
    const running = client.exec(sandbox, `echo ${name} runs; sleep 3600`);
    await running.until(`${name} runs`);
    const places = await Promise.all(
      REPLICAS.map(async (replica) => {
        const { sandboxes } = await direct(replica, name).call("SandboxService/ListSandboxes");
        return sandboxes.length;
      }),
    );
    expect(places.toSorted()).toEqual([0, 1]);
    const replica = places.indexOf(1);
    return { name, client, sandbox, running, processId: await running.processId, replica };
  }

  /** Every tenant sees its own sandbox, process and events, and nothing of other tenants. */
  async function expectApart(): Promise<void> {
    await Promise.all(
      tenants.map(async ({ client, sandbox }, index) => {
        const other = tenants[(index + 1) % tenants.length];
        if (other === undefined) throw new Error("no tenants");
        const { sandboxes } = await client.call("SandboxService/ListSandboxes");
        expect(sandboxes.map(({ sandbox_id: id }) => id)).toEqual([sandbox]);
        const listed = await client.call("ProcessService/ListProcesses", { sandbox_id: sandbox });
        expect(listed.processes.every(({ sandbox_id: id }) => id === sandbox)).toBe(true);
        const seen = new Set<string>();
        const events = client.stream("SandboxService/WatchEvents", {}, { deadline: Date.now() + 5_000 });
        try {
          for await (const { event } of events) {
            if (event) seen.add(event.sandbox_id);
            if (event?.type === "SANDBOX_EVENT_TYPE_RUNNING") break;
          }
        } finally {
          events.cancel();
        }
        expect([...seen]).toEqual([sandbox]);

        const none = { code: "NOT_FOUND" };
        expect(await failureOf(client.getSandbox(other.sandbox))).toMatchObject(none);
        expect(await failureOf(client.output(other.sandbox, "true"))).toMatchObject(none);
        // Deleting an unknown sandbox succeeds; the other's still exists, as its own tenant sees.
        await client.deleteSandbox(other.sandbox);
        const foreign = { sandbox_id: other.sandbox };
        expect(await failureOf(client.call("ProcessService/ListProcesses", foreign))).toMatchObject(none);
        const process = { process_id: other.processId };
        expect(await failureOf(client.call("ProcessService/GetProcess", process))).toMatchObject(none);
        expect(await failureOf(client.attach(other.processId).result)).toMatchObject(none);
      }),
    );
    for (const { name, client, sandbox } of tenants) {
      expect(await client.output(sandbox, "cat /tmp/whose")).toBe(`${name}\n`);
    }
  }

  test(
    "no tenant sees another's sandbox, processes or events, and both replicas have tenants",
    async () => {
      await expectApart();
      expect(new Set(tenants.map(({ replica }) => replica))).toEqual(new Set(REPLICAS));
    },
    WAIT_MS,
  );

  test("a killed replica disturbs only its own tenants, and comes back with their sandboxes", async () => {
    const [here, there] = [0, 1].map((replica) => tenants.filter((one) => one.replica === replica));
    const failed = new Map<string, string[]>();
    const calls = new Map<string, number>();
    const stop = new AbortController();
    const callers = tenants.map(async ({ name, client, sandbox }) => {
      while (!stop.signal.aborted) {
        calls.set(name, (calls.get(name) ?? 0) + 1);
        await client.output(sandbox, "cat /tmp/whose").then(
          (text) => expect(text).toBe(`${name}\n`),
          async (error: unknown) => {
            const { code, message } = await failureOf(Promise.reject(error));
            failed.set(name, [...(failed.get(name) ?? []), `${code}: ${message}`]);
          },
        );
        await sleep(50);
      }
    });
    await eventually(() => tenants.every(({ name }) => (calls.get(name) ?? 0) > 2), { timeoutMs: WAIT_MS });

    const pod = `${RELEASE}-berth-0`;
    const uid = ["get", "pod", pod, WHERE, "--output=jsonpath={.metadata.uid}"];
    const before = await kubectl(uid);
    const killedAt = performance.now();
    await kubectl(["delete", "pod", pod, WHERE, "--grace-period=0", "--force"]);
    const cut = await Promise.all((here ?? []).map(({ running }) => failureOf(running.result)));
    await eventually(async () => ![before, undefined].includes(await kubectl(uid).catch(() => undefined)), {
      timeoutMs: WAIT_MS,
    });
    await kubectl(["wait", "--for=condition=Ready", `pod/${pod}`, WHERE, "--timeout=55s"]);
    for (const { client, sandbox } of here ?? []) {
      const back = () => client.output(sandbox, "true").catch(() => undefined);
      await eventually(async () => (await back()) !== undefined, { timeoutMs: WAIT_MS });
    }
    const seconds = ((performance.now() - killedAt) / 1000).toFixed(1);
    stop.abort();
    await Promise.all(callers);

    const kinds = [...new Set([...failed.values()].flat())];
    console.info(`a killed replica: its tenants were served again after ${seconds} s; they read`, kinds);
    console.info(`streams that ran ended with`, [
      ...new Set(cut.map(({ code, message }) => `${code}: ${message}`)),
    ]);
    for (const { name } of there ?? []) expect(failed.get(name)).toBeUndefined();
    expect(kinds.length).toBeGreaterThan(0);
    for (const kind of kinds) expect(kind).toMatch(/^UNAVAILABLE: /);
    for (const { running } of there ?? []) expect(running.output.stdout.toString()).toMatch(/ runs\n$/);
    await expectApart();
  }, 300_000);

  test("everything is deleted: no pod is left, and every lease is released", async () => {
    await Promise.all(tenants.map(({ client, sandbox }) => client.deleteSandbox(sandbox)));
    const within = `--namespace=${SANDBOXES}`;
    expect(await kubectl(["get", "pods", within, "--output=name"])).toBe("");
    type Leases = { items: { spec: { holderIdentity?: string } }[] };
    const holders = async (): Promise<string[]> => {
      const { items } = JSON.parse(await kubectl(["get", "leases", within, "--output=json"])) as Leases;
      return items.map(({ spec }) => spec.holderIdentity ?? "");
    };
    expect((await holders()).filter(Boolean)).toHaveLength(REPLICAS.length);
    // Not with helm uninstall, which immediately removes the permission to release them.
    await kubectl(["scale", "statefulset", `${RELEASE}-berth`, WHERE, "--replicas=0"]);
    await eventually(async () => (await kubectl(["get", "pods", WHERE, "--output=name"])) === "", {
      timeoutMs: WAIT_MS,
    });
    expect((await holders()).filter(Boolean)).toEqual([]);
    await helm("uninstall", RELEASE, WHERE, "--wait");
  }, 300_000);
});
