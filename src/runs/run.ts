import type { RequestedSpec } from "../sandboxes/spec.ts";

/** The state of a run, as named on the wire. */
export type RunState = "IDLE" | "RUNNING" | "FINISHED" | "ERROR";

/** How a run ended. */
export type RunOutcome = "FINISHED" | "MAX_STEPS" | "ERROR" | "CANCELED" | "LEASE_EXPIRED" | "DEADLINE";

/** The outcome of a step. */
export type StepOutcome = "CONTINUE" | "FINISHED" | "ERROR";

/** A message of the conversation. */
export interface RunMessage {
  readonly role: "USER" | "SYSTEM" | "ASSISTANT" | "TOOL";
  readonly content: string;
}

/** A reported step. Times are wall milliseconds. */
export interface RunStep {
  /** Starts at 1. */
  readonly step: number;
  readonly result: string;
  readonly outcome: StepOutcome;
  /** Whether the run was stuck after it. */
  readonly stuck: boolean;
  readonly startTimeMs: number;
  readonly endTimeMs: number;
}

/** The settings of a run, with every default filled in. Times in milliseconds. */
export interface RunSettings {
  readonly name: string;
  readonly maxSteps: number;
  /** The run is stuck after this many equal earlier messages. */
  readonly duplicateThreshold: number;
  /** How long its caller may be silent during a step. */
  readonly stepTimeoutMs: number;
  /** How long the run may take in total. Undefined: no limit. */
  readonly maxDurationMs: number | undefined;
  readonly nextStepPrompt: string;
  readonly sandbox: RunSandbox;
  readonly onEnd: "DELETE_SANDBOX" | "KEEP";
}

/** The sandbox of a run: none, a new one for each start, or an existing one. */
export type RunSandbox =
  | { readonly kind: "none" }
  | { readonly kind: "made"; readonly spec: RequestedSpec }
  | { readonly kind: "given"; readonly sandboxId: string; readonly generation: number | undefined };

/** How a run ended. */
export interface RunEnd {
  readonly outcome: RunOutcome;
  /** For people. */
  readonly message: string;
  readonly timeMs: number;
}

/** A moment by both clocks of runs: wall time for display, service time for expiry. */
export interface Moment {
  readonly wallMs: number;
  readonly at: number;
}

/** The state of a run, with the data of that state. Times are wall milliseconds. */
export type RunPhase =
  /** It can be started. `end` is set if it reached its maximum of steps. */
  | { readonly state: "IDLE"; readonly end: RunEnd | undefined }
  | {
      readonly state: "RUNNING";
      /** The current step, from 1. */
      readonly step: number;
      readonly stepTimeMs: number;
      /** Whether the previous step left the run stuck. */
      readonly stuck: boolean;
      /** For display. {@link leaseExpiresAt} decides. */
      readonly leaseExpireTimeMs: number;
      /** In service time. */
      readonly leaseExpiresAt: number;
      /** In service time. Undefined: no limit. */
      readonly deadlineAt: number | undefined;
    }
  | { readonly state: "FINISHED" | "ERROR"; readonly step: number; readonly end: RunEnd };

/**
 * The sandbox of a run, from before its creation until it is gone.
 *
 * - `STARTING`: a start is creating it. If that start is no longer there, the cleanup removes it.
 * - `IN_USE`: the run works in it. Once the run is not RUNNING, it is cleaned up.
 * - `LEFT`: the run has ended and kept it, as its settings say.
 */
export interface HeldSandbox {
  readonly sandboxId: string;
  readonly generation: number;
  readonly use: "STARTING" | "IN_USE" | "LEFT";
}

/** The newest report, so that Berth recognizes a repetition of it. */
interface LastReport {
  readonly step: number;
  /** Equal only for equal reports. */
  readonly fingerprint: string;
}

/** A run without its steps and messages. Times are wall milliseconds. */
export interface Run {
  readonly runId: string;
  readonly owner: string;
  readonly settings: RunSettings;
  readonly createTimeMs: number;
  readonly phase: RunPhase;
  /** Identifies its newest start. Empty before the first. */
  readonly startId: string;
  /** When it was last started. */
  readonly startTimeMs: number | undefined;
  readonly lastReport: LastReport | undefined;
  readonly sandbox: HeldSandbox | undefined;
}

/** What happened to a run. */
export type RunEventBody =
  | { readonly type: "CREATED" | "STARTED" | "RESET" | "DELETED" }
  | { readonly type: "STEP_REPORTED"; readonly step: RunStep }
  | { readonly type: "ENDED"; readonly end: RunEnd };

/** An event with its place in the history of its run. */
export interface RunEvent {
  /** Strictly increasing, from 1. */
  readonly sequence: number;
  readonly timeMs: number;
  readonly state: RunState;
  /** {@link currentStep} after the event. */
  readonly currentStep: number;
  /** The run's sandbox after the event. Empty: none. */
  readonly sandboxId: string;
  readonly body: RunEventBody;
}

/** The current step. After the end, the last one. 0 for an IDLE run. */
export function currentStep(run: Run): number {
  return run.phase.state === "IDLE" ? 0 : run.phase.step;
}

/** How the run ended. Undefined if it has not. */
export function endOf(run: Run): RunEnd | undefined {
  return run.phase.state === "RUNNING" ? undefined : run.phase.end;
}

/** The sandbox that callers see. Undefined: none. */
export function sandboxOf(run: Run): string | undefined {
  return run.sandbox?.use === "STARTING" ? undefined : run.sandbox?.sandboxId;
}

/** The steps as text, one line each. Adds how the run ended if it reached its maximum of steps. */
export function summaryOf(run: Run, steps: readonly RunStep[]): string {
  const lines = steps.map(({ step, result }) => `Step ${step}: ${result}`);
  const end = endOf(run);
  if (end?.outcome === "MAX_STEPS") lines.push(end.message);
  return lines.join("\n") || "No steps executed";
}
