import type { MessageInitShape } from "@bufbuild/protobuf";
import { allPages, type CallSettings, type Connection, newRequestId } from "./connection.ts";
import { duration, specMessage } from "./convert.ts";
import { nextStep, report, runEvent, runInfo } from "./convert-run.ts";
import { type Subscription, subscribe } from "./subscription.ts";
import type { NextStep, Report, RunEvent, RunInfo, SandboxSpec } from "./types.ts";
import {
  type CreateRunRequestSchema,
  type CreateRunResponse,
  RunMessageRole,
  RunOnEnd,
  StepOutcome,
} from "./v1/run_pb.js";

const PAGE = 1000;

/** The settings of a run. Unset ones take the service's defaults. */
export interface RunOptions {
  readonly name?: string | undefined;
  /** Default 10. */
  readonly maxSteps?: number | undefined;
  /** How many identical earlier messages make it stuck. Default 2. */
  readonly duplicateThreshold?: number | undefined;
  /** How long the agent may be silent before the service ends the run. Default 300,000. */
  readonly stepTimeoutMs?: number | undefined;
  /** Default: no limit. */
  readonly maxDurationMs?: number | undefined;
  readonly nextStepPrompt?: string | undefined;
  /** What it works in: a sandbox created at each start, or an existing one. Default: none. */
  readonly sandbox?: { readonly spec: SandboxSpec } | { readonly id: string } | undefined;
  /** Whether the sandbox stays after the run. Default: an existing one stays, one created for the run does not. */
  readonly keepSandbox?: boolean | undefined;
}

/** The result of a step. */
export interface StepReport extends CallSettings {
  readonly result?: string;
  /** Default CONTINUE. */
  readonly outcome?: "CONTINUE" | "FINISHED" | "ERROR";
  readonly messages?: readonly AgentMessage[];
}

/** One message of the conversation. */
export interface AgentMessage {
  readonly role: "USER" | "SYSTEM" | "ASSISTANT" | "TOOL";
  readonly content: string;
}

/**
 * The runs of a service, one call at a time. `berth.runs`. {@link Agent} is the loop over them.
 *
 * All methods may throw: RUN_NOT_FOUND, and RUN_STATE if the run is not in a state that allows the call.
 */
export class Runs {
  readonly #connection: Connection;

  constructor(connection: Connection) {
    this.#connection = connection;
  }

  /**
   * Creates a run in state IDLE. A create that is aborted, or whose client is closed meanwhile, leaves nothing behind.
   */
  create({ signal, ...options }: RunOptions & CallSettings = {}): Promise<RunInfo> {
    return createRun(this.#connection, createRunRequest(options, newRequestId()), signal);
  }

  /** Starts an IDLE run: prepares its sandbox and hands out the first step. `request`: the first message. */
  async start(
    runId: string,
    request = "",
    { signal }: CallSettings = {},
  ): Promise<{ readonly run: RunInfo; readonly nextStep: NextStep }> {
    const message = { requestId: newRequestId(), runId, request };
    const call = (options: object) => this.#connection.runs.startRun(message, options);
    const answer = await this.#connection.again(call, signal);
    return { run: runInfo(answer.run), nextStep: nextStep(answer.nextStep) };
  }

  /**
   * Reports a step: one that was handed out, or the number of the current one, which {@link get} returns to a program
   * that continues another's run. Returns how the run continues.
   */
  async report(
    runId: string,
    step: NextStep | number,
    { result = "", outcome = "CONTINUE", messages = [], signal }: StepReport = {},
  ): Promise<Report> {
    const request = {
      requestId: newRequestId(),
      runId,
      ...stepFields(step),
      result,
      outcome: StepOutcome[outcome],
      messages: messages.map(({ role, content }) => ({ role: roleOf(role), content })),
    };
    const call = (options: object) => this.#connection.runs.reportStep(request, options);
    return report(await this.#connection.again(call, signal));
  }

  /** Says that the caller is still working on the current step. */
  async keepAlive(runId: string, step: NextStep | number = 0, { signal }: CallSettings = {}): Promise<void> {
    const request = { requestId: newRequestId(), runId, ...stepFields(step) };
    await this.#connection.again((options) => this.#connection.runs.keepAliveRun(request, options), signal);
  }

  /** Cancels a RUNNING run. Idempotent. */
  async cancel(runId: string, { signal }: CallSettings = {}): Promise<RunInfo> {
    const request = { requestId: newRequestId(), runId };
    const call = (options: object) => this.#connection.runs.cancelRun(request, options);
    return runInfo((await this.#connection.again(call, signal)).run);
  }

  /** Returns an ended run to IDLE, and clears its messages. */
  async reset(runId: string, { signal }: CallSettings = {}): Promise<RunInfo> {
    const request = { requestId: newRequestId(), runId };
    const call = (options: object) => this.#connection.runs.resetRun(request, options);
    return runInfo((await this.#connection.again(call, signal)).run);
  }

  /** The data of a run. `skipMessages` leaves out that many of the newest messages, to read a long conversation in parts. */
  async get(
    runId: string,
    {
      includeMessages = false,
      skipMessages = 0,
      signal,
    }: CallSettings & { readonly includeMessages?: boolean; readonly skipMessages?: number } = {},
  ): Promise<RunInfo> {
    const request = { runId, includeMessages, skipMessages };
    const call = (options: object) => this.#connection.runs.getRun(request, options);
    return runInfo((await this.#connection.again(call, signal)).run);
  }

  /** Every run, newest first, without steps, messages and summaries. */
  list({ signal }: CallSettings = {}): Promise<RunInfo[]> {
    return allPages(async (pageToken) => {
      const request = { pageSize: PAGE, pageToken };
      const call = (options: object) => this.#connection.runs.listRuns(request, options);
      const { runs, nextPageToken } = await this.#connection.again(call, signal);
      return { items: runs.map(runInfo), nextPageToken };
    });
  }

  /** Removes a run and its record; a RUNNING one is canceled first. Idempotent. */
  async delete(runId: string, { signal }: CallSettings = {}): Promise<void> {
    const request = { requestId: newRequestId(), runId };
    await this.#connection.again((options) => this.#connection.runs.deleteRun(request, options), signal);
  }

  /**
   * The events of a run: first the kept history after a sequence, then events as they happen. Ends when the run is
   * deleted. If the connection breaks, it continues after the last event.
   */
  watch(
    runId: string,
    { afterSequence = 0, signal }: CallSettings & { readonly afterSequence?: number } = {},
  ): Subscription<RunEvent> {
    return subscribe(this.#connection, {
      connect: (last: RunEvent | undefined, options) => {
        const request = { runId, afterSequence: BigInt(last?.sequence ?? afterSequence) };
        return this.#connection.runs.watchRun(request, options);
      },
      convert: runEvent,
      announced: false,
      resumes: true,
      signal,
    });
  }
}

function stepFields(step: NextStep | number): { step: number; startId: string } {
  return typeof step === "number" ? { step, startId: "" } : { step: step.step, startId: step.startId };
}

/** Creates a run. If that is given up, or the client is closed meanwhile, removes the run later. */
export async function createRun(
  connection: Connection,
  request: MessageInitShape<typeof CreateRunRequestSchema>,
  signal: AbortSignal | undefined,
  retryForMs?: number,
): Promise<RunInfo> {
  const { runs } = connection;
  const call = (options: object) => runs.createRun(request, options);
  const removal = { requestId: newRequestId() };
  const remove = ({ run }: CreateRunResponse, options: object) =>
    runs.deleteRun({ ...removal, runId: run?.runId ?? "" }, options);
  return runInfo((await connection.create(call, remove, signal, retryForMs)).run);
}

/** The request that creates a run. */
export function createRunRequest(
  { sandbox, keepSandbox, stepTimeoutMs, maxDurationMs, ...rest }: RunOptions,
  requestId: string,
): MessageInitShape<typeof CreateRunRequestSchema> {
  const { name = "", maxSteps, duplicateThreshold, nextStepPrompt = "" } = rest;
  return {
    requestId,
    name,
    nextStepPrompt,
    ...(maxSteps !== undefined && { maxSteps }),
    ...(duplicateThreshold !== undefined && { duplicateThreshold }),
    stepTimeout: duration(stepTimeoutMs),
    maxDuration: duration(maxDurationMs),
    ...(keepSandbox !== undefined && { onEnd: keepSandbox ? RunOnEnd.KEEP : RunOnEnd.DELETE_SANDBOX }),
    ...(sandbox && {
      sandbox:
        "id" in sandbox
          ? { case: "sandboxId", value: sandbox.id }
          : { case: "sandboxSpec", value: specMessage(sandbox.spec) },
    }),
  };
}

/** Callers in plain JavaScript are not checked by types. */
export function roleOf(role: AgentMessage["role"]): RunMessageRole {
  const known = RunMessageRole[role];
  if (known === undefined) throw new Error(`"${role}" is not a role: USER, SYSTEM, ASSISTANT or TOOL.`);
  return known;
}
