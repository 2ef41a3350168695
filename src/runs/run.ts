import type { RequestedSpec } from "../sandboxes/spec.ts";

/** The state of a run, in the names of the wire. */
export type RunState = "IDLE" | "RUNNING" | "FINISHED" | "ERROR";

/** How a run ended. */
export type RunOutcome = "FINISHED" | "MAX_STEPS" | "ERROR" | "CANCELED" | "LEASE_EXPIRED" | "DEADLINE";

/** The outcome of a step. */
export type StepOutcome = "CONTINUE" | "FINISHED" | "ERROR";

/** One message of the conversation behind a run. */
export interface RunMessage {
  readonly role: "USER" | "SYSTEM" | "ASSISTANT" | "TOOL";
  readonly content: string;
}

/** One step as it was reported. Times are wall milliseconds. */
export interface RunStep {
  /** From 1. */
  readonly step: number;
  readonly result: string;
  readonly outcome: StepOutcome;
  /** Whether the run was found stuck after it. */
  readonly stuck: boolean;
  readonly startTimeMs: number;
  readonly endTimeMs: number;
}

/** The settings of a run, every default filled in. Times in milliseconds. */
export interface RunSettings {
  readonly name: string;
  readonly maxSteps: number;
  /** How many equal earlier messages make it stuck. */
  readonly duplicateThreshold: number;
  /** How long its caller may be silent during a step. */
  readonly stepTimeoutMs: number;
  /** How long it may take in all; undefined: unbounded. */
  readonly maxDurationMs: number | undefined;
  readonly nextStepPrompt: string;
  readonly sandbox: RunSandbox;
  readonly onEnd: "DELETE_SANDBOX" | "KEEP";
}

/** The sandbox of a run: none, one made at each start, or an existing one. */
export type RunSandbox =
  | { readonly kind: "none" }
  | { readonly kind: "made"; readonly spec: RequestedSpec }
  | { readonly kind: "given"; readonly sandboxId: string; readonly generation: number | undefined };

/** How a run ended. */
export interface RunEnd {
  readonly outcome: RunOutcome;
  /** For a person. */
  readonly message: string;
  readonly timeMs: number;
}

/** A moment by both clocks of runs: the wall clock for show, service time for what expires. */
export interface Moment {
  readonly wallMs: number;
  readonly at: number;
}

/** The state of a run with what belongs to it. Times are wall milliseconds. */
export type RunPhase =
  /** It can be started. It has an end where it reached its maximum of steps. */
  | { readonly state: "IDLE"; readonly end: RunEnd | undefined }
  | {
      readonly state: "RUNNING";
      /** The step under way, from 1. */
      readonly step: number;
      readonly stepTimeMs: number;
      /** Whether the step before it left the run stuck. */
      readonly stuck: boolean;
      /** For show; what counts is {@link leaseExpiresAt}. */
      readonly leaseExpireTimeMs: number;
      /** In service time. */
      readonly leaseExpiresAt: number;
      /** In service time. Undefined: unbounded. */
      readonly deadlineAt: number | undefined;
    }
  | { readonly state: "FINISHED" | "ERROR"; readonly step: number; readonly end: RunEnd };

/**
 * The sandbox of a run, from before it is made until it is gone.
 *
 * - `STARTING`: a start makes it. Without that start, the cleanup removes it.
 * - `IN_USE`: the run works in it. Once the run is not RUNNING, it is cleaned up.
 * - `LEFT`: the run has ended and kept it, as its settings say.
 */
export interface HeldSandbox {
  readonly sandboxId: string;
  readonly generation: number;
  readonly use: "STARTING" | "IN_USE" | "LEFT";
}

/** The newest report, by which Berth recognizes its repetition. */
export interface LastReport {
  readonly step: number;
  /** Equal only for reports that are equal. */
  readonly fingerprint: string;
}

/** One run without its steps and messages. Times are wall milliseconds. */
export interface Run {
  readonly runId: string;
  readonly owner: string;
  readonly settings: RunSettings;
  readonly createTimeMs: number;
  readonly phase: RunPhase;
  /** Names its newest start; empty before the first. */
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
  /** Strictly growing, from 1. */
  readonly sequence: number;
  readonly timeMs: number;
  readonly state: RunState;
  /** As {@link currentStep} after it. */
  readonly currentStep: number;
  /** The run's sandbox after it; empty without one. */
  readonly sandboxId: string;
  readonly body: RunEventBody;
}

/** The step under way; after the end the last one; 0 for a run that is IDLE. */
export function currentStep(run: Run): number {
  return run.phase.state === "IDLE" ? 0 : run.phase.step;
}

/** How the run ended; undefined before it has. */
export function endOf(run: Run): RunEnd | undefined {
  return run.phase.state === "RUNNING" ? undefined : run.phase.end;
}

/** The sandbox that callers see; undefined without one. */
export function sandboxOf(run: Run): string | undefined {
  return run.sandbox?.use === "STARTING" ? undefined : run.sandbox?.sandboxId;
}

/** The steps in words: one line each, and how the run ended where that was the maximum of steps. */
export function summaryOf(run: Run, steps: readonly RunStep[]): string {
  const lines = steps.map(({ step, result }) => `Step ${step}: ${result}`);
  const end = endOf(run);
  if (end?.outcome === "MAX_STEPS") lines.push(end.message);
  return lines.join("\n") || "No steps executed";
}
