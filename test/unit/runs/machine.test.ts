import { describe, expect, test } from "vitest";
import type { BerthError } from "../../../src/base/errors.ts";
import {
  ended,
  extended,
  isRepeated,
  isStuck,
  newRun,
  promptOf,
  recovered,
  renewed,
  reported,
  reset,
  type StepReport,
  started,
} from "../../../src/runs/machine.ts";
import {
  currentStep,
  type Moment,
  type Run,
  type RunMessage,
  type RunOutcome,
  type RunSettings,
  type StepOutcome,
  summaryOf,
} from "../../../src/runs/run.ts";

const SETTINGS: RunSettings = {
  name: "",
  maxSteps: 3,
  duplicateThreshold: 2,
  stepTimeoutMs: 10_000,
  maxDurationMs: 60_000,
  nextStepPrompt: "Go on.",
  sandbox: { kind: "none" },
  onEnd: "DELETE_SANDBOX",
};

/** Service time is not wall time. */
const AHEAD = 500_000;
const at = (wallMs: number): Moment => ({ wallMs, at: wallMs + AHEAD });

const idle = newRun("run_a", "ann", SETTINGS, 1_000);
const begun = started(idle, "first", undefined, at(2_000));

function report(step: number, outcome: StepOutcome = "CONTINUE", more: Partial<StepReport> = {}): StepReport {
  return {
    step,
    startId: "",
    messages: [],
    result: `did ${step}`,
    outcome,
    fingerprint: `${step} ${outcome}`,
    ...more,
  };
}

function told(run: Run, ...outcomes: StepOutcome[]): Run {
  return outcomes.reduce(
    (now, outcome) => reported(now, report(currentStep(now), outcome), () => [], at(3_000)).run,
    run,
  );
}

function refusal(act: () => unknown): { reason: string; message: string; metadata: object } {
  try {
    act();
  } catch (error) {
    const { reason, message, metadata } = error as BerthError;
    return { reason, message, metadata };
  }
  throw new Error("it was not refused");
}

const finished = told(begun, "FINISHED");
const failed = told(begun, "ERROR");
const spent = told(begun, "CONTINUE", "CONTINUE", "CONTINUE");

describe("the transitions of the document", () => {
  test("[*] → IDLE: a new run", () => {
    expect(idle.phase).toEqual({ state: "IDLE", end: undefined });
    expect(currentStep(idle)).toBe(0);
    expect(summaryOf(idle, [])).toBe("No steps executed");
  });

  test("IDLE → RUNNING by run(): step 1 is handed out, and the time runs", () => {
    expect(begun.phase).toEqual({
      state: "RUNNING",
      step: 1,
      stepTimeMs: 2_000,
      stuck: false,
      leaseExpireTimeMs: 12_000,
      leaseExpiresAt: 12_000 + AHEAD,
      deadlineAt: 62_000 + AHEAD,
    });
    expect(begun).toMatchObject({ startId: "first", startTimeMs: 2_000 });
  });

  test("RUNNING → RUNNING: each report hands out the next step, with a new lease and the same deadline", () => {
    const { run, step } = reported(begun, report(1), () => [], at(5_000));
    expect(run.phase).toEqual({
      state: "RUNNING",
      step: 2,
      stepTimeMs: 5_000,
      stuck: false,
      leaseExpireTimeMs: 15_000,
      leaseExpiresAt: 15_000 + AHEAD,
      deadlineAt: 62_000 + AHEAD,
    });
    expect(step).toEqual({
      step: 1,
      result: "did 1",
      outcome: "CONTINUE",
      stuck: false,
      startTimeMs: 2_000,
      endTimeMs: 5_000,
    });
  });

  test("RUNNING → FINISHED by set_state(FINISHED): the last step stays", () => {
    const end = { outcome: "FINISHED", message: "did 2", timeMs: 3_000 };
    expect(told(begun, "CONTINUE", "FINISHED").phase).toEqual({ state: "FINISHED", step: 2, end });
  });

  test("a finish on the last step allowed is FINISHED", () => {
    const run = told(begun, "CONTINUE", "CONTINUE", "FINISHED");
    expect(run.phase).toMatchObject({ state: "FINISHED", step: 3 });
    expect(summaryOf(run, [])).not.toContain("Terminated");
  });

  test("RUNNING → ERROR by an exception", () => {
    expect(failed.phase).toMatchObject({
      state: "ERROR",
      step: 1,
      end: { outcome: "ERROR", message: "did 1" },
    });
    const silent = reported(begun, report(1, "ERROR", { result: "" }), () => [], at(3_000)).run;
    expect(silent.phase).toMatchObject({ end: { message: "Step 1 failed." } });
  });

  test.each<RunOutcome>(["CANCELED", "LEASE_EXPIRED", "DEADLINE", "ERROR"])(
    "RUNNING → ERROR by %s",
    (outcome) => {
      const run = ended(begun, outcome, "why", at(4_000));
      expect(run.phase).toEqual({ state: "ERROR", step: 1, end: { outcome, message: "why", timeMs: 4_000 } });
    },
  );

  test("RUNNING → IDLE when the maximum number of steps is reached", () => {
    expect(spent.phase).toEqual({
      state: "IDLE",
      end: { outcome: "MAX_STEPS", message: "Terminated: Reached max steps (3)", timeMs: 3_000 },
    });
    expect(currentStep(spent)).toBe(0);
    const step = { outcome: "CONTINUE", stuck: false, startTimeMs: 0, endTimeMs: 0 } as const;
    expect(summaryOf(spent, [{ ...step, step: 1, result: "a" }])).toBe(
      "Step 1: a\nTerminated: Reached max steps (3)",
    );
  });

  test.each([
    ["FINISHED", finished],
    ["ERROR", failed],
    ["IDLE after the most steps", spent],
    ["IDLE", idle],
  ])("%s → IDLE by a reset, as if it were new", (_, run) => {
    const { startId: _start, ...rest } = reset(run);
    const { startId: _none, ...fresh } = idle;
    expect(rest).toEqual(fresh);
  });

  test("IDLE → RUNNING again after the maximum number of steps, and after a reset", () => {
    for (const run of [spent, reset(finished), reset(failed)]) {
      const again = started(run, "second", undefined, at(9_000));
      expect(again.phase).toMatchObject({ state: "RUNNING", step: 1, stepTimeMs: 9_000 });
      expect(again.lastReport).toBeUndefined();
    }
  });
});

describe("anything that is not a transition is refused, with the state", () => {
  test.each([
    ["RUNNING", begun],
    ["FINISHED", finished],
    ["ERROR", failed],
  ])("a start from %s", (state, run) => {
    const { reason, message, metadata } = refusal(() => started(run, "x", undefined, at(0)));
    expect(reason).toBe("RUN_STATE");
    expect(message).toMatch(new RegExp(`^Cannot run agent from state: ${state}`));
    expect(metadata).toMatchObject({ state });
  });

  test("a reset from RUNNING", () => {
    const { reason, metadata } = refusal(() => reset(begun));
    expect([reason, metadata]).toEqual([
      "RUN_STATE",
      { run_id: "run_a", state: "RUNNING", current_step: "1" },
    ]);
  });

  test.each([
    ["IDLE", idle, "0"],
    ["IDLE", spent, "0"],
    ["FINISHED", finished, "1"],
    ["ERROR", failed, "1"],
  ])("a report, a sign of life and an end from %s", (state, run, step) => {
    for (const act of [
      () => reported(run, report(1), () => [], at(0)),
      () => renewed(run, 0, "", at(0)),
      () => ended(run, "CANCELED", "", at(0)),
    ]) {
      const { reason, message, metadata } = refusal(act);
      expect(reason).toBe("RUN_STATE");
      expect(message).toContain(state);
      expect(metadata).toMatchObject({ state, current_step: step });
    }
  });

  test("a report of a step other than the current one, and of another start", () => {
    const second = told(begun, "CONTINUE");
    expect(refusal(() => reported(second, report(1), () => [], at(0))).message).toMatch(
      /step 1 was reported already; step 2/,
    );
    expect(refusal(() => reported(second, report(3), () => [], at(0))).message).toMatch(
      /step 3 was not handed out yet/,
    );
    const earlier = report(2, "CONTINUE", { startId: "earlier" });
    expect(refusal(() => reported(second, earlier, () => [], at(0))).message).toMatch(/earlier start/);
    expect(refusal(() => renewed(second, 1, "", at(0))).reason).toBe("RUN_STATE");
    expect(refusal(() => renewed(second, 2, "earlier", at(0))).reason).toBe("RUN_STATE");
    expect(
      reported(second, report(2, "CONTINUE", { startId: "first" }), () => [], at(0)).run.phase,
    ).toMatchObject({
      step: 3,
    });
  });
});

test("a sign of life moves the lease and nothing else", () => {
  const run = renewed(begun, 1, "first", at(9_000));
  expect(run.phase).toEqual({ ...begun.phase, leaseExpireTimeMs: 19_000, leaseExpiresAt: 19_000 + AHEAD });
});

test("only an identical newest report of the same start counts as repeated", () => {
  const first = report(1, "CONTINUE", { startId: "first" });
  const { run } = reported(begun, first, () => [], at(0));
  expect(isRepeated(begun, first)).toBe(false);
  expect(isRepeated(run, first)).toBe(true);
  expect(isRepeated(run, { ...first, startId: "" })).toBe(false);
  expect(isRepeated(run, { ...first, startId: "other" })).toBe(false);
  expect(isRepeated(run, { ...first, fingerprint: "other" })).toBe(false);
  const next = reported(run, report(2), () => [], at(0)).run;
  expect(isRepeated(next, first)).toBe(false);
  expect(
    isRepeated(started(reset(ended(run, "CANCELED", "", at(0))), "second", undefined, at(0)), first),
  ).toBe(false);
});

test("after a restart the lease continues, and its caller has at least 10 s, or the step's whole time", () => {
  const lease = (nowMs: number, stepTimeoutMs: number) => {
    const run = started({ ...idle, settings: { ...SETTINGS, stepTimeoutMs } }, "s", undefined, at(0));
    // The wall clock was set meanwhile, which must not matter.
    const { phase } = recovered(run, { wallMs: 9_000_000 + nowMs, at: nowMs + AHEAD });
    return (
      phase.state === "RUNNING" && [
        phase.leaseExpiresAt - AHEAD,
        phase.leaseExpireTimeMs - 9_000_000,
        phase.deadlineAt,
      ]
    );
  };
  const deadline = 60_000 + AHEAD;
  expect(lease(5_000, 100_000)).toEqual([100_000, 100_000, deadline]);
  expect(lease(95_000, 100_000)).toEqual([105_000, 105_000, deadline]);
  expect(lease(200_000, 100_000)).toEqual([210_000, 210_000, deadline]);
  expect(lease(200_000, 2_000)).toEqual([202_000, 202_000, deadline]);
});

describe("stuck", () => {
  const say = (...contents: string[]): RunMessage[] =>
    contents.map((content) => ({ role: "ASSISTANT", content }));

  test.each([
    ["no message", say(), 1, false],
    ["one message", say("a"), 1, false],
    ["an empty last one", say("", "", ""), 1, false],
    ["one equal one before, of two", say("a", "a"), 2, false],
    ["two equal ones before, of two", say("a", "a", "a"), 2, true],
    ["equal ones with others between", say("a", "b", "a", "c", "a"), 2, true],
    ["nearly equal ones", say("a", "a ", "A", "a"), 1, true],
    ["nearly equal ones alone", say("a ", "A", "a"), 1, false],
    ["one equal one, of one", say("a", "b", "a"), 1, true],
  ])("%s", (_, messages, threshold, stuck) => {
    expect(isStuck(messages, threshold)).toBe(stuck);
  });

  test("only earlier messages of the assistant count, whoever sent the last one", () => {
    const last: RunMessage = { role: "TOOL", content: "a" };
    expect(isStuck([...say("a", "a"), last], 2)).toBe(true);
    expect(isStuck([...Array<RunMessage>(5).fill(last), ...say("a")], 1)).toBe(false);
  });

  test("what has left the window of 100 messages does not count", () => {
    const others = Array.from({ length: 99 }, (_, i) => `other ${i}`);
    expect(extended(say("a", ...others), say("a"))).toHaveLength(100);
    expect(isStuck(extended(say("a", ...others), say("a")), 1)).toBe(false);
    expect(isStuck(extended(say("a", ...others.slice(1)), say("a")), 1)).toBe(true);
  });

  test("the warning precedes the next prompt once, and is gone when the run is not stuck any more", () => {
    const prompts: string[] = [];
    let messages: readonly RunMessage[] = say("a", "a");
    let run = started({ ...idle, settings: { ...SETTINGS, maxSteps: 10 } }, "s", undefined, at(0));
    for (const content of ["a", "a", "b"]) {
      const said = report(currentStep(run), "CONTINUE", { messages: say(content) });
      run = reported(run, said, () => messages, at(0)).run;
      messages = extended(messages, said.messages);
      if (run.phase.state === "RUNNING") prompts.push(promptOf(SETTINGS.nextStepPrompt, run.phase.stuck));
    }
    const warned =
      "Observed duplicate responses. Consider new strategies and avoid repeating ineffective paths already attempted.\nGo on.";
    expect(prompts).toEqual([warned, warned, "Go on."]);
  });
});
