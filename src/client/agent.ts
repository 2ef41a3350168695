import { randomUUID } from "node:crypto";
import type { MessageInitShape } from "@bufbuild/protobuf";
import { durationFromMs, durationMs } from "@bufbuild/protobuf/wkt";
import type { Client } from "@connectrpc/connect";
import { ErrorReason } from "../../gen/ts/berth/v1/error_pb.js";
import {
  type CreateRunRequestSchema,
  type NextStep,
  type Run,
  RunMessageRole,
  RunOnEnd,
  RunOutcome,
  type RunService,
  RunState,
  StepOutcome,
} from "../../gen/ts/berth/v1/run_pb.js";
import type { SandboxSpecSchema } from "../../gen/ts/berth/v1/sandbox_pb.js";
import { reasonOf, retrying } from "./retry.ts";

/** Where an agent stands. */
export type AgentState = "IDLE" | "RUNNING" | "FINISHED" | "ERROR";

/** One message of the conversation. */
export interface AgentMessage {
  readonly role: "USER" | "SYSTEM" | "ASSISTANT" | "TOOL";
  readonly content: string;
}

/** A step to do. */
export interface AgentStep {
  readonly runId: string;
  /** From 1. */
  readonly number: number;
  /** What to ask: the agent's own prompt, below a warning where it goes round in circles. */
  readonly prompt: string;
  /** The run's sandbox; empty without one. */
  readonly sandboxId: string;
  /** Aborted when the run ends meanwhile: canceled, out of time, or without its sandbox. */
  readonly signal: AbortSignal;
}

/** What a step came to. A string alone is its `result`. */
export interface AgentStepResult {
  /** In words; what is beyond 16 KiB is cut off. */
  readonly result: string;
  /** Whether the agent has reached its aim. Default false. */
  readonly finished?: boolean;
  /** What was said in it: 100 at most, of which each is cut off after 256 KiB. Default: `result`, by the assistant. */
  readonly messages?: readonly AgentMessage[];
}

/** What a run came to. */
export interface AgentRun {
  readonly runId: string;
  /** IDLE after the most steps. */
  readonly state: AgentState;
  readonly outcome: "FINISHED" | "MAX_STEPS" | "ERROR" | "CANCELED" | "LEASE_EXPIRED" | "DEADLINE";
  /** How it ended, for a person. */
  readonly message: string;
  /** One line a step. */
  readonly summary: string;
}

/** How an agent's runs are set up. What is not given is the service's default. Times in milliseconds. */
export interface AgentOptions {
  readonly name?: string;
  readonly maxSteps?: number;
  readonly duplicateThreshold?: number;
  /** After how long the service gives up an agent that is not heard of. */
  readonly stepTimeoutMs?: number;
  readonly maxDurationMs?: number;
  readonly nextStepPrompt?: string;
  /** What it works in: a sandbox made for each run, or one that is there. Default: none. */
  readonly sandbox?: { readonly spec: MessageInitShape<typeof SandboxSpecSchema> } | { readonly id: string };
  /** Whether the sandbox stays after the run. Default: one that was there stays, one made for the run does not. */
  readonly keepSandbox?: boolean;
}

const MAX_RESULT_BYTES = 16 * 1024;
const MAX_MESSAGE_BYTES = 256 * 1024;
/** How long the making of a run is tried, before the service has said anything. */
const CREATE_MS = 30_000;
/** Signs of life in one step timeout. */
const SIGNS_PER_TIMEOUT = 3;

/**
 * An agent whose runs the service supervises. Write {@link step}; the service
 * counts the steps, keeps the time, warns of going round in circles, and cleans
 * up whatever happens, also when this program dies. A connection that breaks
 * and a service that restarts are waited for, as long as the step timeout is, and
 * for 30 s before there is a run.
 *
 * An agent does one run at a time. {@link close} takes the last one away.
 */
export abstract class Agent implements AsyncDisposable {
  readonly #runs: Client<typeof RunService>;
  readonly #options: AgentOptions;
  #run: Run | undefined;
  #state: AgentState = "IDLE";
  #currentStep = 0;
  /** Names the making of the next run, so that it is made once however often it is asked for. */
  #createId = randomUUID();

  constructor(runs: Client<typeof RunService>, options: AgentOptions = {}) {
    this.#runs = runs;
    this.#options = options;
  }

  /** Does one step. What it throws ends the run in ERROR. */
  protected abstract step(step: AgentStep): Promise<AgentStepResult | string>;

  get state(): AgentState {
    return this.#state;
  }

  /** The step under way; 0 before the first, and after the most steps. */
  get currentStep(): number {
    return this.#currentStep;
  }

  /** Id of its run at the service; empty before the first. */
  get runId(): string {
    return this.#run?.runId ?? "";
  }

  /**
   * Does steps until the run is over. Throws what a step threw.
   * @param request becomes the user's first message.
   * @param signal cancels the run.
   */
  async run(
    request = "",
    { signal = new AbortController().signal }: { readonly signal?: AbortSignal } = {},
  ): Promise<AgentRun> {
    if (this.#state !== "IDLE") throw new Error(`Cannot run agent from state: ${this.#state}`);
    signal.throwIfAborted();
    this.#state = "RUNNING";
    try {
      this.#run ??= await this.#create(signal);
      const { runId } = this.#run;
      const start = { requestId: randomUUID(), runId, request };
      const { nextStep, run } = await this.#call((options) => this.#runs.startRun(start, options), signal);
      return await this.#loop(nextStep, run?.sandboxId ?? "", signal);
    } catch (error) {
      await this.#giveUp();
      throw error;
    }
  }

  /** Makes it IDLE again after FINISHED or ERROR; what was said is forgotten. */
  async reset(): Promise<void> {
    const run = this.#run;
    if (run !== undefined) {
      await this.#call((options) => this.#runs.resetRun({ runId: run.runId }, options));
    }
    this.#settle("IDLE", 0);
  }

  /** Ends the run, if there is one, and takes it away. Idempotent. */
  async close(): Promise<void> {
    const run = this.#run;
    this.#run = undefined;
    if (run !== undefined) await this.#call((options) => this.#runs.deleteRun({ runId: run.runId }, options));
    this.#settle("IDLE", 0);
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  async #create(signal: AbortSignal): Promise<Run> {
    const { sandbox, keepSandbox, stepTimeoutMs, maxDurationMs, ...rest } = this.#options;
    const wanted: MessageInitShape<typeof CreateRunRequestSchema> = {
      ...rest,
      requestId: this.#createId,
      ...(stepTimeoutMs !== undefined && { stepTimeout: durationFromMs(stepTimeoutMs) }),
      ...(maxDurationMs !== undefined && { maxDuration: durationFromMs(maxDurationMs) }),
      ...(keepSandbox !== undefined && { onEnd: keepSandbox ? RunOnEnd.KEEP : RunOnEnd.DELETE_SANDBOX }),
      ...(sandbox && {
        sandbox:
          "id" in sandbox
            ? { case: "sandboxId", value: sandbox.id }
            : { case: "sandboxSpec", value: sandbox.spec },
      }),
    };
    const { run } = await retrying(CREATE_MS, signal, () => this.#runs.createRun(wanted, { signal }));
    if (run === undefined) throw new Error("the service answered without a run");
    this.#createId = randomUUID();
    return run;
  }

  async #loop(first: NextStep | undefined, sandboxId: string, signal: AbortSignal): Promise<AgentRun> {
    for (let next = first; next !== undefined; ) {
      this.#currentStep = next.step;
      const done = await this.#do(next, sandboxId, signal);
      if (done === "over") break;
      const report = { runId: this.runId, step: next.step, startId: next.startId, ...done.report };
      const verdict = await this.#unlessOver(() =>
        this.#call((options) => this.#runs.reportStep(report, options)),
      );
      if (done.error !== undefined) {
        this.#settle("ERROR", next.step);
        throw done.error;
      }
      next = verdict?.verdict.case === "nextStep" ? verdict.verdict.value : undefined;
    }
    return this.#result();
  }

  /** Does one step, with signs of life while it lasts; "over" where the run ended meanwhile. */
  async #do(next: NextStep, sandboxId: string, signal: AbortSignal) {
    const { runId } = this;
    const over = new AbortController();
    const stop = async (): Promise<void> => {
      await this.#call((options) => this.#runs.cancelRun({ runId }, options)).catch(() => {});
      over.abort(signal.reason);
    };
    signal.addEventListener("abort", stop, { once: true });
    if (signal.aborted) void stop();
    const alive = { runId, step: next.step, startId: next.startId };
    const timer = setInterval(() => {
      this.#runs.keepAliveRun(alive).catch((error: unknown) => {
        if (isOver(error)) over.abort(error);
      });
    }, this.#stepTimeoutMs / SIGNS_PER_TIMEOUT);
    const ended = new Promise<"over">((resolve) => {
      over.signal.addEventListener("abort", () => resolve("over"), { once: true });
    });
    try {
      const step = { runId, number: next.step, prompt: next.prompt, sandboxId, signal: over.signal };
      return await Promise.race([ended, this.#attempt(step)]);
    } finally {
      clearInterval(timer);
      signal.removeEventListener("abort", stop);
    }
  }

  async #attempt(step: AgentStep) {
    try {
      const made = await this.step(step);
      const { result, finished = false, messages } = typeof made === "string" ? { result: made } : made;
      const said = messages ?? [{ role: "ASSISTANT" as const, content: result }];
      const report = {
        result: clip(result, MAX_RESULT_BYTES),
        outcome: finished ? StepOutcome.FINISHED : StepOutcome.CONTINUE,
        messages: said.map(({ role, content }) => ({
          role: roleOf(role),
          content: clip(content, MAX_MESSAGE_BYTES),
        })),
      };
      return { report, error: undefined };
    } catch (error) {
      const result = clip(error instanceof Error ? error.message : String(error), MAX_RESULT_BYTES);
      return {
        report: { result, outcome: StepOutcome.ERROR, messages: [] },
        error: error ?? new Error(result),
      };
    }
  }

  async #result(): Promise<AgentRun> {
    const { runId } = this;
    const { run } = await this.#call((options) => this.#runs.getRun({ runId }, options));
    if (run === undefined) throw new Error("the service answered without a run");
    const state = RunState[run.state] as AgentState;
    this.#settle(state, run.currentStep);
    const outcome = RunOutcome[run.outcome] as AgentRun["outcome"];
    return { runId, state, outcome, message: run.message, summary: run.summary };
  }

  /** After a failure that is not the run's own: no one continues it. */
  async #giveUp(): Promise<void> {
    const { runId } = this;
    if (this.#state !== "RUNNING") return;
    if (runId === "") return this.#settle("IDLE", 0);
    const canceled = await this.#runs.cancelRun({ runId }).catch(() => undefined);
    this.#settle(canceled?.run?.state === RunState.IDLE ? "IDLE" : "ERROR", canceled?.run?.currentStep ?? 0);
  }

  async #unlessOver<T>(call: () => Promise<T>): Promise<T | undefined> {
    try {
      return await call();
    } catch (error) {
      if (isOver(error)) return undefined;
      throw error;
    }
  }

  /** Makes a call that is safe to make twice, also over connections that break. */
  #call<T>(
    call: (options: { signal: AbortSignal }) => Promise<T>,
    signal: AbortSignal = new AbortController().signal,
  ): Promise<T> {
    return retrying(this.#stepTimeoutMs, signal, () => call({ signal }));
  }

  get #stepTimeoutMs(): number {
    return this.#run?.stepTimeout ? durationMs(this.#run.stepTimeout) : 0;
  }

  #settle(state: AgentState, step: number): void {
    this.#state = state;
    this.#currentStep = step;
  }
}

/** Whether the service says that the run, or this start of it, is not RUNNING any more. */
function isOver(error: unknown): boolean {
  const reason = reasonOf(error);
  return reason === ErrorReason.RUN_STATE || reason === ErrorReason.RUN_NOT_FOUND;
}

/** Types do not reach a caller in plain JavaScript. */
function roleOf(role: AgentMessage["role"]): RunMessageRole {
  const known = RunMessageRole[role];
  if (known === undefined) throw new Error(`"${role}" is not a role: USER, SYSTEM, ASSISTANT or TOOL.`);
  return known;
}

/** The longest beginning of a text that is so many bytes at most. */
function clip(text: string, mostBytes: number): string {
  const bytes = Buffer.from(text);
  if (bytes.length <= mostBytes) return text;
  // A character that was cut in two ends as a replacement character, which is dropped.
  return bytes
    .subarray(0, mostBytes)
    .toString()
    .replace(/\uFFFD+$/, "");
}
