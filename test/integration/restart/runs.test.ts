import { setTimeout as sleep } from "node:timers/promises";
import { expect, test } from "vitest";
import { AGENT_COMMAND, AGENT_ENV, AgentProgram } from "../../support/agent-program.ts";
import { expectNoContainers } from "../../support/app.ts";
import { Client } from "../../support/client.ts";
import { eventually } from "../../support/eventually.ts";
import { LastingService } from "../../support/lasting-service.ts";
import { seededRandom } from "../../support/random.ts";
import { RunDriver } from "../../support/run-driver.ts";
import { scaled } from "../../support/scale.ts";
import { seconds } from "../../support/wire.ts";

const RUNS = scaled(200, 12);
const ENDS = ["FINISHED", "MAX_STEPS", "ERROR", "CANCELED", "LEASE_EXPIRED"] as const;
/** How many of them are driven by their own program, which is killed. */
const KILLED = scaled(8, 2);
/** A machine can only create so many containers at once. */
const MAX_STARTS = 8;

test(`${RUNS} runs at once end as they should while the service is killed, and leave nothing`, {
  timeout: 540_000,
}, async () => {
  await using service = await LastingService.start({ BERTH_MAX_SANDBOXES: String(RUNS) });
  const client = new Client(service.address);
  const random = seededRandom(11);

  /** Repeats a call until the service answers it. */
  const insist = <T>(call: () => Promise<T>): Promise<T> =>
    eventually<{ value: T } | undefined>(
      async () => {
        try {
          return { value: await call() };
        } catch (error) {
          // UNAVAILABLE, or CANCELLED because of a broken connection.
          if (![1, 14].includes((error as { code?: number }).code ?? 0)) throw error;
          return undefined;
        }
      },
      { timeoutMs: 300_000 },
    ).then(({ value }) => value);

  let starting = RUNS - KILLED;
  const allStarted = Promise.withResolvers<void>();
  const lanes = Array.from({ length: MAX_STARTS }, () => Promise.resolve<unknown>(undefined));
  /** Limits the number of concurrent starts. */
  const inTurn = <T>(index: number, start: () => Promise<T>): Promise<T> => {
    const lane = index % MAX_STARTS;
    const turn = (lanes[lane] ?? Promise.resolve()).then(start);
    lanes[lane] = turn.catch(() => {});
    return turn;
  };

  const ofKilledClient = async (index: number): Promise<void> => {
    const setup = { address: service.address, sandbox: true, step_timeout: 5 };
    const agent = new AgentProgram(AGENT_COMMAND, AGENT_ENV, setup);
    const { runId } = await inTurn(index, () =>
      eventually(
        async () => {
          agent.tell({ do: "run", steps: [{ sleep: 1000 }] });
          const told = await agent.next();
          if (told.step !== undefined) return told;
          // The service was away for longer than the agent waits, so it starts again.
          await agent.do({ do: "close" });
          return undefined;
        },
        { timeoutMs: 300_000 },
      ),
    );
    await agent.end("SIGKILL");
    await endOf(runId, "LEASE_EXPIRED", []);
  };

  const endOf = async (runId: string, end: string, lines: readonly string[]): Promise<void> => {
    const ended = await eventually(
      async () => {
        await sleep(200);
        const { run } = await insist(() => client.call("RunService/GetRun", { run_id: runId }));
        return run.end_time !== null && run.sandbox_id === "" && run;
      },
      { timeoutMs: 300_000 },
    );
    expect(ended.outcome).toBe(`RUN_OUTCOME_${end}`);
    expect(ended.summary).toBe(lines.join("\n") || "No steps executed");
  };

  const drive = async (index: number): Promise<void> => {
    const end = ENDS[Math.floor(random() * ENDS.length)] ?? "FINISHED";
    const silent = end === "LEASE_EXPIRED";
    const { run } = await insist(() =>
      client.call("RunService/CreateRun", {
        request_id: `create-${index}`,
        sandbox_spec: {},
        max_steps: 3,
        step_timeout: seconds(silent ? 3 : 600),
      }),
    );
    const start = { request_id: `start-${index}`, run_id: run.run_id };
    const started = await inTurn(index, () => insist(() => client.call("RunService/StartRun", start)));
    starting -= 1;
    if (starting === 0) allStarted.resolve();
    if (!silent) await allStarted.promise;
    // Nobody waits for its process: the end of the run must end it.
    const sandboxId = started.run.sandbox_id;
    client.exec(sandboxId, "sleep 1000", { run_id: run.run_id, on_disconnect: "ON_DISCONNECT_DETACH" });
    if (end === "CANCELED") await insist(() => client.call("RunService/CancelRun", { run_id: run.run_id }));
    for (let step = 1; step <= 3 && !silent && end !== "CANCELED"; step++) {
      await sleep(random() * 2_000);
      const outcome = step < 3 || end === "MAX_STEPS" ? "CONTINUE" : end;
      const report = {
        run_id: run.run_id,
        start_id: started.next_step.start_id,
        step,
        result: `r${step}`,
        outcome: `STEP_OUTCOME_${outcome}`,
      };
      await insist(() => client.call("RunService/ReportStep", report));
    }
    const lines = silent || end === "CANCELED" ? [] : ["Step 1: r1", "Step 2: r2", "Step 3: r3"];
    if (end === "MAX_STEPS") lines.push("Terminated: Reached max steps (3)");
    await endOf(run.run_id, end, lines);
  };

  const all = Promise.all(
    Array.from({ length: RUNS }, (_, index) => (index < KILLED ? ofKilledClient(index) : drive(index))),
  );
  let over = false;
  const done = all.finally(() => {
    over = true;
  });
  done.catch(() => {});
  for (let kills = 0; kills < scaled(4, 2) && !over; kills++) {
    await sleep(scaled(15_000, 3_000));
    await service.kill();
    await service.begin();
  }
  await done;
  expect((await client.call("SandboxService/GetStats")).total_sandboxes).toBe(0);
  const running = await client.call("RunService/ListRuns", { states: ["RUN_STATE_RUNNING"] });
  expect(running.runs).toEqual([]);
  const driver = await RunDriver.start(client);
  await driver.delete();
  client.close();
  await expectNoContainers(service.instance);
});
