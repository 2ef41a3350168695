import type { CallOptions } from "@connectrpc/connect";
import type { BerthClient } from "./client.ts";
import { type CallSettings, type Connection, newRequestId } from "./connection.ts";
import { nextStep, runInfo } from "./convert-run.ts";
import { BerthError, isGivenUp } from "./errors.ts";
import { type AgentMessage, createRun, createRunRequest, type RunOptions, roleOf } from "./runs.ts";
import type { NextStep, RunInfo } from "./types.ts";
import { StepOutcome } from "./v1/run_pb.js";

/** The state of an agent. */
export type AgentState = "IDLE" | "RUNNING" | "FINISHED" | "ERROR";

/** A step to do. */
export interface AgentStep {
  readonly runId: string;
  /** From 1. */
  readonly number: number;
  /** What to ask: the agent's own prompt, below a warning if it is stuck. */
  readonly prompt: string;
  /** The run's sandbox; empty without one. */
  readonly sandboxId: string;
  /** Aborted when the run ends meanwhile: canceled, out of time, or without its sandbox. */
  readonly signal: AbortSignal;
}

/** The result of a step. A plain string is its `result`. */
export interface AgentStepResult {
  /** As text; anything beyond 16 KiB is cut off. */
  readonly result: string;
  /** Whether the agent has reached its goal. Default false. */
  readonly finished?: boolean;
  /** The messages of the step: at most 100, each cut off after 256 KiB. Default: `result`, by the assistant. */
  readonly messages?: readonly AgentMessage[];
}

/** The result of a run. */
export interface AgentRun {
  readonly runId: string;
  /** IDLE if it reached its maximum of steps. */
  readonly state: AgentState;
  readonly outcome: RunInfo["outcome"];
  /** How it ended, for a person. */
  readonly message: string;
  /** One line per step. */
  readonly summary: string;
}

const MAX_RESULT_BYTES = 16 * 1024;
const MAX_MESSAGE_BYTES = 256 * 1024;
/** How long to retry creating a run before the service has answered. */
const CREATE_MS = 30_000;
/** Keepalives in one step timeout. */
const SIGNS_PER_TIMEOUT = 3;

/**
 * An agent whose runs the service supervises. Write {@link step}; the service counts the steps, keeps the time, warns
 * if the agent is stuck, and cleans up whatever happens, even if this program dies. If the connection breaks or the
 * service restarts, the agent waits for it as long as the step timeout, or 30 s before there is a run.
 *
 * An agent does one run at a time. {@link close} deletes the last one.
 */
export abstract class Agent implements AsyncDisposable {
  /** What it works with. */
  protected readonly berth: BerthClient;
  readonly #connection: Connection;
  readonly #options: RunOptions;
  #run: RunInfo | undefined;
  #state: AgentState = "IDLE";
  #currentStep = 0;
  /** The request id for creating the next run, so that it is created once no matter how often it is requested. */
  #createId = newRequestId();
  /** Stops the work on the run. */
  #stop = new AbortController();
  /** Settles once nothing works on the run. */
  #over: Promise<unknown> = Promise.resolve();

  constructor(berth: BerthClient, options: RunOptions = {}) {
    this.berth = berth;
    this.#connection = berth.connection;
    this.#options = options;
  }

  /** Does one step. If it throws, the run ends in ERROR. */
  protected abstract step(step: AgentStep): Promise<AgentStepResult | string>;

  get state(): AgentState {
    return this.#state;
  }

  /** The current step; 0 before the first, and after the maximum of steps. */
  get currentStep(): number {
    return this.#currentStep;
  }

  /** Id of its run at the service; empty before the first. */
  get runId(): string {
    return this.#run?.runId ?? "";
  }

  /**
   * Does steps until the run is over. Throws what a step threw, unless the run ended during that step.
   * @param request becomes the user's first message.
   * @param signal cancels the run. Throws its reason if the run has not started by then, or the service cannot be
   *   reached.
   */
  async run(request = "", { signal }: CallSettings = {}): Promise<AgentRun> {
    if (this.#state !== "IDLE") throw new Error(`Cannot run agent from state: ${this.#state}`);
    signal?.throwIfAborted();
    this.#state = "RUNNING";
    this.#stop = new AbortController();
    const stops = [this.#stop.signal, ...(signal ? [signal] : [])];
    const working = this.#work(request, AbortSignal.any(stops));
    this.#over = working.catch(() => {});
    return working;
  }

  async #work(request: string, signal: AbortSignal): Promise<AgentRun> {
    try {
      this.#run ??= await this.#create(signal);
      const { runId } = this.#run;
      const start = { requestId: newRequestId(), runId, request };
      const { nextStep: first, run } = await this.#call(
        (options) => this.#runs.startRun(start, options),
        signal,
      );
      return await this.#loop(nextStep(first), run?.sandboxId ?? "", signal);
    } catch (error) {
      await this.#giveUp();
      throw error;
    }
  }

  /** Returns it to IDLE after FINISHED or ERROR, and clears its messages. */
  async reset(): Promise<void> {
    const run = this.#run;
    if (run !== undefined) {
      await this.#call((options) => this.#runs.resetRun({ runId: run.runId }, options));
    }
    this.#settle("IDLE", 0);
  }

  /** Cancels the run, if there is one, and deletes it once {@link run} is over. Idempotent. */
  async close(): Promise<void> {
    this.#stop.abort(new BerthError("The agent was closed.", { code: "CANCELLED" }));
    await this.#over;
    const run = this.#run;
    if (run !== undefined) await this.#call((options) => this.#runs.deleteRun({ runId: run.runId }, options));
    this.#run = undefined;
    this.#settle("IDLE", 0);
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  get #runs(): Connection["runs"] {
    return this.#connection.runs;
  }

  async #create(signal: AbortSignal): Promise<RunInfo> {
    const request = createRunRequest(this.#options, this.#createId);
    try {
      const run = await createRun(this.#connection, request, signal, CREATE_MS);
      this.#createId = newRequestId();
      return run;
    } catch (error) {
      // The run of an abandoned request is removed, so the next one must not return it.
      if (isGivenUp(error, signal)) this.#createId = newRequestId();
      throw error;
    }
  }

  async #loop(first: NextStep | undefined, sandboxId: string, signal: AbortSignal): Promise<AgentRun> {
    for (let next = first; next !== undefined; ) {
      this.#currentStep = next.step;
      const done = await this.#do(next, sandboxId, signal);
      if (done === "over") break;
      const report = { runId: this.runId, step: next.step, startId: next.startId, ...done.report };
      const verdict = await this.#unlessOver(
        () => this.#call((options) => this.#runs.reportStep(report, options), signal),
        signal,
      );
      // The run ended during the step. If the step threw, that may be why: its commands were killed.
      if (verdict === undefined) break;
      if (done.error !== undefined) {
        this.#settle("ERROR", next.step);
        throw done.error;
      }
      next = verdict.verdict.case === "nextStep" ? nextStep(verdict.verdict.value) : undefined;
    }
    return this.#result(signal);
  }

  /** Does one step and sends keepalives meanwhile; returns "over" if the run ended, or the signal was aborted, meanwhile. */
  async #do(next: NextStep, sandboxId: string, signal: AbortSignal) {
    if (signal.aborted) return "over";
    const { runId } = this;
    const over = new AbortController();
    const stop = (): void => over.abort(signal.reason);
    signal.addEventListener("abort", stop, { once: true });
    const alive = { runId, step: next.step, startId: next.startId };
    const timer = setInterval(() => {
      this.#connection
        .once((options) => this.#runs.keepAliveRun(alive, options))
        .catch((error: unknown) => {
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

  async #result(signal: AbortSignal): Promise<AgentRun> {
    const { runId } = this;
    const { run } = signal.aborted
      ? await this.#cancel(signal.reason)
      : await this.#call((options) => this.#runs.getRun({ runId }, options));
    const { state, outcome, message, summary, currentStep } = runInfo(run);
    this.#settle(state as AgentState, currentStep);
    return { runId, state: this.#state, outcome, message, summary };
  }

  /** Ends the run. Who gave it up does not wait long for a service that cannot be reached, but gets the reason. */
  async #cancel(reason: unknown) {
    const { runId } = this;
    return this.#connection
      .again((options) => this.#runs.cancelRun({ runId }, options))
      .catch(() => {
        throw reason;
      });
  }

  /** After a failure that is not the run's own: no one continues it. */
  async #giveUp(): Promise<void> {
    const { runId } = this;
    if (this.#state !== "RUNNING") return;
    if (runId === "") return this.#settle("IDLE", 0);
    const cancel = this.#connection.once((options) => this.#runs.cancelRun({ runId }, options));
    const canceled = await cancel.then(({ run }) => runInfo(run)).catch(() => undefined);
    this.#settle(canceled?.state === "IDLE" ? "IDLE" : "ERROR", canceled?.currentStep ?? 0);
  }

  async #unlessOver<T>(call: () => Promise<T>, signal: AbortSignal): Promise<T | undefined> {
    try {
      return await call();
    } catch (error) {
      if (signal.aborted || isOver(error)) return undefined;
      throw error;
    }
  }

  /** Makes a call that is safe to repeat, and retries it if the connection breaks. */
  #call<T>(call: (options: CallOptions) => Promise<T>, signal?: AbortSignal): Promise<T> {
    return this.#connection.again(call, signal, this.#stepTimeoutMs);
  }

  get #stepTimeoutMs(): number {
    return this.#run?.stepTimeoutMs ?? 0;
  }

  #settle(state: AgentState, step: number): void {
    this.#state = state;
    this.#currentStep = step;
  }
}

/** Whether the service says that the run, or this start of it, is no longer RUNNING. */
function isOver(error: unknown): boolean {
  return BerthError.is(error, "RUN_STATE", "RUN_NOT_FOUND");
}

/** The longest prefix of a text that is at most so many bytes. */
function clip(text: string, mostBytes: number): string {
  // So many characters are at least as many bytes, so the rest need not be encoded.
  const { read } = new TextEncoder().encodeInto(text.slice(0, mostBytes), new Uint8Array(mostBytes));
  return text.slice(0, read);
}
