import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { expectContainers, expectNoContainers } from "../../support/app.ts";
import { Client } from "../../support/client.ts";
import { eventually } from "../../support/eventually.ts";
import { LastingService } from "../../support/lasting-service.ts";
import { FAILING_MAIN } from "../../support/program.ts";
import { seconds } from "../../support/wire.ts";
import type { Run } from "../../support/wire-runs.ts";
import { RUN_POINTS } from "./run-points.ts";

const directory = mkdtempSync(path.join(tmpdir(), "berth-failpoint-"));
const file = path.join(directory, "failpoint");
const failAt = (name: string): void => writeFileSync(file, name);
let service: LastingService;
let client: Client;

beforeAll(async () => {
  failAt("");
  service = await LastingService.start({ BERTH_TEST_FAILPOINT_FILE: file }, { entry: [FAILING_MAIN] });
  client = new Client(service.address);
});

afterAll(async () => {
  client?.close();
  await service?.[Symbol.asyncDispose]();
  rmSync(directory, { recursive: true, force: true });
});

/** Repeats a call until the service answers it. */
async function insist<T>(call: () => Promise<T>): Promise<T> {
  const answered = await eventually(() =>
    call().then(
      (value) => ({ value }),
      (error: { code?: number }) => {
        // UNAVAILABLE, or CANCELLED because of a broken connection.
        if (error.code === 14 || error.code === 1) return undefined;
        throw error;
      },
    ),
  );
  return answered.value;
}

/** A whole run, by a client that repeats each call until it is answered. */
async function wholeRun(name: string): Promise<Run> {
  const creation = { request_id: `create ${name}`, name, sandbox_spec: {}, step_timeout: seconds(600) };
  const create = () => client.call("RunService/CreateRun", creation);
  const created = await insist(create);
  const { run_id } = created.run;
  const start = () => client.call("RunService/StartRun", { request_id: `start ${name}`, run_id });
  const { run, next_step: next } = await insist(start);
  expect(run.state).toBe("RUN_STATE_RUNNING");
  await expectContainers(service.instance, 1);
  expect(await insist(() => client.output(run.sandbox_id, "echo usable"))).toBe("usable\n");
  const execution = client.exec(run.sandbox_id, "echo on; sleep 1000", {
    run_id,
    on_disconnect: "ON_DISCONNECT_DETACH",
  });
  execution.result.catch(() => {});
  await execution.until("on");
  // A repeated call gets the same answer, and creates nothing again.
  expect((await create()).run).toEqual(created.run);
  expect((await start()).next_step).toEqual(next);
  const startId = { start_id: next.start_id };
  const report = (step: number, outcome: string, known: object) => () =>
    client.call("RunService/ReportStep", {
      run_id,
      step,
      ...known,
      result: `r${step}`,
      outcome: `STEP_OUTCOME_${outcome}`,
    });
  // A report is recognized by its request id, and by its start.
  const first = report(1, "CONTINUE", { request_id: `report ${name}` });
  expect((await insist(first)).next_step?.step).toBe(2);
  const last = await insist(report(2, "FINISHED", startId));
  expect(last.run_end?.summary).toBe("Step 1: r1\nStep 2: r2");
  expect((await report(2, "FINISHED", startId)()).run_end).toEqual(last.run_end);
  return eventually(async () => {
    const { run: now } = await client.call("RunService/GetRun", { run_id });
    return now.sandbox_id === "" && now;
  });
}

test.each(RUN_POINTS)("a service killed at %s: the run is as if nothing had happened", async (at) => {
  failAt(at);
  const whole = wholeRun(at);
  whole.catch(() => {});
  await Promise.race([service.ended(), whole.then(() => Promise.reject(new Error("it was not killed")))]);
  failAt("");
  await service.begin();
  expect(await whole).toMatchObject({
    state: "RUN_STATE_FINISHED",
    outcome: "RUN_OUTCOME_FINISHED",
    summary: "Step 1: r1\nStep 2: r2",
  });
  const { runs } = await client.call("RunService/ListRuns", {});
  expect(runs.filter(({ name }) => name === at)).toHaveLength(1);
  await eventually(async () => {
    const stats = await client.call("SandboxService/GetStats");
    return stats.total_sandboxes === 0 && stats.active_operations === 0;
  });
  await expectNoContainers(service.instance);
});

test("processes of a run are ended after a restart, in a sandbox that is kept", async () => {
  const { run } = await client.call("RunService/CreateRun", {
    sandbox_spec: {},
    on_end: "RUN_ON_END_KEEP",
    step_timeout: seconds(600),
  });
  const started = await client.call("RunService/StartRun", { run_id: run.run_id });
  const { sandbox_id: sandboxId } = started.run;
  const detached = { on_disconnect: "ON_DISCONNECT_DETACH" };
  for (const [line, more] of [
    ["echo on; sleep 1001", { ...detached, run_id: run.run_id }],
    ["echo on; sleep 1002", detached],
    // Its caller only went away with the service.
    ["echo on; sleep 1003", { run_id: run.run_id }],
  ] as const) {
    const execution = client.exec(sandboxId, line, more);
    execution.result.catch(() => {});
    await execution.until("on");
  }
  await service.kill();
  await service.begin();
  await insist(() => client.call("RunService/CancelRun", { run_id: run.run_id }));
  const sleeping = () => client.output(sandboxId, "ps ax -o args | grep '^sleep 100' | sort");
  expect(await insist(sleeping)).toBe("sleep 1002\n");
  await client.deleteSandbox(sandboxId);
  await expectNoContainers(service.instance);
});
