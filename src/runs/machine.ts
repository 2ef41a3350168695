import { BerthError } from "../base/errors.ts";
import {
  currentStep,
  type HeldSandbox,
  type Moment,
  type Run,
  type RunEnd,
  type RunMessage,
  type RunOutcome,
  type RunPhase,
  type RunSettings,
  type RunStep,
  type StepOutcome,
} from "./run.ts";

/** The minimum remaining time of a lease after a restart of the service. */
const MIN_LEASE_AFTER_RESTART_MS = 10_000;

/** A caller's report on a step. */
export interface StepReport {
  readonly step: number;
  /** Empty: for any start. */
  readonly startId: string;
  readonly messages: readonly RunMessage[];
  readonly result: string;
  readonly outcome: StepOutcome;
  /** Equal only for equal reports. */
  readonly fingerprint: string;
}

/** A run after a report. */
interface Reported {
  readonly run: Run;
  /** The step to add to the run's history. */
  readonly step: RunStep;
}

/** A run that has not been started. */
export function newRun(runId: string, owner: string, settings: RunSettings, nowMs: number): Run {
  return {
    runId,
    owner,
    settings,
    createTimeMs: nowMs,
    phase: { state: "IDLE", end: undefined },
    startId: "",
    startTimeMs: undefined,
    lastReport: undefined,
    sandbox: undefined,
  };
}

/** @throws `RUN_STATE` if the run cannot be started now. */
export function assertStartable(run: Run): void {
  const { state } = run.phase;
  if (state === "IDLE") return;
  const advice = state === "RUNNING" ? "It is under way: report its step, or cancel it." : "Reset it first.";
  throw runState(run, `Cannot run agent from state: ${state}. ${advice}`);
}

/** IDLE → RUNNING: hands out step 1. @throws `RUN_STATE`. */
export function started(run: Run, startId: string, sandbox: HeldSandbox | undefined, now: Moment): Run {
  assertStartable(run);
  const { maxDurationMs } = run.settings;
  const deadlineAt = maxDurationMs === undefined ? undefined : now.at + maxDurationMs;
  return {
    ...run,
    phase: handOut(run, 1, false, deadlineAt, now),
    startId,
    startTimeMs: now.wallMs,
    lastReport: undefined,
    sandbox,
  };
}

/**
 * RUNNING → RUNNING with the next step, FINISHED, ERROR, or IDLE if that was the last allowed step.
 * @param messages reads the conversation before the report. Called only if the report may change whether the run is stuck.
 * @throws `RUN_STATE` if the report is not for the current step.
 */
export function reported(
  run: Run,
  report: StepReport,
  messages: () => readonly RunMessage[],
  now: Moment,
): Reported {
  const phase = assertCurrent(run, report.step, report.startId);
  const { outcome, result } = report;
  const stuck =
    report.messages.length === 0 && phase.step > 1
      ? phase.stuck
      : isStuck(extended(messages(), report.messages), run.settings.duplicateThreshold);
  const step: RunStep = {
    step: phase.step,
    result,
    outcome,
    stuck,
    startTimeMs: phase.stepTimeMs,
    endTimeMs: now.wallMs,
  };
  const lastReport = { step: phase.step, fingerprint: report.fingerprint };
  const after = (): Run => {
    if (outcome === "FINISHED") return ended(run, "FINISHED", result, now);
    if (outcome === "ERROR") return ended(run, "ERROR", result || `Step ${phase.step} failed.`, now);
    if (phase.step >= run.settings.maxSteps) {
      return ended(run, "MAX_STEPS", `Terminated: Reached max steps (${run.settings.maxSteps})`, now);
    }
    return { ...run, phase: handOut(run, phase.step + 1, stuck, phase.deadlineAt, now) };
  };
  return { run: { ...after(), lastReport }, step };
}

/**
 * Whether the report repeats the newest one, which then gets the same answer. Only a report that names its start can.
 */
export function isRepeated(run: Run, report: StepReport): boolean {
  const { lastReport } = run;
  return (
    lastReport !== undefined &&
    report.startId !== "" &&
    report.startId === run.startId &&
    report.step === lastReport.step &&
    report.fingerprint === lastReport.fingerprint
  );
}

/**
 * RUNNING → RUNNING: the lease starts again, with the whole step timeout.
 * @param step 0: the current one.
 * @throws `RUN_STATE` if it is not the current step.
 */
export function renewed(run: Run, step: number, startId: string, now: Moment): Run {
  const phase = assertCurrent(run, step === 0 ? currentStep(run) : step, startId);
  return { ...run, phase: { ...phase, ...lease(now, run.settings.stepTimeoutMs) } };
}

/**
 * A run that is RUNNING after a restart of the service. Its caller gets some time to come back, even if its lease is
 * about to expire.
 */
export function recovered(run: Run, now: Moment): Run {
  const phase = assertRunning(run);
  const minMs = Math.min(run.settings.stepTimeoutMs, MIN_LEASE_AFTER_RESTART_MS);
  return { ...run, phase: { ...phase, ...lease(now, Math.max(phase.leaseExpiresAt - now.at, minMs)) } };
}

/** RUNNING → FINISHED, IDLE after MAX_STEPS, or ERROR. @throws `RUN_STATE` if the run is not RUNNING. */
export function ended(run: Run, outcome: RunOutcome, message: string, now: Moment): Run {
  const { step } = assertRunning(run);
  const end: RunEnd = { outcome, message, timeMs: now.wallMs };
  switch (outcome) {
    case "MAX_STEPS":
      return { ...run, phase: { state: "IDLE", end } };
    case "FINISHED":
      return { ...run, phase: { state: "FINISHED", step, end } };
    default:
      return { ...run, phase: { state: "ERROR", step, end } };
  }
}

/** IDLE, FINISHED, ERROR → IDLE, as if it had never been started. @throws `RUN_STATE` while it is RUNNING. */
export function reset(run: Run): Run {
  if (run.phase.state === "RUNNING") {
    throw runState(run, "Cannot reset a run in state RUNNING. Cancel it, or report its steps to the end.");
  }
  return {
    ...run,
    phase: { state: "IDLE", end: undefined },
    startTimeMs: undefined,
    lastReport: undefined,
    // A sandbox that the last pass kept belongs to the caller from now on.
    sandbox: run.sandbox?.use === "LEFT" ? undefined : run.sandbox,
  };
}

function handOut(
  run: Run,
  step: number,
  stuck: boolean,
  deadlineAt: number | undefined,
  now: Moment,
): Extract<RunPhase, { state: "RUNNING" }> {
  return {
    state: "RUNNING",
    step,
    stepTimeMs: now.wallMs,
    stuck,
    ...lease(now, run.settings.stepTimeoutMs),
    deadlineAt,
  };
}

function lease(now: Moment, ms: number): { leaseExpireTimeMs: number; leaseExpiresAt: number } {
  return { leaseExpireTimeMs: now.wallMs + ms, leaseExpiresAt: now.at + ms };
}

function assertRunning(run: Run): Extract<RunPhase, { state: "RUNNING" }> {
  const { phase } = run;
  if (phase.state === "RUNNING") return phase;
  const why = phase.end === undefined ? "It was not started." : `It has ended: ${phase.end.message}`;
  throw runState(run, `The run is in state ${phase.state}: no step is under way. ${why}`);
}

/** @throws `RUN_STATE` if the run was started again since. */
export function assertStart(run: Run, startId: string): void {
  if (startId === run.startId) return;
  const { state } = run.phase;
  throw runState(run, `The request belongs to an earlier start of the run, which is in state ${state} now.`);
}

function assertCurrent(run: Run, step: number, startId: string): Extract<RunPhase, { state: "RUNNING" }> {
  const phase = assertRunning(run);
  if (startId !== "") assertStart(run, startId);
  if (step === phase.step) return phase;
  const was = step < phase.step ? "was reported already" : "was not handed out yet";
  throw runState(run, `step: step ${step} ${was}; step ${phase.step} is under way.`);
}

function runState(run: Run, message: string): BerthError {
  const { phase, runId } = run;
  return new BerthError("RUN_STATE", message, {
    metadata: {
      run_id: runId,
      state: phase.state,
      current_step: String(currentStep(run)),
      ...(phase.state !== "RUNNING" && phase.end !== undefined && { outcome: phase.end.outcome }),
    },
  });
}

/** How many messages a run keeps: the newest ones. */
export const MAX_MESSAGES = 100;

const WARNING =
  "Observed duplicate responses. Consider new strategies and avoid repeating ineffective paths already attempted.";

/** Adds messages to the conversation, and keeps the newest {@link MAX_MESSAGES}. */
export function extended(
  messages: readonly RunMessage[],
  more: readonly RunMessage[],
): readonly RunMessage[] {
  return [...messages, ...more].slice(-MAX_MESSAGES);
}

/**
 * Whether an agent repeats itself: the last message, whatever its role, equals at least `threshold` earlier messages of
 * the assistant.
 */
export function isStuck(messages: readonly RunMessage[], threshold: number): boolean {
  const last = messages.at(-1);
  if (messages.length < 2 || last === undefined || last.content === "") return false;
  const same = messages
    .slice(0, -1)
    .filter(({ role, content }) => role === "ASSISTANT" && content === last.content);
  return same.length >= threshold;
}

/** The prompt of the next step, with a warning above it if the last step left the agent stuck. */
export function promptOf(nextStepPrompt: string, stuck: boolean): string {
  return stuck ? `${WARNING}\n${nextStepPrompt}` : nextStepPrompt;
}
