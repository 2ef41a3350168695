/** The twin of agent_driver.py for the TypeScript class: the same lines in, the same lines out. */
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import {
  Agent,
  type AgentMessage,
  type AgentStep,
  type AgentStepResult,
  Berth,
} from "../../../clients/typescript/src/node.ts";

interface Script {
  readonly result?: string;
  /** How many times to repeat the result and each message. Default: 1. */
  readonly times?: number;
  readonly finished?: boolean;
  readonly says?: readonly string[];
  /** Role of the messages. Default: ASSISTANT. */
  readonly role?: string;
  readonly raise?: string;
  readonly sleep?: number;
  /** Whether to wait until the run has ended. */
  readonly outlast?: boolean;
}

interface Act {
  readonly agent: number;
  readonly do: "run" | "reset" | "state" | "cancel" | "close";
  /** Whether to do it during the act before it, and not after it. */
  readonly meanwhile?: boolean;
  readonly request?: string;
  readonly steps?: readonly Script[];
}

class Scripted extends Agent {
  place = 0;
  steps: readonly Script[] = [];
  seen: object[] = [];
  stop = new AbortController();

  protected async step({ number, prompt, sandboxId, runId, signal }: AgentStep): Promise<AgentStepResult> {
    this.seen.push({ number, prompt, sandboxId });
    tell({ agent: this.place, step: number, runId, sandboxId });
    const script = this.steps[Math.min(number, this.steps.length) - 1] ?? {};
    await sleep((script.sleep ?? 0) * 1000, undefined, { signal });
    while (script.outlast && (await this.berth.runs.get(runId, { signal })).state === "RUNNING") {
      await sleep(20, undefined, { signal });
    }
    if (script.outlast) this.seen.push({ outlasted: number });
    if (script.raise !== undefined) throw new Error(script.raise);
    const { times = 1 } = script;
    const role = (script.role ?? "ASSISTANT") as AgentMessage["role"];
    return {
      result: (script.result ?? "").repeat(times),
      finished: script.finished ?? false,
      ...(script.says && { messages: script.says.map((text) => ({ role, content: text.repeat(times) })) }),
    };
  }
}

function tell(value: object): void {
  process.stdout.write(`${JSON.stringify(value)}\n`);
}

async function perform(agent: Scripted, act: Act): Promise<object> {
  if (act.do === "run") {
    agent.steps = act.steps ?? [];
    agent.seen = [];
    agent.stop = new AbortController();
    const { signal } = agent.stop;
    const { state, outcome, message, summary } = await agent.run(act.request, { signal });
    return { state, outcome, message, summary, seen: agent.seen };
  }
  if (act.do === "reset") await agent.reset();
  if (act.do === "cancel") agent.stop.abort();
  if (act.do === "close") await agent.close();
  return {};
}

const ms = (seconds?: number) => (seconds === undefined ? undefined : seconds * 1000);

function make(setup: ReturnType<typeof JSON.parse>): Scripted {
  const agent = new Scripted(Berth.connect(setup.address), {
    maxSteps: setup.max_steps,
    nextStepPrompt: setup.next_step_prompt,
    duplicateThreshold: setup.duplicate_threshold,
    keepSandbox: setup.keep_sandbox,
    ...(setup.step_timeout && { stepTimeoutMs: ms(setup.step_timeout) }),
    ...(setup.max_duration && { maxDurationMs: ms(setup.max_duration) }),
    ...(setup.sandbox && { sandbox: { spec: {} } }),
    ...(setup.sandbox_id && { sandbox: { id: setup.sandbox_id } }),
    ...(setup.name && { name: setup.name }),
  });
  agent.place = setup.agent;
  return agent;
}

async function serve(agent: Scripted, act: Act): Promise<void> {
  const answer = await perform(agent, act).catch((error: Error) => ({
    raised: error.message,
    type: error.name,
  }));
  const { place, state, currentStep, runId } = agent;
  tell({ agent: place, done: answer, agentState: state, currentStep, runId });
}

/** Each agent, and the end of its last act. */
const agents = new Map<number, { readonly agent: Scripted; last: Promise<unknown> }>();
for await (const line of createInterface({ input: process.stdin })) {
  const act = JSON.parse(line);
  const known = agents.get(act.agent);
  if (known === undefined) agents.set(act.agent, { agent: make(act), last: Promise.resolve() });
  else if (act.meanwhile) known.last = Promise.all([known.last, serve(known.agent, act)]);
  else known.last = known.last.then(() => serve(known.agent, act));
}
await Promise.all([...agents.values()].map(({ last }) => last));
