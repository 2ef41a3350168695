import { describe, expect, test } from "vitest";
import { useApp } from "../../support/app.ts";
import { failureOf, type Request } from "../../support/client.ts";
import { RunDriver } from "../../support/run-driver.ts";

const service = useApp();

describe("an invalid run is refused", () => {
  test.each<[string, Request]>([
    ["max_steps", { max_steps: 0 }],
    ["max_steps", { max_steps: -1 }],
    ["max_steps", { max_steps: 1001 }],
    ["duplicate_threshold", { duplicate_threshold: 0 }],
    ["duplicate_threshold", { duplicate_threshold: -1 }],
    ["step_timeout", { step_timeout: { seconds: 0 } }],
    ["step_timeout", { step_timeout: { seconds: -1 } }],
    ["max_duration", { max_duration: { seconds: 25 * 86_400 } }],
    ["name", { name: "a\nb" }],
    ["next_step_prompt", { next_step_prompt: "x".repeat(64 * 1024 + 1) }],
    ["on_end", { on_end: 9 }],
    ["generation", { generation: 1 }],
  ])("%s: %o", async (field, request) => {
    const failure = await failureOf(service.client.call("RunService/CreateRun", request));
    expect(failure).toMatchObject({ code: "INVALID_ARGUMENT", metadata: { field } });
  });
});

describe("an invalid report is refused, and counts for nothing", () => {
  test.each<[string, Request]>([
    ["step", { step: 0 }],
    ["step", { step: -1 }],
    ["outcome", { outcome: 0 }],
    ["outcome", { outcome: 9 }],
    ["messages[0].role", { messages: [{ role: 0, content: "" }] }],
    ["messages[0].role", { messages: [{ role: 7, content: "" }] }],
    ["messages[1].content", { messages: [{ role: 1 }, { role: 1, content: "x".repeat(256 * 1024 + 1) }] }],
    ["messages", { messages: Array(101).fill({ role: 1, content: "" }) }],
    ["result", { result: "x".repeat(16 * 1024 + 1) }],
  ])("%s", async (field, more) => {
    const run = await RunDriver.start(service.client);
    const before = await run.get();
    const failure = await failureOf(run.report({ more }));
    expect(failure).toMatchObject({ code: "INVALID_ARGUMENT", metadata: { field } });
    expect(await run.get()).toEqual(before);
  });

  test("reported twice: gets the same answer if it names its start, else is refused; never counts twice", async () => {
    const run = await RunDriver.start(service.client);
    const { next } = run;
    const first = await run.report({ result: "a", says: ["x"] });
    run.next = next;
    expect(await run.report({ result: "a", says: ["x"] })).toEqual(first);
    run.next = next;
    const failure = await failureOf(run.report({ result: "other" }));
    expect(failure).toMatchObject({ code: "FAILED_PRECONDITION", reason: "RUN_STATE" });
    expect(failure.metadata).toMatchObject({ state: "RUNNING", current_step: "2" });
    const plain = run.report({ result: "a", says: ["x"], more: { start_id: "" } });
    expect(await failureOf(plain)).toMatchObject({ reason: "RUN_STATE" });
    expect(await run.get()).toMatchObject({
      current_step: 2,
      message_count: 1,
      steps: [{ step: 1, result: "a" }],
    });
  });

  test("out of order, of an earlier start, and after the end", async () => {
    const run = await RunDriver.start(service.client, { max_steps: 1 });
    expect(await failureOf(run.report({ more: { step: 2 } }))).toMatchObject({ reason: "RUN_STATE" });
    const old = run.next;
    await run.report();
    await run.start();
    run.next = old;
    expect(await failureOf(run.report())).toMatchObject({ reason: "RUN_STATE" });
    expect(await run.get()).toMatchObject({ state: "RUN_STATE_RUNNING", current_step: 1, steps: [] });
    await run.cancel();
    expect(await failureOf(run.report({ more: { start_id: "", step: 1 } }))).toMatchObject({
      reason: "RUN_STATE",
      metadata: { state: "ERROR", outcome: "CANCELED" },
    });
  });

  test("of a missing run", async () => {
    const request = { run_id: "run_none", step: 1, outcome: "STEP_OUTCOME_CONTINUE" };
    expect(await failureOf(service.client.call("RunService/ReportStep", request))).toMatchObject({
      code: "NOT_FOUND",
      reason: "RUN_NOT_FOUND",
    });
    await service.client.call("RunService/DeleteRun", { run_id: "run_none" });
  });
});

test("watchers get the history from the given event, and the deletion last", async () => {
  const run = await RunDriver.start(service.client);
  await run.report({ result: "a" });
  const events = run.events(({ type }) => type === "RUN_EVENT_TYPE_DELETED");
  const late = run.events(() => false, 2);
  await run.finish({ result: "b" });
  await run.delete();
  const types = ["CREATED", "STARTED", "STEP_REPORTED", "STEP_REPORTED", "ENDED", "DELETED"];
  expect((await events).map(({ sequence, type }) => [sequence, type])).toEqual(
    types.map((type, index) => [index + 1, `RUN_EVENT_TYPE_${type}`]),
  );
  expect((await late).map(({ sequence }) => sequence)).toEqual([3, 4, 5, 6]);
});

test("watching beyond the newest event is refused", async () => {
  const run = await RunDriver.create(service.client);
  expect(await failureOf(run.events(() => true, 100))).toMatchObject({ code: "OUT_OF_RANGE" });
});

test("lists are paged, newest first, by state", async () => {
  const runs = [];
  for (let i = 0; i < 5; i++) runs.push(await RunDriver.start(service.client));
  const list = (more: Request) =>
    service.client.call("RunService/ListRuns", { states: ["RUN_STATE_RUNNING"], ...more });
  const first = await list({ page_size: 3 });
  const second = await list({ page_size: 2, page_token: first.next_page_token });
  const ids = [...first.runs, ...second.runs].map(({ run_id: id }) => id);
  expect(ids).toEqual(runs.map(({ runId }) => runId).reverse());
  expect(first.runs[0]).toMatchObject({ steps: [], summary: "" });
  for (const run of runs) await run.delete();
});
