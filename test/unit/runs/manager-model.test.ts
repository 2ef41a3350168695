import fc from "fast-check";
import { expect, test } from "vitest";
import { BerthError } from "../../../src/base/errors.ts";
import {
  currentStep,
  endOf,
  type RunOutcome,
  type RunSettings,
  type RunState,
  type StepOutcome,
  sandboxOf,
  summaryOf,
} from "../../../src/runs/run.ts";
import { scaled } from "../../support/scale.ts";
import { RUN_SETTINGS, RunBench } from "./support.ts";

const OWNER = "default";

/** What callers, time and failures do to runs. `run` is an index into the existing runs. */
type Act =
  | { readonly do: "create"; readonly settings: Partial<RunSettings>; readonly given: boolean }
  | {
      readonly do: "start" | "cancel" | "reset" | "delete" | "keepAlive" | "loseSandbox";
      readonly run: number;
    }
  | {
      readonly do: "report";
      readonly run: number;
      /** Offset from the current step. */
      readonly off: number;
      readonly start: "mine" | "none" | "old";
      readonly outcome: StepOutcome;
      readonly again: boolean;
    }
  | { readonly do: "wait"; readonly ms: number }
  | { readonly do: "restart"; readonly downMs: number };

/** The simplest model of a run's contract. */
interface Model {
  runId: string;
  settings: RunSettings;
  given: string | undefined;
  state: RunState;
  outcome: RunOutcome | undefined;
  step: number;
  lines: string[];
  starts: number;
  startIds: string[];
  leaseAt: number;
  deadlineAt: number;
  sandbox: string | undefined;
}

const run = fc.nat(5);
const act: fc.Arbitrary<Act> = fc.oneof(
  {
    weight: 3,
    arbitrary: fc.record({
      do: fc.constant("create" as const),
      given: fc.boolean(),
      settings: fc.record({
        maxSteps: fc.integer({ min: 1, max: 4 }),
        stepTimeoutMs: fc.constantFrom(4_000, 20_000),
        maxDurationMs: fc.constantFrom(undefined, 30_000),
        sandbox: fc.constantFrom<RunSettings["sandbox"]>({ kind: "none" }, { kind: "made", spec: {} }),
        onEnd: fc.constantFrom("DELETE_SANDBOX" as const, "KEEP" as const),
      }),
    }),
  },
  { weight: 6, arbitrary: fc.record({ do: fc.constant("start" as const), run }) },
  {
    weight: 10,
    arbitrary: fc.record({
      do: fc.constant("report" as const),
      run,
      off: fc.constantFrom(0, 0, 0, 0, 0, -1, 1),
      start: fc.constantFrom("mine" as const, "mine" as const, "none" as const, "old" as const),
      outcome: fc.constantFrom<StepOutcome>("CONTINUE", "CONTINUE", "CONTINUE", "FINISHED", "ERROR"),
      again: fc.boolean(),
    }),
  },
  {
    weight: 5,
    arbitrary: fc.record({
      do: fc.constantFrom(
        "cancel" as const,
        "reset" as const,
        "reset" as const,
        "delete" as const,
        "keepAlive" as const,
        "loseSandbox" as const,
      ),
      run,
    }),
  },
  {
    weight: 3,
    arbitrary: fc.record({ do: fc.constant("wait" as const), ms: fc.constantFrom(1, 2_000, 5_000, 25_000) }),
  },
  {
    weight: 2,
    arbitrary: fc.record({ do: fc.constant("restart" as const), downMs: fc.constantFrom(0, 3_000, 40_000) }),
  },
);

/** The contract, one line per rule, next to the service itself. */
class World {
  readonly bench: RunBench;
  readonly models: Model[] = [];
  readonly kept = new Set<string>();
  #fingerprints = 0;

  constructor(bench: RunBench) {
    this.bench = bench;
  }

  get now(): number {
    return this.bench.clock.monotonicMs();
  }

  async perform(one: Act): Promise<void> {
    if (one.do === "create") return this.create(one);
    if (one.do === "wait") return this.wait(one.ms);
    if (one.do === "restart") return this.restart(one.downMs);
    const model = this.models[one.run % Math.max(1, this.models.length)];
    if (model === undefined) return;
    if (one.do === "report") return this.report(model, one);
    await this[one.do](model);
  }

  async create({ settings, given }: Extract<Act, { do: "create" }>): Promise<void> {
    const { runs, sandboxes } = this.bench;
    let sandbox = settings.sandbox ?? RUN_SETTINGS.sandbox;
    if (given) {
      const { sandboxId } = await sandboxes.create(OWNER, {}, { signal: new AbortController().signal });
      sandbox = { kind: "given", sandboxId, generation: undefined };
      this.kept.add(sandboxId);
    }
    const full = { ...RUN_SETTINGS, ...settings, sandbox };
    this.models.push({
      runId: runs.create(OWNER, full).run.runId,
      settings: full,
      given: sandbox.kind === "given" ? sandbox.sandboxId : undefined,
      state: "IDLE",
      outcome: undefined,
      step: 0,
      lines: [],
      starts: 0,
      startIds: [],
      leaseAt: 0,
      deadlineAt: 0,
      sandbox: undefined,
    });
  }

  async start(model: Model): Promise<void> {
    const started = await outcomeOf(() =>
      this.bench.runs.start(OWNER, model.runId, undefined, new AbortController().signal),
    );
    if (model.state !== "IDLE") return void expect(started).toBe("RUN_STATE");
    if (model.given !== undefined && !this.kept.has(model.given)) {
      return void expect(started).toBe("SANDBOX_NOT_RUNNING");
    }
    if (typeof started === "string") throw new Error(`the start was refused: ${started}`);
    const { run: now } = started;
    const { stepTimeoutMs, maxDurationMs = Number.POSITIVE_INFINITY } = model.settings;
    Object.assign(model, {
      state: "RUNNING",
      outcome: undefined,
      step: 1,
      lines: [],
      leaseAt: this.now + stepTimeoutMs,
      deadlineAt: this.now + maxDurationMs,
      sandbox: now.sandbox?.sandboxId,
    });
    model.startIds.push(now.startId);
    if (model.given !== undefined) this.kept.delete(model.given);
  }

  async report(model: Model, { off, start, outcome, again }: Extract<Act, { do: "report" }>): Promise<void> {
    const startId = start === "none" ? "" : (model.startIds.at(start === "mine" ? -1 : -2) ?? "none");
    const step = Math.max(1, model.step + off);
    const result = `result ${++this.#fingerprints}`;
    const report = { step, startId, messages: [], result, outcome, fingerprint: result };
    const send = () => outcomeOf(() => this.bench.runs.report(OWNER, model.runId, report));
    const answer = await send();
    const due =
      model.state === "RUNNING" &&
      step === model.step &&
      (startId === "" || startId === model.startIds.at(-1));
    if (!due) return void expect(answer).toBe("RUN_STATE");
    model.lines.push(`Step ${step}: ${result}`);
    if (outcome === "FINISHED") this.end(model, "FINISHED", "FINISHED");
    else if (outcome === "ERROR") this.end(model, "ERROR", "ERROR");
    else if (step === model.settings.maxSteps) {
      this.end(model, "IDLE", "MAX_STEPS");
      model.lines.push(`Terminated: Reached max steps (${step})`);
    } else {
      model.step++;
      model.leaseAt = this.now + model.settings.stepTimeoutMs;
    }
    // The same report once more changes nothing: it is refused or, if it names its start, gets the same answer.
    if (!again) return;
    const second = await send();
    if (startId === "") expect(second).toBe("RUN_STATE");
    else expect(second).toMatchObject({ run: { phase: { state: model.state } }, end: model.outcome && {} });
  }

  async keepAlive(model: Model): Promise<void> {
    const answer = await outcomeOf(async () => this.bench.runs.keepAlive(OWNER, model.runId, 0, ""));
    if (model.state !== "RUNNING") return void expect(answer).toBe("RUN_STATE");
    model.leaseAt = this.now + model.settings.stepTimeoutMs;
  }

  async cancel(model: Model): Promise<void> {
    await this.bench.runs.cancel(OWNER, model.runId);
    if (model.state === "RUNNING") this.end(model, "ERROR", "CANCELED");
  }

  async reset(model: Model): Promise<void> {
    const answer = await outcomeOf(() => this.bench.runs.reset(OWNER, model.runId));
    if (model.state === "RUNNING") return void expect(answer).toBe("RUN_STATE");
    Object.assign(model, { state: "IDLE", outcome: undefined, step: 0, lines: [], sandbox: undefined });
  }

  async delete(model: Model): Promise<void> {
    await this.bench.runs.delete(OWNER, model.runId);
    if (model.state === "RUNNING") this.end(model, "ERROR", "CANCELED");
    this.models.splice(this.models.indexOf(model), 1);
  }

  /** Removes the run's sandbox without the service. */
  async loseSandbox(model: Model): Promise<void> {
    const { engine, clock } = this.bench;
    const found = [...engine.sandboxes.values()].find(({ sandboxId }) => sandboxId === model.sandbox);
    if (found === undefined || model.sandbox === undefined) return;
    engine.vanish(found.ref);
    this.kept.delete(model.sandbox);
    await clock.advance(0);
    if (model.state !== "RUNNING") return;
    const { sandbox } = model;
    this.end(model, "ERROR", "ERROR");
    this.kept.delete(sandbox);
  }

  async wait(ms: number): Promise<void> {
    await this.bench.clock.advance(ms);
    this.expire();
  }

  async restart(downMs: number): Promise<void> {
    await this.bench.restart(downMs);
    for (const model of this.models) {
      model.leaseAt = Math.max(model.leaseAt, this.now + Math.min(model.settings.stepTimeoutMs, 10_000));
    }
    // A deadline that passed meanwhile fires as a timer.
    await this.wait(1);
  }

  expire(): void {
    for (const model of this.models) {
      if (model.state !== "RUNNING") continue;
      if (Math.min(model.leaseAt, model.deadlineAt) > this.now) continue;
      this.end(model, "ERROR", model.deadlineAt <= model.leaseAt ? "DEADLINE" : "LEASE_EXPIRED");
    }
  }

  end(model: Model, state: RunState, outcome: RunOutcome): void {
    Object.assign(model, { state, outcome });
    if (state === "IDLE") model.step = 0;
    if (model.settings.onEnd === "KEEP") {
      if (model.sandbox !== undefined) this.kept.add(model.sandbox);
    } else model.sandbox = undefined;
  }

  check(): void {
    const { runs, containers, running } = this.bench;
    const shown = runs.catalog.list(OWNER, { states: new Set(), limit: 1000, before: undefined });
    expect(shown.runs.map((view) => view.run.runId)).toEqual(this.models.map(({ runId }) => runId).reverse());
    for (const model of this.models) {
      const { run: now, steps } = runs.catalog.get(OWNER, model.runId);
      expect({
        state: now.phase.state,
        outcome: endOf(now)?.outcome,
        step: currentStep(now),
        summary: summaryOf(now, steps),
        sandbox: sandboxOf(now),
      }).toEqual({
        state: model.state,
        outcome: model.outcome,
        step: model.step,
        summary: model.lines.join("\n") || "No steps executed",
        sandbox: model.sandbox,
      });
      expect(running.has(OWNER, model.runId)).toBe(model.state === "RUNNING");
    }
    const used = this.models.flatMap(({ state, sandbox }) => (state === "RUNNING" ? (sandbox ?? []) : []));
    expect(containers).toEqual([...this.kept, ...used].sort());
  }
}

async function outcomeOf<T>(work: () => Promise<T>): Promise<T | string> {
  try {
    return await work();
  } catch (error) {
    if (!(error instanceof BerthError)) throw error;
    return error.reason;
  }
}

test("runs follow the contract, through restarts and lost leases", async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(act, { minLength: 1, maxLength: 60 }), async (acts) => {
      const world = new World(await RunBench.start());
      for (const one of acts) {
        await world.perform(one);
        world.check();
      }
      // In the end all callers have left, and only what must be kept is left.
      await world.wait(100_000);
      for (const model of [...world.models]) await world.delete(model);
      world.check();
      expect(world.bench.log.errors).toEqual([]);
    }),
    { numRuns: scaled(3_000, 200) },
  );
});
