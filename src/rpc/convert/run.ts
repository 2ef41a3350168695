import { create, type MessageInitShape } from "@bufbuild/protobuf";
import {
  type CreateRunRequest,
  type NextStepSchema,
  type RunEndSchema,
  type RunEventSchema,
  RunEventType,
  RunSchema,
  type RunStepSchema,
  type RunMessage as WireMessage,
  RunOnEnd as WireOnEnd,
  RunOutcome as WireOutcome,
  RunMessageRole as WireRole,
  type Run as WireRun,
  RunState as WireState,
  StepOutcome as WireStepOutcome,
} from "../../../gen/ts/berth/v1/run_pb.js";
import { invalidArgument } from "../../base/errors.ts";
import type { RunView } from "../../runs/catalog.ts";
import { MAX_MESSAGES, promptOf } from "../../runs/machine.ts";
import {
  currentStep,
  endOf,
  type Run,
  type RunEnd,
  type RunEvent,
  type RunMessage,
  type RunOutcome,
  type RunSandbox,
  type RunSettings,
  type RunState,
  type RunStep,
  type StepOutcome,
  sandboxOf,
  summaryOf,
} from "../../runs/run.ts";
import {
  callerId,
  checkText,
  durationToMs,
  integer,
  msToDuration,
  msToTimestamp,
  optionalCallerId,
  positive,
} from "../validate/fields.ts";
import { fromWireSpec } from "./sandbox.ts";

const KIB = 1024;
/** Limit of a message, and of a run's request. */
export const MAX_MESSAGE_BYTES = 256 * KIB;
const MAX_PROMPT_BYTES = 64 * KIB;
const DEFAULTS = { maxSteps: 10, duplicateThreshold: 2, stepTimeoutMs: 300_000 };

const STATES: Record<RunState, WireState> = {
  IDLE: WireState.IDLE,
  RUNNING: WireState.RUNNING,
  FINISHED: WireState.FINISHED,
  ERROR: WireState.ERROR,
};

const OUTCOMES: Record<RunOutcome, WireOutcome> = {
  FINISHED: WireOutcome.FINISHED,
  MAX_STEPS: WireOutcome.MAX_STEPS,
  ERROR: WireOutcome.ERROR,
  CANCELED: WireOutcome.CANCELED,
  LEASE_EXPIRED: WireOutcome.LEASE_EXPIRED,
  DEADLINE: WireOutcome.DEADLINE,
};

const STEP_OUTCOMES: Record<StepOutcome, WireStepOutcome> = {
  CONTINUE: WireStepOutcome.CONTINUE,
  FINISHED: WireStepOutcome.FINISHED,
  ERROR: WireStepOutcome.ERROR,
};

const ROLES: Record<RunMessage["role"], WireRole> = {
  USER: WireRole.USER,
  SYSTEM: WireRole.SYSTEM,
  ASSISTANT: WireRole.ASSISTANT,
  TOOL: WireRole.TOOL,
};

const EVENT_TYPES: Record<RunEvent["body"]["type"], RunEventType> = {
  CREATED: RunEventType.CREATED,
  STARTED: RunEventType.STARTED,
  STEP_REPORTED: RunEventType.STEP_REPORTED,
  ENDED: RunEventType.ENDED,
  RESET: RunEventType.RESET,
  DELETED: RunEventType.DELETED,
};

/** Checks the settings of a run and fills in the defaults. */
export function fromWireSettings(request: CreateRunRequest): RunSettings {
  const sandbox = fromWireSandbox(request);
  return {
    name: optionalCallerId("name", request.name) ?? "",
    maxSteps: integer("max_steps", request.maxSteps ?? DEFAULTS.maxSteps, { min: 1, max: 1000 }),
    duplicateThreshold: integer(
      "duplicate_threshold",
      request.duplicateThreshold ?? DEFAULTS.duplicateThreshold,
      { min: 1, max: 100 },
    ),
    stepTimeoutMs:
      positive("step_timeout", durationToMs("step_timeout", request.stepTimeout)) ?? DEFAULTS.stepTimeoutMs,
    maxDurationMs: positive("max_duration", durationToMs("max_duration", request.maxDuration)),
    nextStepPrompt: checkText("next_step_prompt", request.nextStepPrompt, MAX_PROMPT_BYTES),
    sandbox,
    onEnd: fromWireOnEnd(request.onEnd, sandbox),
  };
}

export function fromWireMessages(messages: readonly WireMessage[]): RunMessage[] {
  if (messages.length > MAX_MESSAGES) {
    throw invalidArgument(
      "messages",
      `there are ${messages.length}; at most ${MAX_MESSAGES} are allowed. The run keeps no more either.`,
    );
  }
  return messages.map(({ role, content }, index) => ({
    role: fromWire(`messages[${index}].role`, ROLES, role, "a role: USER, SYSTEM, ASSISTANT or TOOL"),
    content: checkText(`messages[${index}].content`, content, MAX_MESSAGE_BYTES),
  }));
}

export function fromWireStepOutcome(outcome: WireStepOutcome): StepOutcome {
  return fromWire("outcome", STEP_OUTCOMES, outcome, "an outcome: CONTINUE, FINISHED or ERROR");
}

export function fromWireRunStates(states: readonly WireState[]): Set<RunState> {
  return new Set(
    states.map((state) => fromWire("states", STATES, state, "a state: IDLE, RUNNING, FINISHED or ERROR")),
  );
}

/** What to return besides the state of a run. */
interface RunDetail {
  /** Whether to include the summary. Default: true. */
  readonly summary?: boolean;
  /** Default: none. */
  readonly messages?: readonly RunMessage[];
}

export function toWireRun(
  { run, steps, messageCount }: RunView,
  { summary = true, messages = [] }: RunDetail = {},
): WireRun {
  const { settings, phase } = run;
  const end = endOf(run);
  return create(RunSchema, {
    runId: run.runId,
    name: settings.name,
    state: STATES[phase.state],
    outcome: end && OUTCOMES[end.outcome],
    message: end?.message,
    currentStep: currentStep(run),
    maxSteps: settings.maxSteps,
    duplicateThreshold: settings.duplicateThreshold,
    stepTimeout: msToDuration(settings.stepTimeoutMs),
    maxDuration: settings.maxDurationMs === undefined ? undefined : msToDuration(settings.maxDurationMs),
    nextStepPrompt: settings.nextStepPrompt,
    onEnd: settings.onEnd === "KEEP" ? WireOnEnd.KEEP : WireOnEnd.DELETE_SANDBOX,
    steps: steps.map(toWireStep),
    summary: summary ? summaryOf(run, steps) : "",
    sandboxId: sandboxOf(run),
    createTime: msToTimestamp(run.createTimeMs),
    startTime: run.startTimeMs === undefined ? undefined : msToTimestamp(run.startTimeMs),
    endTime: end && msToTimestamp(end.timeMs),
    leaseExpireTime: phase.state === "RUNNING" ? msToTimestamp(phase.leaseExpireTimeMs) : undefined,
    owner: run.owner,
    messageCount,
    messages: messages.map(({ role, content }) => ({ role: ROLES[role], content })),
  });
}

/** The current step of a RUNNING run. Undefined for any other. */
export function toWireNextStep({
  phase,
  settings,
  startId,
}: Run): MessageInitShape<typeof NextStepSchema> | undefined {
  if (phase.state !== "RUNNING") return undefined;
  return {
    step: phase.step,
    prompt: promptOf(settings.nextStepPrompt, phase.stuck),
    leaseExpireTime: msToTimestamp(phase.leaseExpireTimeMs),
    startId,
  };
}

export function toWireEnd(
  run: Run,
  end: RunEnd,
  steps: readonly RunStep[],
): MessageInitShape<typeof RunEndSchema> {
  return {
    state: STATES[run.phase.state],
    outcome: OUTCOMES[end.outcome],
    message: end.message,
    summary: summaryOf(run, steps),
  };
}

export function toWireRunEvent(runId: string, event: RunEvent): MessageInitShape<typeof RunEventSchema> {
  const { body } = event;
  const end = body.type === "ENDED" ? body.end : undefined;
  return {
    sequence: BigInt(event.sequence),
    time: msToTimestamp(event.timeMs),
    runId,
    type: EVENT_TYPES[body.type],
    state: STATES[event.state],
    outcome: end && OUTCOMES[end.outcome],
    message: end?.message,
    currentStep: event.currentStep,
    step: body.type === "STEP_REPORTED" ? toWireStep(body.step) : undefined,
    sandboxId: event.sandboxId,
  };
}

function toWireStep(step: RunStep): MessageInitShape<typeof RunStepSchema> {
  return {
    step: step.step,
    result: step.result,
    outcome: STEP_OUTCOMES[step.outcome],
    stuck: step.stuck,
    startTime: msToTimestamp(step.startTimeMs),
    endTime: msToTimestamp(step.endTimeMs),
  };
}

function fromWireSandbox({ sandbox, generation }: CreateRunRequest): RunSandbox {
  const known = integer("generation", generation, { min: 0 });
  if (known > 0 && sandbox.case !== "sandboxId") {
    throw invalidArgument("generation", "it is of sandbox_id, which is not given.");
  }
  switch (sandbox.case) {
    case "sandboxSpec":
      return { kind: "made", spec: fromWireSpec(sandbox.value) };
    case "sandboxId": {
      const sandboxId = callerId("sandbox_id", sandbox.value);
      return { kind: "given", sandboxId, generation: known > 0 ? known : undefined };
    }
    default:
      return { kind: "none" };
  }
}

function fromWireOnEnd(value: WireOnEnd, { kind }: RunSandbox): RunSettings["onEnd"] {
  switch (value) {
    case WireOnEnd.UNSPECIFIED:
      // By default a run does not delete a sandbox that it did not create.
      return kind === "given" ? "KEEP" : "DELETE_SANDBOX";
    case WireOnEnd.DELETE_SANDBOX:
      return "DELETE_SANDBOX";
    case WireOnEnd.KEEP:
      return "KEEP";
    default:
      throw invalidArgument("on_end", `${value} is not a known value.`);
  }
}

/** The name for a number on the wire. */
function fromWire<Name extends string, Value extends number>(
  field: string,
  table: Readonly<Record<Name, Value>>,
  value: number,
  wanted: string,
): Name {
  const names = Object.keys(table) as Name[];
  const name = names.find((candidate) => table[candidate] === value);
  if (name === undefined) throw invalidArgument(field, `${value} is not ${wanted}.`);
  return name;
}
