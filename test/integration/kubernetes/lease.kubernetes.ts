import { createHash } from "node:crypto";
import { afterAll, describe, expect, test } from "vitest";
import { LEASE_SECONDS } from "../../../src/engine/kubernetes/lease.ts";
import { Client, failureOf } from "../../support/client.ts";
import { eventually } from "../../support/eventually.ts";
import { kubectl, NAMESPACE } from "../../support/kubernetes.ts";
import { ServeProcess, type ServeSettings } from "../../support/program.ts";
import { newDataDir, newInstance } from "../../support/settings.ts";

const ENV = { BERTH_ENGINE: "kubernetes", BERTH_NETWORK_POLICY: "open", BERTH_LOG_FORMAT: "json" };
const instances: string[] = [];

const services: ServeProcess[] = [];

async function serve(settings: Pick<ServeSettings, "instance" | "dataDir">): Promise<ServeProcess> {
  const service = await ServeProcess.start([], ENV, settings);
  services.push(service);
  return service;
}

function instance(): string {
  const made = newInstance();
  instances.push(made);
  return made;
}

/** The name of an instance's lease. */
function leaseName(of: string): string {
  return `berth-${createHash("sha256").update(of).digest("hex").slice(0, 32)}`;
}

async function lease(of: string): Promise<{ holderIdentity: string; leaseTransitions: number }> {
  const args = ["get", "lease", leaseName(of), `--namespace=${NAMESPACE}`, "--output=json"];
  return JSON.parse(await kubectl(args)).spec;
}

async function readiness(service: ServeProcess): Promise<readonly [number, string]> {
  const answer = await fetch(`http://${service.address}/readyz`);
  return [answer.status, await answer.text()];
}

afterAll(async () => {
  await Promise.all(services.map((service) => service.dispose()));
  for (const name of instances) {
    const pods = ["delete", "pods", `--namespace=${NAMESPACE}`, `--selector=berth.dev/instance=${name}`];
    await kubectl(pods);
    await kubectl(["delete", "lease", leaseName(name), `--namespace=${NAMESPACE}`, "--ignore-not-found"]);
  }
});

describe("an instance that two services want", () => {
  test("is refused to the second, with the first one's name, until that one is gone", async () => {
    const shared = { instance: instance() };
    const first = await serve(shared);
    const { holderIdentity } = await lease(shared.instance);
    const refused = await serve(shared).then(
      () => "",
      (error: Error) => error.message,
    );
    expect(refused).toContain(`another service, "${holderIdentity}", has the instance`);

    await first.stop("SIGKILL");
    const killedAt = performance.now();
    const second = await serve(shared);
    const waitedMs = performance.now() - killedAt;
    console.info(
      `the next service had the instance ${(waitedMs / 1000).toFixed(1)} s after the end of the first`,
    );
    // The whole duration: the killed holder may only seem to be dead.
    expect(waitedMs).toBeGreaterThan(LEASE_SECONDS * 1000);
    expect(waitedMs).toBeLessThan((LEASE_SECONDS + 15) * 1000);
    expect((await lease(shared.instance)).holderIdentity).not.toBe(holderIdentity);

    const began = performance.now();
    await second.stop();
    expect((await lease(shared.instance)).holderIdentity).toBeFalsy();
    const third = await serve(shared);
    // After a clean exit it is free at once.
    expect(performance.now() - began).toBeLessThan(12_000);
    await third.stop();
  }, 300_000);

  test("is the same service's again at once after a crash", async () => {
    const own = { instance: instance(), dataDir: newDataDir() };
    const first = await serve(own);
    await first.stop("SIGKILL");
    const began = performance.now();
    const second = await serve(own);
    expect(performance.now() - began).toBeLessThan(12_000);
    await second.stop();
  }, 180_000);

  test("lost by a running service makes it say so, and create and remove nothing more", async () => {
    const own = { instance: instance() };
    const service = await serve(own);
    const client = new Client(service.address);
    const { sandbox_id: id } = await client.createSandbox();
    // Clocks do not matter: the other one is a year behind.
    const spec = { holderIdentity: "other", renewTime: "2025-11-23T00:00:00.000000Z" };
    const metadata = { annotations: { "berth.dev/run": "other" } };
    const patch = `--patch=${JSON.stringify({ metadata, spec })}`;
    await kubectl([
      "patch",
      "lease",
      leaseName(own.instance),
      `--namespace=${NAMESPACE}`,
      "--type=merge",
      patch,
    ]);

    await expect.poll(async () => (await readiness(service))[0], { timeout: 30_000 }).toBe(503);
    expect((await readiness(service))[1]).toContain('Another service, "other", took the instance');
    expect(await failureOf(client.createSandbox())).toMatchObject({ reason: "ENGINE_UNAVAILABLE" });
    expect(await failureOf(client.deleteSandbox(id))).toMatchObject({ reason: "ENGINE_UNAVAILABLE" });
    const pods = ["get", "pods", `--namespace=${NAMESPACE}`, `--selector=berth.dev/instance=${own.instance}`];
    expect((await kubectl([...pods, "--output=name"])).trim().split("\n")).toHaveLength(1);
    client.close();
    const { stderr } = await service.stop();
    expect(stderr).toContain("lost the instance");
    expect((await lease(own.instance)).holderIdentity).toBe("other");
  }, 120_000);

  test("another service's clock does not count", async () => {
    const own = { instance: instance() };
    // It renews the lease, with times in the past.
    const write = (second: number, verb: string): Promise<string> => {
      const renewTime = new Date(Date.UTC(2001) + second * 1000).toISOString().replace("Z", "000Z");
      const spec = { holderIdentity: "behind", leaseDurationSeconds: 15, renewTime };
      const metadata = { name: leaseName(own.instance) };
      const body = { apiVersion: "coordination.k8s.io/v1", kind: "Lease", metadata, spec };
      return kubectl([verb, `--namespace=${NAMESPACE}`, "--filename=-"], { input: JSON.stringify(body) });
    };
    await write(0, "create");
    const starting = serve(own).then(
      () => "it had the instance",
      (error: Error) => error.message,
    );
    let isOver = false;
    void starting.finally(() => {
      isOver = true;
    });
    let second = 0;
    await eventually(
      async () => {
        await write(++second, "replace");
        return isOver;
      },
      { timeoutMs: 40_000 },
    );
    expect(await starting).toContain('another service, "behind", has the instance');
  }, 60_000);
});
