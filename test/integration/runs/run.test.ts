import { describe, expect, test } from "vitest";
import { useApp } from "../../support/app.ts";
import { failureOf } from "../../support/client.ts";
import { containersOf } from "../../support/docker.ts";
import { eventually } from "../../support/eventually.ts";
import { RunDriver } from "../../support/run-driver.ts";
import { withTimeEnough } from "../../support/time-enough.ts";
import { inSeconds, seconds } from "../../support/wire.ts";

const service = useApp();
const WARNING =
  "Observed duplicate responses. Consider new strategies and avoid repeating ineffective paths already attempted.";

describe("run", () => {
  test("a new run is IDLE, with the defaults", async () => {
    const run = await (await RunDriver.create(service.client, { name: "mine" })).get();
    expect(run).toMatchObject({
      run_id: expect.stringMatching(/^run_[a-z2-7]{20}$/),
      name: "mine",
      state: "RUN_STATE_IDLE",
      outcome: "RUN_OUTCOME_UNSPECIFIED",
      current_step: 0,
      max_steps: 10,
      duplicate_threshold: 2,
      max_duration: null,
      on_end: "RUN_ON_END_DELETE_SANDBOX",
      steps: [],
      summary: "No steps executed",
      sandbox_id: "",
      start_time: null,
      end_time: null,
      lease_expire_time: null,
      owner: "default",
    });
    expect(inSeconds(run.step_timeout)).toBe(300);
  });

  test("starts from IDLE with the request as the user's first message", async () => {
    const run = await RunDriver.create(service.client, { next_step_prompt: "What next?" });
    const started = await run.start("Count to three.");
    expect(started).toMatchObject({ state: "RUN_STATE_RUNNING", current_step: 1, message_count: 1 });
    expect(run.next).toMatchObject({ step: 1, prompt: "What next?", start_id: expect.stringMatching(/./) });
    expect(inSeconds(started.lease_expire_time) - inSeconds(started.start_time)).toBe(300);
    const { messages } = await run.get(true);
    expect(messages).toEqual([{ role: "RUN_MESSAGE_ROLE_USER", content: "Count to three." }]);
    expect((await run.get(true, 1)).messages).toEqual([]);
    expect((await run.get()).messages).toEqual([]);
  });

  test.each([
    ["RUNNING", async () => {}],
    ["FINISHED", (run: RunDriver) => run.finish()],
    ["ERROR", (run: RunDriver) => run.cancel()],
  ])("is refused from %s", async (state, bring) => {
    const run = await RunDriver.start(service.client);
    await bring(run);
    const before = await run.get();
    const failure = await failureOf(run.start());
    expect(failure).toMatchObject({ code: "FAILED_PRECONDITION", reason: "RUN_STATE" });
    expect(failure.message).toContain(`Cannot run agent from state: ${state}`);
    expect(failure.metadata).toMatchObject({ state });
    expect(await run.get()).toEqual(before);
  });
});

describe("the loop", () => {
  test("counts steps, records their lines, and ends FINISHED", async () => {
    const run = await RunDriver.start(service.client);
    expect(await run.report({ result: "looked" })).toMatchObject({ next_step: { step: 2 }, stuck: false });
    const end = await run.finish({ result: "done" });
    const summary = "Step 1: looked\nStep 2: done";
    expect(end).toEqual({
      state: "RUN_STATE_FINISHED",
      outcome: "RUN_OUTCOME_FINISHED",
      message: "done",
      summary,
    });
    expect(await run.get()).toMatchObject({
      state: "RUN_STATE_FINISHED",
      outcome: "RUN_OUTCOME_FINISHED",
      current_step: 2,
      summary,
      steps: [
        { step: 1, result: "looked", outcome: "STEP_OUTCOME_CONTINUE" },
        { step: 2, result: "done", outcome: "STEP_OUTCOME_FINISHED" },
      ],
      lease_expire_time: null,
    });
  });

  test("ends at the step limit: IDLE, step 0, and a line that says so; it can be started again", async () => {
    const run = await RunDriver.start(service.client, { max_steps: 2 });
    await run.report({ result: "a", says: ["hello"] });
    const { run_end: end } = await run.report({ result: "b" });
    const summary = "Step 1: a\nStep 2: b\nTerminated: Reached max steps (2)";
    const message = "Terminated: Reached max steps (2)";
    expect(end).toEqual({ state: "RUN_STATE_IDLE", outcome: "RUN_OUTCOME_MAX_STEPS", message, summary });
    expect(await run.get()).toMatchObject({
      state: "RUN_STATE_IDLE",
      current_step: 0,
      outcome: "RUN_OUTCOME_MAX_STEPS",
      summary,
    });
    const again = await run.start();
    expect(again).toMatchObject({
      current_step: 1,
      outcome: "RUN_OUTCOME_UNSPECIFIED",
      message_count: 1,
      steps: [],
    });
    expect(again.summary).toBe("No steps executed");
  });

  test("a finish on the last step allowed is FINISHED", async () => {
    const run = await RunDriver.start(service.client, { max_steps: 1 });
    expect(await run.finish({ result: "done" })).toMatchObject({
      outcome: "RUN_OUTCOME_FINISHED",
      summary: "Step 1: done",
    });
  });

  test("an error ends it in ERROR", async () => {
    const run = await RunDriver.start(service.client);
    expect(await run.finish({ outcome: "ERROR", result: "it broke" })).toEqual({
      state: "RUN_STATE_ERROR",
      outcome: "RUN_OUTCOME_ERROR",
      message: "it broke",
      summary: "Step 1: it broke",
    });
  });

  test("FINISHED and ERROR stay until a reset, which clears the steps", async () => {
    const run = await RunDriver.start(service.client);
    await run.finish({ says: ["bye"] });
    const reset = await run.reset();
    expect(reset).toMatchObject({
      state: "RUN_STATE_IDLE",
      outcome: "RUN_OUTCOME_UNSPECIFIED",
      current_step: 0,
      steps: [],
      message_count: 0,
      summary: "No steps executed",
      start_time: null,
      end_time: null,
    });
    expect(await run.start()).toMatchObject({ state: "RUN_STATE_RUNNING" });
    expect(await failureOf(run.reset())).toMatchObject({
      reason: "RUN_STATE",
      metadata: { state: "RUNNING" },
    });
  });
});

describe("stuck", () => {
  test("the next prompt begins with the warning, once, while the last message repeats earlier ones", async () => {
    const run = await RunDriver.start(service.client, { next_step_prompt: "Go on." });
    const prompts: (string | undefined)[] = [];
    const stuck: boolean[] = [];
    for (const says of ["a", "a", "a", "a", "b"]) {
      const answer = await run.report({ says: [says] });
      prompts.push(answer.next_step?.prompt);
      stuck.push(answer.stuck);
    }
    expect(stuck).toEqual([false, false, true, true, false]);
    const warned = `${WARNING}\nGo on.`;
    expect(prompts).toEqual(["Go on.", "Go on.", warned, warned, "Go on."]);
    expect((await run.get()).steps.map((step) => step.stuck)).toEqual(stuck);
  });

  test("an empty last message is not stuck, and the threshold is the run's own", async () => {
    const run = await RunDriver.start(service.client, { duplicate_threshold: 1 });
    expect((await run.report({ says: ["", "", ""] })).stuck).toBe(false);
    expect((await run.report({ says: ["a"] })).stuck).toBe(false);
    expect((await run.report({ says: ["a"] })).stuck).toBe(true);
  });
});

describe("memory", () => {
  test("keeps the newest 100 messages, of every role", async () => {
    const run = await RunDriver.start(service.client);
    const roles = ["USER", "SYSTEM", "ASSISTANT", "TOOL"].map((role) => `RUN_MESSAGE_ROLE_${role}`);
    const all = Array.from({ length: 150 }, (_, i) => ({ role: roles[i % 4], content: `message ${i}` }));
    await run.report({ more: { messages: all.slice(0, 90) } });
    await run.report({ more: { messages: all.slice(90) } });
    const { messages, message_count: count } = await run.get(true);
    expect(count).toBe(100);
    expect(messages).toEqual(all.slice(50));
  });
});

describe("time", () => {
  test("a silent caller loses its lease", async () => {
    const run = await RunDriver.start(service.client, { step_timeout: seconds(0.3) });
    const lost = await eventually(async () => {
      const now = await run.get();
      return now.state === "RUN_STATE_ERROR" && now;
    });
    expect(lost).toMatchObject({ outcome: "RUN_OUTCOME_LEASE_EXPIRED", summary: "No steps executed" });
    expect(lost.message).toMatch(/lease is lost/);
    const late = await failureOf(run.report());
    expect(late).toMatchObject({ code: "FAILED_PRECONDITION", reason: "RUN_STATE" });
    expect(late.metadata).toMatchObject({ state: "ERROR", current_step: "1", outcome: "LEASE_EXPIRED" });
  });

  test("heartbeats keep the lease through a step that is longer than it", async () => {
    const run = await RunDriver.start(service.client, {
      step_timeout: seconds(1000),
      max_duration: seconds(5000),
    });
    const before = await run.get();
    const answer = await service.client.call("RunService/KeepAliveRun", { run_id: run.runId, step: 1 });
    expect(inSeconds(answer.lease_expire_time)).toBeGreaterThanOrEqual(inSeconds(before.lease_expire_time));
    expect((await run.get()).lease_expire_time).toEqual(answer.lease_expire_time);
    const other = service.client.call("RunService/KeepAliveRun", { run_id: run.runId, step: 2 });
    expect(await failureOf(other)).toMatchObject({ reason: "RUN_STATE" });
  });

  test("a run that takes too long ends at its deadline, whatever is reported", async () => {
    const run = await RunDriver.start(service.client, { max_duration: seconds(0.5), max_steps: 1000 });
    const lost = await eventually(async () => {
      if ((await run.get()).state === "RUN_STATE_RUNNING") await run.report().catch(() => {});
      const now = await run.get();
      return now.state === "RUN_STATE_ERROR" && now;
    });
    expect(lost.outcome).toBe("RUN_OUTCOME_DEADLINE");
  });
});

describe("cleanup", () => {
  /** A run with its own sandbox and a process in it. */
  async function busy(
    more: object = {},
  ): Promise<{ run: RunDriver; sandboxId: string; exit: Promise<string> }> {
    const run = await RunDriver.create(service.client, { sandbox_spec: {}, ...more });
    const { sandbox_id: sandboxId } = await run.start();
    const execution = service.client.exec(sandboxId, "sleep 1000 & echo on; sleep 1000", {
      run_id: run.runId,
    });
    await execution.until("on");
    return { run, sandboxId, exit: execution.result.then(({ exit }) => exit.cause) };
  }

  const ends: [string, object | string, (run: RunDriver) => Promise<unknown>, string][] = [
    ["finish", {}, (run) => run.finish(), "FINISHED"],
    ["error", {}, (run) => run.finish({ outcome: "ERROR" }), "ERROR"],
    ["the most steps", { max_steps: 1 }, (run) => run.report(), "MAX_STEPS"],
    ["cancel", {}, (run) => run.cancel(), "CANCELED"],
    ["a lost lease", "step_timeout", ended, "LEASE_EXPIRED"],
    ["deadline", "max_duration", ended, "DEADLINE"],
  ];

  /** The same with a run that this setting ends, after its process runs. */
  async function busyUntil(what: object | string, more: object = {}): ReturnType<typeof busy> {
    if (typeof what === "object") return busy({ ...what, ...more });
    const start = (timeout: number) =>
      busy({ [what]: seconds(timeout), ...more }).catch((error: unknown) => ({ error }));
    const begun = await withTimeEnough(2, start, (one) => "run" in one);
    if ("error" in begun) throw begun.error;
    return begun;
  }

  async function ended(run: RunDriver): Promise<void> {
    await eventually(async () => (await run.get()).end_time !== null);
  }

  test.each(ends)(
    "on %s: processes are ended, and an existing sandbox stays",
    async (_, more, end, outcome) => {
      const { sandbox_id: id } = await service.client.createSandbox();
      const { run, exit } = await busyUntil(more, { sandbox_spec: undefined, sandbox_id: id });
      await end(run);
      expect(await exit).toBe("EXIT_CAUSE_CANCELED");
      await eventually(async () => (await run.get()).outcome === `RUN_OUTCOME_${outcome}`);
      expect(await service.client.output(id, "ps ax | grep -c '[s]leep 1000' || true")).toBe("0\n");
      await service.client.deleteSandbox(id);
    },
  );

  test.each(ends)(
    "on %s: processes and sandbox are removed, and no others",
    async (_, more, end, outcome) => {
      const other = await busy();
      const { run, sandboxId, exit } = await busyUntil(more);
      expect(sandboxId).not.toBe(other.sandboxId);
      await end(run);
      expect(await exit).toMatch(/CANCELED|SANDBOX_TERMINATED/);
      const now = await eventually(async () => {
        const found = await run.get();
        return found.sandbox_id === "" && found;
      });
      expect(now.outcome).toBe(`RUN_OUTCOME_${outcome}`);
      expect((await service.client.getSandbox(sandboxId)).state).toBe("SANDBOX_STATE_TERMINATED");
      const left = (await containersOf(service.instance)).map(({ Labels }) => Labels["berth.sandbox_id"]);
      expect(left).not.toContain(sandboxId);
      // The other run continues unaffected.
      expect((await other.run.get()).state).toBe("RUN_STATE_RUNNING");
      expect(await service.client.output(other.sandboxId, "echo fine")).toBe("fine\n");
      await other.run.delete();
      expect(await other.exit).toMatch(/CANCELED|SANDBOX_TERMINATED/);
    },
  );

  test("KEEP leaves the sandbox, and kills only the run's processes", async () => {
    const { run, sandboxId, exit } = await busy({ on_end: "RUN_ON_END_KEEP" });
    const own = service.client.exec(sandboxId, "echo on; sleep 1000");
    await own.until("on");
    await run.finish();
    expect(await exit).toBe("EXIT_CAUSE_CANCELED");
    expect(await run.get()).toMatchObject({ state: "RUN_STATE_FINISHED", sandbox_id: sandboxId });
    // Right after its output, the shell may not have started it yet.
    const count = () => service.client.output(sandboxId, "ps ax | grep -c '[s]leep 1000' || true");
    await expect.poll(count).toBe("2\n");
    own.cancel();
    await service.client.deleteSandbox(sandboxId);
  });

  // Kubernetes cannot pause a pod.
  const testPause = test.skipIf(process.env.BERTH_TEST_ENGINE === "kubernetes");
  testPause("KEEP kills the run's processes in a paused sandbox, too", async () => {
    const { run, sandboxId, exit } = await busy({ on_end: "RUN_ON_END_KEEP" });
    await service.client.call("SandboxService/PauseSandbox", { sandbox_id: sandboxId });
    await run.cancel();
    expect(await exit).toBe("EXIT_CAUSE_CANCELED");
    expect(await service.client.output(sandboxId, "ps ax | grep -c '[s]leep 1000' || true")).toBe("0\n");
    await service.client.deleteSandbox(sandboxId);
  });

  test("an existing sandbox stays unless the run deletes it; no two runs share one", async () => {
    const { sandbox_id: sandboxId } = await service.client.createSandbox();
    const first = await RunDriver.create(service.client, { sandbox_id: sandboxId });
    expect(await first.get()).toMatchObject({ on_end: "RUN_ON_END_KEEP" });
    const second = await RunDriver.create(service.client, {
      sandbox_id: sandboxId,
      on_end: "RUN_ON_END_DELETE_SANDBOX",
    });
    expect(await first.start()).toMatchObject({ sandbox_id: sandboxId });
    expect(await failureOf(second.start())).toMatchObject({
      code: "FAILED_PRECONDITION",
      reason: "SANDBOX_IN_USE",
      metadata: { run_id: first.runId },
    });
    await first.finish();
    expect(await first.get()).toMatchObject({ sandbox_id: sandboxId });
    expect((await service.client.getSandbox(sandboxId)).state).toBe("SANDBOX_STATE_RUNNING");
    await second.start();
    await second.finish();
    expect((await service.client.getSandbox(sandboxId)).state).toBe("SANDBOX_STATE_TERMINATED");
    expect(await failureOf(second.reset().then(() => second.start()))).toMatchObject({
      reason: "SANDBOX_NOT_RUNNING",
    });
    expect((await second.get()).state).toBe("RUN_STATE_IDLE");
  });

  test("a process of a run that is not RUNNING is refused", async () => {
    const { sandbox_id: sandboxId } = await service.client.createSandbox();
    const run = await RunDriver.create(service.client);
    for (const runId of [run.runId, "run_unknown"]) {
      const failure = await failureOf(service.client.run(sandboxId, "true", { run_id: runId }));
      expect(failure).toMatchObject({ code: "FAILED_PRECONDITION", reason: "RUN_STATE" });
    }
    await service.client.deleteSandbox(sandboxId);
  });

  test("a process of a run in a sandbox other than its own is killed, and that sandbox stays", async () => {
    const { sandbox_id: sandboxId } = await service.client.createSandbox();
    const run = await RunDriver.start(service.client);
    const execution = service.client.exec(sandboxId, "echo on; sleep 1000", { run_id: run.runId });
    await execution.until("on");
    await run.cancel();
    expect((await execution.result).exit.cause).toBe("EXIT_CAUSE_CANCELED");
    expect((await service.client.getSandbox(sandboxId)).state).toBe("SANDBOX_STATE_RUNNING");
    await service.client.deleteSandbox(sandboxId);
  });

  test("a run ends with its sandbox", async () => {
    const { run, sandboxId } = await busy();
    await service.client.call("SandboxService/DeleteSandbox", { sandbox_id: sandboxId, grace: seconds(0) });
    const now = await eventually(async () => {
      const found = await run.get();
      return found.state === "RUN_STATE_ERROR" && found;
    });
    expect(now).toMatchObject({ outcome: "RUN_OUTCOME_ERROR" });
    expect(now.message).toMatch(/lost its sandbox/);
  });

  test("a failed start leaves the run as it was, and no sandbox", async () => {
    const run = await RunDriver.create(service.client, {
      sandbox_spec: { image: "berth/no-such-image:none" },
    });
    const before = await run.get();
    expect(await failureOf(run.start("hello"))).toMatchObject({ reason: "IMAGE_UNAVAILABLE" });
    expect(await run.get()).toEqual(before);
  });

  test("the sandbox of a RUNNING run is in use: it does not expire as idle", async () => {
    const run = await RunDriver.create(service.client, { sandbox_spec: { idle_timeout: seconds(0.2) } });
    const { sandbox_id: sandboxId } = await run.start();
    const sandbox = await service.client.getSandbox(sandboxId);
    expect(sandbox).toMatchObject({ active_operations: 1, expire_time: null });
    await run.finish();
  });
});
