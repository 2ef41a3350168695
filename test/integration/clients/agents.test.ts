import { execFile } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import {
  AGENT_COMMAND,
  AGENT_ENV,
  AgentHost,
  AgentProgram,
  type HostedAgent,
} from "../../support/agent-program.ts";
import { expectNoContainers } from "../../support/app.ts";
import { Client } from "../../support/client.ts";
import { CuttingLink } from "../../support/cutting-link.ts";
import { eventually } from "../../support/eventually.ts";
import { TEST_IMAGE } from "../../support/images.ts";
import { LastingService } from "../../support/lasting-service.ts";

const run = promisify(execFile);
const root = path.join(import.meta.dirname, "../../..");
const WARNING =
  "Observed duplicate responses. Consider new strategies and avoid repeating ineffective paths already attempted.";

let service: LastingService;
let client: Client;
let packageDir: string;
let python: string;

// Only against hangs: on first use it creates the environment.
beforeAll(async () => {
  const requirements = path.join(import.meta.dirname, "requirements.txt");
  const env = await run(path.join(root, "scripts/python-env.sh"), ["python-stubs", requirements]);
  python = path.join(env.stdout.trim(), "bin/python");
  packageDir = await mkdtemp(path.join(tmpdir(), "berth-python-"));
  // As users install it from a checkout. Without an index it needs no network either.
  const pip = ["-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-index", "--no-deps"];
  await run(python, [...pip, "--target", packageDir, path.join(root, "clients/python")]);
  service = await LastingService.start();
  client = new Client(service.address);
}, 600_000);

afterAll(async () => {
  client?.close();
  await service?.[Symbol.asyncDispose]();
  if (packageDir) await rm(packageDir, { recursive: true, force: true });
});

// Without the caller's environment, so that no proxy is used between a client and the service on loopback.
const classes: [string, () => { command: string[]; env: NodeJS.ProcessEnv; example: string[] }][] = [
  [
    "TypeScript",
    () => ({
      command: [...AGENT_COMMAND],
      env: AGENT_ENV,
      example: [
        process.execPath,
        "--conditions=@berth/source",
        path.join(root, "clients/typescript/examples/fix-test.ts"),
      ],
    }),
  ],
  [
    "Python",
    () => ({
      command: [python, path.join(import.meta.dirname, "agent_driver.py")],
      env: { PYTHONPATH: packageDir },
      example: [python, path.join(root, "clients/python/examples/fix_test.py")],
    }),
  ],
];

type ClientClass = (typeof classes)[number][1];

function beginOf(of: ClientClass, setup: object): AgentProgram {
  const { command, env } = of();
  return new AgentProgram(command, env, { address: service.address, ...setup });
}

async function expectGone(sandboxId: unknown): Promise<void> {
  await eventually(
    async () => (await client.getSandbox(String(sandboxId))).state === "SANDBOX_STATE_TERMINATED",
  );
}

describe.concurrent.each(classes)("the agent class of %s", (_, of) => {
  /** The agents of most cases share a program, because its start takes longer than all that they do. */
  let host: AgentHost;
  beforeAll(() => {
    const { command, env } = of();
    host = new AgentHost(command, env);
  });
  afterAll(() => host?.end());
  const begin = (setup: object = {}): HostedAgent => host.begin({ address: service.address, ...setup });

  test("runs to FINISHED, starts only from IDLE, and runs again after a reset", async () => {
    const agent = begin({ sandbox: true, next_step_prompt: "Go on." });
    const steps = [{ result: "looked" }, { result: "done", finished: true }];
    const first = await agent.do({ do: "run", request: "Do it.", steps });
    expect(first).toMatchObject({
      done: {
        state: "FINISHED",
        outcome: "FINISHED",
        message: "done",
        summary: "Step 1: looked\nStep 2: done",
        seen: [
          { number: 1, prompt: "Go on.", sandboxId: expect.stringMatching(/^sbx_/) },
          { number: 2, prompt: "Go on." },
        ],
      },
      agentState: "FINISHED",
      currentStep: 2,
    });
    const { run: kept } = await client.call("RunService/GetRun", {
      run_id: first.runId,
      include_messages: true,
    });
    expect(
      kept.messages.map(({ role, content }) => [role.replace("RUN_MESSAGE_ROLE_", ""), content]),
    ).toEqual([
      ["USER", "Do it."],
      ["ASSISTANT", "looked"],
      ["ASSISTANT", "done"],
    ]);
    expect(kept.sandbox_id).toBe("");
    const refused = await agent.do({ do: "run", steps });
    expect(refused.done).toMatchObject({ raised: "Cannot run agent from state: FINISHED" });
    expect(await agent.do({ do: "reset" })).toMatchObject({ agentState: "IDLE", currentStep: 0 });
    const again = await agent.do({ do: "run", steps: [{ result: "at once", finished: true }] });
    expect(again).toMatchObject({ done: { summary: "Step 1: at once" }, runId: first.runId });
    expect(await agent.do({ do: "close" })).toMatchObject({ agentState: "IDLE", runId: "" });
    const [seen] = (first.done?.seen ?? []) as { sandboxId: string }[];
    await expectGone(seen?.sandboxId);
  });

  test("reaches the step limit: IDLE again; a finish on the last step is FINISHED", async () => {
    const agent = begin({ max_steps: 2 });
    const spent = await agent.do({ do: "run", steps: [{ result: "a" }] });
    expect(spent).toMatchObject({
      done: {
        state: "IDLE",
        outcome: "MAX_STEPS",
        summary: "Step 1: a\nStep 2: a\nTerminated: Reached max steps (2)",
      },
      agentState: "IDLE",
      currentStep: 0,
    });
    const finished = await agent.do({ do: "run", steps: [{ result: "a" }, { result: "b", finished: true }] });
    expect(finished.done).toMatchObject({ outcome: "FINISHED", summary: "Step 1: a\nStep 2: b" });
    await agent.do({ do: "close" });
    const says = Array.from({ length: 60 }, (_, index) => `word ${index}`);
    const { runId } = await agent.do({ do: "run", steps: [{ result: "a", says }] });
    const request = { run_id: runId, include_messages: true };
    const { messages } = (await client.call("RunService/GetRun", request)).run;
    expect(messages.map(({ content }) => content)).toEqual([...says.slice(20), ...says]);
    await agent.do({ do: "close" });
  });

  test("ends in ERROR when a step fails, and cleans up", async () => {
    const agent = begin({ sandbox: true });
    agent.tell({ do: "run", steps: [{ result: "a" }, { raise: "it broke" }] });
    const { sandboxId } = await agent.next();
    const failed = await agent.done();
    expect(failed).toMatchObject({ done: { raised: "it broke" }, agentState: "ERROR", currentStep: 2 });
    const { run: kept } = await client.call("RunService/GetRun", { run_id: failed.runId });
    expect(kept).toMatchObject({
      state: "RUN_STATE_ERROR",
      outcome: "RUN_OUTCOME_ERROR",
      summary: "Step 1: a\nStep 2: it broke",
      sandbox_id: "",
    });
    await expectGone(sandboxId);
  });

  test("ends in ERROR when a step uses an unknown role, and names the known roles", async () => {
    const agent = begin();
    const wrong = await agent.do({ do: "run", steps: [{ result: "a", says: ["a"], role: "CRITIC" }] });
    expect(wrong).toMatchObject({
      done: { raised: expect.stringMatching(/CRITIC.*USER.*SYSTEM.*ASSISTANT.*TOOL/) },
      agentState: "ERROR",
    });
    const { run: kept } = await client.call("RunService/GetRun", { run_id: wrong.runId });
    expect(kept).toMatchObject({ state: "RUN_STATE_ERROR", outcome: "RUN_OUTCOME_ERROR" });
  });

  test("may say more than a run stores: text that is too long is cut, between two characters", async () => {
    const agent = begin();
    const long = { result: "xé", times: 200_000 };
    const steps = [long, { ...long, says: ["ab", "yé"], finished: true }];
    const { done, runId } = await agent.do({ do: "run", steps });
    expect(done).toMatchObject({ outcome: "FINISHED" });
    const kept = (await client.call("RunService/GetRun", { run_id: runId, include_messages: true })).run;
    const result = `${"xé".repeat(5461)}x`;
    expect(kept.steps.map((step) => step.result)).toEqual([result, result]);
    const whole = (text: string) => `${text.repeat(87_381)}${text[0]}`;
    expect(kept.messages.map(({ content }) => content)).toEqual([
      whole("xé"),
      "ab".repeat(131_072),
      whole("yé"),
    ]);
    await agent.do({ do: "close" });
  });

  test("leaves a sandbox that existed before its run, unless it is to delete it", async () => {
    const { sandbox_id: id } = await client.createSandbox();
    const steps = [{ result: "done", finished: true }];
    const agent = beginOf(of, { sandbox_id: id });
    expect((await agent.do({ do: "run", steps })).done).toMatchObject({ outcome: "FINISHED" });
    await agent.do({ do: "close" });
    await agent.end();
    expect(await client.output(id, "echo usable")).toBe("usable\n");
    const taking = begin({ sandbox_id: id, keep_sandbox: false });
    expect((await taking.do({ do: "run", steps })).done).toMatchObject({ outcome: "FINISHED" });
    await expectGone(id);
  });

  test("creates its run once, although the answers are lost on the way", async () => {
    // Cuts in the service's greeting, between it and the response, and in that response.
    const link = await CuttingLink.to(service.address, "reset", [20, 70, 110, 150, 200]);
    const name = `once-${link.address}`;
    const agent = begin({ address: link.address, name });
    try {
      const steps = [{ result: "done", finished: true }];
      expect(await agent.do({ do: "run", steps })).toMatchObject({ done: { outcome: "FINISHED" } });
      expect(link.cuts).toBe(5);
      const { runs } = await client.call("RunService/ListRuns", { page_size: 1000 });
      expect(runs.filter((each) => each.name === name)).toHaveLength(1);
      // The next run is another one.
      const { runId } = await agent.do({ do: "close" });
      expect(runId).toBe("");
      expect(await agent.do({ do: "run", steps })).toMatchObject({ done: { outcome: "FINISHED" } });
      await agent.do({ do: "close" });
    } finally {
      link.close();
    }
  });

  test("is warned once in the next prompt when it repeats itself", async () => {
    const agent = begin({ next_step_prompt: "Go on.", max_steps: 5 });
    const steps = ["a", "a", "a", "a", "b"].map((text) => ({ result: text, says: [text] }));
    const { done } = await agent.do({ do: "run", steps });
    const warned = `${WARNING}\nGo on.`;
    const prompts = ["Go on.", "Go on.", "Go on.", warned, warned];
    expect(done).toMatchObject({ seen: prompts.map((prompt) => ({ prompt })) });
  });

  test("keeps its lease through a step longer than the step timeout", async () => {
    const agent = begin({ step_timeout: 6 });
    const { done } = await agent.do({ do: "run", steps: [{ result: "slow", sleep: 8, finished: true }] });
    expect(done).toMatchObject({ outcome: "FINISHED" });
  });

  test("stops at its step when the run is canceled or times out", async () => {
    const agent = begin({ step_timeout: 9 });
    agent.tell({ do: "run", steps: [{ sleep: 1000 }] });
    const { runId } = await agent.next();
    await client.call("RunService/CancelRun", { run_id: runId });
    expect(await agent.done()).toMatchObject({ done: { outcome: "CANCELED" }, agentState: "ERROR" });
    const late = begin({ step_timeout: 9, max_duration: 1 });
    expect(await late.do({ do: "run", steps: [{ sleep: 1000 }] })).toMatchObject({
      done: { outcome: "DEADLINE" },
    });
  });

  test("returns how its run ended, even if the step failed because of that", async () => {
    const agent = begin();
    agent.tell({ do: "run", steps: [{ outlast: true, raise: "its command was killed" }] });
    const { runId } = await agent.next();
    await client.call("RunService/CancelRun", { run_id: runId });
    expect(await agent.done()).toMatchObject({ done: { outcome: "CANCELED" }, agentState: "ERROR" });
  });

  test("ends its step at once when it is canceled or closed, and works on no later run", async () => {
    const agent = begin();
    agent.tell({ do: "run", steps: [{ outlast: true }] });
    const { runId } = await agent.next();
    agent.tell({ do: "cancel", meanwhile: true });
    const ended = { outcome: "CANCELED", seen: [{ number: 1 }] };
    const dones = [await agent.done(), await agent.done()].map(({ done }) => done);
    expect(dones.find((done) => done && "outcome" in done)).toMatchObject(ended);
    expect(await agent.do({ do: "reset" })).toMatchObject({ agentState: "IDLE", runId });

    agent.tell({ do: "run", steps: [{ outlast: true }] });
    await agent.next();
    agent.tell({ do: "close", meanwhile: true });
    expect(await agent.done()).toMatchObject({ done: ended, runId });
    expect(await agent.done()).toMatchObject({ done: {}, agentState: "IDLE", runId: "" });
    await expect(client.call("RunService/GetRun", { run_id: runId })).rejects.toThrow("There is no run");
    const next = await agent.do({ do: "run", steps: [{ result: "a" }, { result: "b", finished: true }] });
    expect(next).toMatchObject({ done: { outcome: "FINISHED", summary: "Step 1: a\nStep 2: b" } });
    expect(next.runId).not.toBe(runId);
    await agent.do({ do: "close" });
  });

  test("that is killed loses its lease, and its sandbox is deleted", async () => {
    const agent = beginOf(of, { sandbox: true, step_timeout: 6 });
    agent.tell({ do: "run", steps: [{ sleep: 1000 }] });
    const { runId, sandboxId } = await agent.next();
    expect(await client.output(sandboxId ?? "", "echo usable")).toBe("usable\n");
    await agent.end("SIGKILL");
    await eventually(
      async () =>
        (await client.call("RunService/GetRun", { run_id: runId })).run.outcome ===
        "RUN_OUTCOME_LEASE_EXPIRED",
    );
    await expectGone(sandboxId);
  });

  test("fixes a failing test in a sandbox: the example", async () => {
    const { example, env } = of();
    const [file = "", ...args] = example;
    const { stdout } = await run(file, [...args, service.address, TEST_IMAGE], { env, timeout: 150_000 });
    expect(stdout.trim().split("\n")).toEqual([
      "Step 1: the test fails",
      "Step 2: fixed calc.py",
      "Step 3: the test passes",
      "FINISHED",
    ]);
  });
});

test("both continue when the service is killed and restarted, during a step and during a report", async () => {
  const agents = classes.map(([, of]) => beginOf(of, { sandbox: true, step_timeout: 60 }));
  const each = <T>(act: (agent: AgentProgram) => Promise<T>): Promise<T[]> => Promise.all(agents.map(act));
  for (const agent of agents) {
    agent.tell({
      do: "run",
      steps: [{ result: "a", sleep: 1 }, { result: "b" }, { result: "c", sleep: 1, finished: true }],
    });
  }
  const begun = await each((agent) => agent.next());
  await service.kill();
  await service.begin();
  for (const step of [2, 3]) {
    const told = await each((agent) => agent.next());
    expect(told).toMatchObject(begun.map(({ sandboxId }) => ({ step, sandboxId })));
  }
  await service.kill();
  await service.begin();
  const done = { outcome: "FINISHED", summary: "Step 1: a\nStep 2: b\nStep 3: c" };
  expect(await each((agent) => agent.done())).toMatchObject(agents.map(() => ({ done })));
  await each((agent) => agent.end());
});

test("they leave nothing", async () => {
  await expectNoContainers(service.instance);
  expect((await client.call("SandboxService/GetStats")).total_sandboxes).toBe(0);
});
