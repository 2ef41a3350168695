import fc from "fast-check";
import { expect, test } from "vitest";
import { BerthError } from "../../../src/base/errors.ts";
import type { Lease } from "../../../src/sandboxes/lease.ts";
import type { SandboxManager } from "../../../src/sandboxes/manager.ts";
import { settled } from "../../support/manual-clock.ts";
import type { EngineStep } from "../../support/memory-engine.ts";
import { scaled } from "../../support/scale.ts";
import { newManager, newWorld, OWNER, type World } from "./support.ts";

const IDLE_MS = 60_000;
const LIMIT = 3;
const never = new AbortController().signal;

/** The simplest model of a sandbox. */
interface ModelSandbox {
  state: "RUNNING" | "PAUSED" | "TERMINATED";
  generation: number;
  usedAt: number;
  leases: number;
}

interface Model {
  now: number;
  readonly sandboxes: Map<string, ModelSandbox>;
}

/** The service: the state that outlives it, and its current run. */
class Service {
  readonly world: World = newWorld();
  manager!: SandboxManager;
  leases = new Map<string, Lease[]>();
  #stop: () => void = () => {};

  async start(): Promise<void> {
    this.leases = new Map();
    const { manager, monitor, state } = await newManager(
      { maxSandboxes: LIMIT, cleanupIntervalMs: IDLE_MS, deleteGraceMs: 0 },
      this.world,
    );
    this.manager = manager;
    state.start();
    await manager.recover();
    manager.start();
    this.#stop = () => monitor.stop();
    await settled();
  }

  /** Like SIGKILL: this run does nothing any more. */
  kill(): void {
    this.#stop();
    this.world.clock.forgetTimers();
  }
}

type Command = fc.AsyncCommand<Model, Service>;

const live = (model: Model): [string, ModelSandbox][] =>
  [...model.sandboxes].filter(([, { state }]) => state !== "TERMINATED");

/** Checks that the service, its engine and its store agree with the model. */
async function compare(model: Model, { manager, world }: Service): Promise<void> {
  await settled();
  const all = new Set(["CREATING", "RUNNING", "PAUSED", "DELETING", "TERMINATED"] as const);
  const { items: found } = manager.list(OWNER, { labels: {}, states: all });
  const facts = found.map(({ sandboxId, state, generation }) => [sandboxId, state, generation]);
  const wanted = [...model.sandboxes].map(([id, { state, generation }]) => [id, state, generation]);
  expect(facts.sort()).toEqual(wanted.sort());
  expect(manager.stats(OWNER).totalSandboxes).toBe(live(model).length);
  const engine = [...world.engine.sandboxes.values()].map(({ sandboxId }) => sandboxId);
  expect(engine.sort()).toEqual(
    live(model)
      .map(([id]) => id)
      .sort(),
  );
}

class Act implements Command {
  readonly name: string;
  readonly id: string;
  readonly act: (model: Model, service: Service) => Promise<void>;
  readonly applies: (model: Model) => boolean;

  constructor(
    name: string,
    id: string,
    applies: (model: Model) => boolean,
    act: (model: Model, service: Service) => Promise<void>,
  ) {
    this.name = name;
    this.id = id;
    this.applies = applies;
    this.act = act;
  }

  check(model: Readonly<Model>): boolean {
    return this.applies(model as Model);
  }

  async run(model: Model, service: Service): Promise<void> {
    await this.act(model, service);
    // The time of a sandbox's last use is stored a little later.
    await wait(model, service, 150);
    await compare(model, service);
  }

  toString(): string {
    return `${this.name} ${this.id}`;
  }
}

const stateIs =
  (id: string, ...states: string[]) =>
  (model: Model): boolean =>
    states.includes(model.sandboxes.get(id)?.state ?? "none");
const name = (sandboxId: string) => ({ owner: OWNER, sandboxId });

function begin(model: Model, id: string, state: ModelSandbox["state"]): void {
  const generation = (model.sandboxes.get(id)?.generation ?? 0) + 1;
  model.sandboxes.set(id, { state, generation, usedAt: model.now, leases: 0 });
}

function change(model: Model, id: string, values: Partial<ModelSandbox>): void {
  Object.assign(model.sandboxes.get(id) ?? {}, values);
}

/** Lets time pass. */
async function wait(model: Model, { world }: Service, ms: number): Promise<void> {
  await world.clock.advance(ms);
  model.now += ms;
  for (const [, sandbox] of live(model)) {
    if (sandbox.leases === 0 && model.now - sandbox.usedAt >= IDLE_MS) sandbox.state = "TERMINATED";
  }
}

async function crash(model: Model, service: Service): Promise<void> {
  service.kill();
  // An operation that the crash ended counts as a use at its start.
  for (const [, sandbox] of model.sandboxes) sandbox.leases = 0;
  service.world.engine.before = async () => {};
  await service.start();
}

/** Stops the engine at a step for ever, then ends the service. */
async function crashAt(step: EngineStep, service: Service, act: () => Promise<unknown>): Promise<void> {
  service.world.engine.before = (one) => (one === step ? new Promise(() => {}) : Promise.resolve());
  act().catch(() => {});
  await settled();
}

const commandsOn = (id: string): fc.Arbitrary<Command>[] => {
  const free = stateIs(id, "none", "TERMINATED");
  const alive = stateIs(id, "RUNNING", "PAUSED");
  const create = (service: Service): Promise<unknown> =>
    service.manager.create(OWNER, { idleTimeoutMs: IDLE_MS }, { sandboxId: id, signal: never });
  return [
    new Act("create", id, free, async (model, service) => {
      const full = live(model).length === LIMIT;
      const error: unknown = await create(service).then(
        () => undefined,
        (reason: unknown) => reason,
      );
      expect(error instanceof BerthError && error.reason).toBe(full && "SANDBOX_LIMIT");
      if (!full) begin(model, id, "RUNNING");
    }),
    new Act("delete", id, alive, async (model, service) => {
      const deleted = service.manager.delete(name(id));
      await wait(model, service, 1);
      await deleted;
      change(model, id, { state: "TERMINATED", leases: 0 });
    }),
    new Act("pause", id, stateIs(id, "RUNNING"), async (model, { manager }) => {
      await manager.pause(name(id), never);
      change(model, id, { state: "PAUSED", usedAt: model.now });
    }),
    new Act("resume", id, stateIs(id, "PAUSED"), async (model, { manager }) => {
      await manager.resume(name(id), never);
      change(model, id, { state: "RUNNING", usedAt: model.now });
    }),
    new Act("use", id, stateIs(id, "RUNNING"), async (model, { manager, leases }) => {
      const lease = manager.acquire(name(id));
      lease.signal.addEventListener("abort", () => lease.release());
      leases.set(id, [...(leases.get(id) ?? []), lease]);
      change(model, id, { usedAt: model.now, leases: (model.sandboxes.get(id)?.leases ?? 0) + 1 });
    }),
    new Act(
      "let go",
      id,
      (model) => (model.sandboxes.get(id)?.leases ?? 0) > 0,
      async (model, { leases }) => {
        leases.get(id)?.pop()?.release();
        change(model, id, { usedAt: model.now, leases: (model.sandboxes.get(id)?.leases ?? 0) - 1 });
      },
    ),
    new Act("end", id, stateIs(id, "RUNNING"), async (model, { world }) => {
      const ref = [...world.engine.sandboxes.values()].find(({ sandboxId }) => sandboxId === id)?.ref ?? "";
      world.engine.end(ref, { exitCode: 1, outOfMemory: false });
      change(model, id, { state: "TERMINATED", leases: 0 });
    }),
    new Act("vanish while the service is down", id, alive, async (model, service) => {
      service.kill();
      const { engine } = service.world;
      const ref = [...engine.sandboxes.values()].find(({ sandboxId }) => sandboxId === id)?.ref ?? "";
      engine.vanish(ref);
      change(model, id, { state: "TERMINATED" });
      await crash(model, service);
    }),
    new Act(
      "crash in the create of",
      id,
      (model) => free(model) && live(model).length < LIMIT,
      async (model, service) => {
        await crashAt("create", service, () => create(service));
        begin(model, id, "TERMINATED");
        await crash(model, service);
      },
    ),
    new Act("crash in the delete of", id, alive, async (model, service) => {
      await crashAt("remove", service, () => service.manager.delete(name(id)));
      change(model, id, { state: "TERMINATED" });
      await crash(model, service);
    }),
  ].map((command) => fc.constant(command));
};

const crashes = new Act("crash", "", () => true, crash);
const waits = fc.constantFrom(100, IDLE_MS / 3, IDLE_MS / 2, IDLE_MS * 2).map(
  (ms) =>
    new Act(
      "wait",
      `${ms}`,
      () => true,
      (model, service) => wait(model, service, ms),
    ),
);

test("after any events, including crashes, the service agrees with a simple model", async () => {
  const all = [
    ...["a", "b", "c", "d"].flatMap(commandsOn),
    fc.constant(crashes),
    fc.constant(crashes),
    waits,
    waits,
  ];
  await fc.assert(
    fc.asyncProperty(
      fc.commands(all as fc.Arbitrary<Command>[], { maxCommands: 60, size: "max" }),
      async (commands) => {
        const real = new Service();
        await real.start();
        await fc.asyncModelRun(() => ({ model: { now: 0, sandboxes: new Map() }, real }), commands);
        real.kill();
      },
    ),
    { numRuns: scaled(1_000, 40) },
  );
});
