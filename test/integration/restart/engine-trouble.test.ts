import { afterAll, beforeAll, expect, test } from "vitest";
import { startTestApp, type TestApp } from "../../support/app.ts";
import { failureOf } from "../../support/client.ts";
import { containerOf } from "../../support/docker.ts";
import { eventually } from "../../support/eventually.ts";
import { type Fault, FaultProxy } from "../../support/fault-proxy.ts";
import { healthOf } from "../../support/health.ts";

let proxy: FaultProxy;
let app: TestApp;
let id: string;

beforeAll(async () => {
  proxy = await FaultProxy.start();
  app = await startTestApp({ dockerHost: proxy.host });
  id = (await app.client.createSandbox()).sandbox_id;
});

afterAll(async () => {
  proxy.fault = "pass";
  await app.stop();
  await proxy.stop();
});

const engineAnswers = async (): Promise<boolean> =>
  (await app.client.call("SandboxService/GetStats")).engine.available;

test.each<Fault>(["refuse", "hang", "truncate"])(
  "while Docker's socket does %s, calls are refused with a time to retry; then everything recovers by itself",
  async (fault) => {
    proxy.fault = fault;
    await eventually(async () => !(await engineAnswers()));
    const deadline = { deadline: Date.now() + 120_000 };
    const refusals = await Promise.all([
      failureOf(app.client.call("SandboxService/CreateSandbox", {}, deadline)),
      failureOf(app.client.call("ProcessService/RunCommand", { sandbox_id: id, shell: "true" }, deadline)),
      failureOf(app.client.call("SandboxService/PauseSandbox", { sandbox_id: id }, deadline)),
    ]);
    for (const refusal of refusals) {
      expect(refusal).toMatchObject({ code: "UNAVAILABLE", reason: "ENGINE_UNAVAILABLE" });
      expect(refusal.retryAfterMs).toBeGreaterThan(0);
    }
    expect(await healthOf(app.app.address)).toBe("NOT_SERVING");
    expect((await app.client.getSandbox(id)).state).toBe("SANDBOX_STATE_RUNNING");
    proxy.fault = "pass";
    await eventually(engineAnswers);
    expect(await healthOf(app.app.address)).toBe("SERVING");
    await eventually(async () => (await app.client.output(id, "echo back").catch(() => "")) === "back\n");
    const made = await app.client.createSandbox();
    await app.client.deleteSandbox(made.sandbox_id);
    expect((await app.client.call("SandboxService/GetStats")).total_sandboxes).toBe(1);
  },
  300_000,
);

test("sandboxes deleted while Docker is down are removed when it is back", async () => {
  const { sandbox_id } = await app.client.createSandbox();
  proxy.fault = "refuse";
  await eventually(async () => !(await engineAnswers()));
  const refusal = await failureOf(app.client.deleteSandbox(sandbox_id));
  expect(refusal.reason).toBe("ENGINE_UNAVAILABLE");
  proxy.fault = "pass";
  await eventually(
    async () => (await app.client.getSandbox(sandbox_id)).state === "SANDBOX_STATE_TERMINATED",
  );
  expect((await app.client.getSandbox(sandbox_id)).termination?.cause).toBe("TERMINATION_CAUSE_DELETED");
});

test("a container that is removed while its event is in transit counts as removed, and not as lost", async () => {
  const way = await FaultProxy.start();
  const own = await startTestApp({ dockerHost: way.host });
  try {
    const { sandbox_id } = await own.client.createSandbox();
    const container = await containerOf(own.instance, sandbox_id);
    const letCome = way.holdEvents();
    await container.remove({ force: true });
    const ended = async (): Promise<boolean> =>
      (await own.client.getSandbox(sandbox_id)).state === "SANDBOX_STATE_TERMINATED";
    // Until the next complete listing of the engine.
    await eventually(ended, { timeoutMs: 150_000 });
    expect((await own.client.getSandbox(sandbox_id)).termination?.cause).toBe(
      "TERMINATION_CAUSE_REMOVED_EXTERNALLY",
    );
    letCome();
  } finally {
    await own.stop();
    await way.stop();
  }
});
