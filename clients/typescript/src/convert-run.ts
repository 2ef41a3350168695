/** Between the messages of runs and what users see. */
import { durationMs } from "@bufbuild/protobuf/wkt";
import { date, ms, present } from "./convert.ts";
import { nameOf } from "./enum-name.ts";
import type { NextStep, Report, RunEvent, RunInfo, RunStep } from "./types.ts";
import {
  type NextStep as NextStepMessage,
  type ReportStepResponse,
  type Run,
  RunEventType,
  RunMessageRole,
  RunOnEnd,
  RunOutcome,
  RunState,
  type RunStep as RunStepMessage,
  StepOutcome,
  type WatchRunResponse,
} from "./v1/run_pb.js";

export function runInfo(message: Run | undefined): RunInfo {
  const run = present(message);
  const { runId, name, currentStep, maxSteps, duplicateThreshold, nextStepPrompt, summary } = run;
  return {
    runId,
    name,
    state: nameOf(RunState, run.state),
    outcome: nameOf(RunOutcome, run.outcome),
    message: run.message,
    currentStep,
    maxSteps,
    duplicateThreshold,
    stepTimeoutMs: ms(run.stepTimeout),
    maxDurationMs: run.maxDuration && durationMs(run.maxDuration),
    nextStepPrompt,
    onEnd: nameOf(RunOnEnd, run.onEnd),
    steps: run.steps.map(runStep),
    summary,
    sandboxId: run.sandboxId,
    createTime: date(run.createTime),
    startTime: date(run.startTime),
    endTime: date(run.endTime),
    leaseExpireTime: date(run.leaseExpireTime),
    owner: run.owner,
    messageCount: run.messageCount,
    messages: run.messages.map(({ role, content }) => ({ role: nameOf(RunMessageRole, role), content })),
  };
}

function runStep({ step, result, outcome, stuck, startTime, endTime }: RunStepMessage): RunStep {
  return {
    step,
    result,
    outcome: nameOf(StepOutcome, outcome),
    stuck,
    startTime: date(startTime),
    endTime: date(endTime),
  };
}

export function nextStep(message: NextStepMessage | undefined): NextStep {
  const { step, prompt, leaseExpireTime, startId } = present(message);
  return { step, prompt, leaseExpireTime: date(leaseExpireTime), startId };
}

export function report({ verdict, stuck }: ReportStepResponse): Report {
  if (verdict.case !== "runEnd") {
    const next = verdict.case === "nextStep" ? nextStep(verdict.value) : undefined;
    return { nextStep: next, runEnd: undefined, stuck };
  }
  const { state, outcome, message, summary } = verdict.value;
  const runEnd = { state: nameOf(RunState, state), outcome: nameOf(RunOutcome, outcome), message, summary };
  return { nextStep: undefined, runEnd, stuck };
}

/** The event in a response; undefined for a keepalive, or an event of a newer service. */
export function runEvent({ item }: WatchRunResponse): RunEvent | undefined {
  if (item.case === "event") {
    const { sequence, time, type, state, outcome, message, currentStep, step, sandboxId } = item.value;
    return {
      sequence: Number(sequence),
      time: date(time),
      type: nameOf(RunEventType, type),
      state: nameOf(RunState, state),
      outcome: nameOf(RunOutcome, outcome),
      message,
      currentStep,
      step: step && runStep(step),
      sandboxId,
    };
  }
  if (item.case !== "trimmed") return undefined;
  return {
    sequence: Number(item.value.toSequence),
    time: undefined,
    type: "TRIMMED",
    state: "UNSPECIFIED",
    outcome: "UNSPECIFIED",
    message: "",
    currentStep: 0,
    step: undefined,
    sandboxId: "",
  };
}
