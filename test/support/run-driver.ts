import type { Client, Request } from "./client.ts";
import type { NextStep, ReportStepResponse, Run, RunEnd, RunEvent } from "./wire-runs.ts";

/** The outcome of a step, in short form. */
export interface Said {
  readonly result?: string;
  readonly outcome?: "CONTINUE" | "FINISHED" | "ERROR";
  /** The assistant's messages in it. */
  readonly says?: readonly string[];
  readonly more?: Request;
}

/** Drives a run with RPCs, like an agent. */
export class RunDriver {
  readonly client: Client;
  readonly runId: string;
  next: NextStep | undefined;

  private constructor(client: Client, runId: string) {
    this.client = client;
    this.runId = runId;
  }

  /** Creates a run. */
  static async create(client: Client, request: Request = {}): Promise<RunDriver> {
    const { run } = await client.call("RunService/CreateRun", request);
    return new RunDriver(client, run.run_id);
  }

  /** Creates a run and starts it. */
  static async start(client: Client, request: Request = {}): Promise<RunDriver> {
    const driver = await RunDriver.create(client, request);
    await driver.start();
    return driver;
  }

  async start(request = ""): Promise<Run> {
    const answer = await this.client.call("RunService/StartRun", { run_id: this.runId, request });
    this.next = answer.next_step;
    return answer.run;
  }

  /** Reports the step that was handed out. */
  async report({
    result = "",
    outcome = "CONTINUE",
    says = [],
    more,
  }: Said = {}): Promise<ReportStepResponse> {
    const answer = await this.client.call("RunService/ReportStep", {
      run_id: this.runId,
      step: this.next?.step,
      start_id: this.next?.start_id,
      result,
      outcome: `STEP_OUTCOME_${outcome}`,
      messages: says.map((content) => ({ role: "RUN_MESSAGE_ROLE_ASSISTANT", content })),
      ...more,
    });
    this.next = answer.next_step;
    return answer;
  }

  /** Reports the last step. Fails if the run continues. */
  async finish(said: Said = {}): Promise<RunEnd> {
    const { run_end: end } = await this.report({ outcome: "FINISHED", ...said });
    if (!end) throw new Error("the run goes on");
    return end;
  }

  async get(includeMessages = false, skipMessages = 0): Promise<Run> {
    const request = { run_id: this.runId, include_messages: includeMessages, skip_messages: skipMessages };
    return (await this.client.call("RunService/GetRun", request)).run;
  }

  async cancel(): Promise<Run> {
    return (await this.client.call("RunService/CancelRun", { run_id: this.runId })).run;
  }

  async reset(): Promise<Run> {
    return (await this.client.call("RunService/ResetRun", { run_id: this.runId })).run;
  }

  async delete(): Promise<void> {
    await this.client.call("RunService/DeleteRun", { run_id: this.runId });
  }

  /** The past and future events, until `done` returns true or the run is deleted. */
  async events(done: (event: RunEvent) => boolean, afterSequence = 0): Promise<RunEvent[]> {
    const request = { run_id: this.runId, after_sequence: afterSequence };
    const events: RunEvent[] = [];
    const stream = this.client.stream("RunService/WatchRun", request);
    for await (const { event } of stream) {
      if (!event) continue;
      events.push(event);
      if (done(event)) break;
    }
    return events;
  }
}
