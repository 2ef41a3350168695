import { describe, expect, test } from "vitest";
import { BerthError } from "../../../src/base/errors.ts";
import type { Prepared, PreparedPool } from "../../../src/sandboxes/warm-pool.ts";
import { eventually } from "../../support/eventually.ts";
import { settled } from "../../support/manual-clock.ts";
import type { MemoryEngine } from "../../support/memory-engine.ts";
import { newManager, newWorld, OWNER } from "./support.ts";

const { signal } = new AbortController();

/** What a pool in these tests prepares. */
class Thing implements Prepared {
  alive = true;
  readonly cleanups: boolean[] = [];

  async cleanup(sandboxEnds: boolean): Promise<void> {
    this.alive = false;
    this.cleanups.push(sandboxEnds);
  }
}

async function pooled(changes: Partial<PreparedPool> = {}) {
  const made: Thing[] = [];
  const world = await newManager();
  const { manager } = world;
  manager.keepPrepared({
    resourceType: "thing",
    count: 1,
    spec: { image: "things" },
    prepare: async () => {
      const thing = new Thing();
      made.push(thing);
      return thing;
    },
    ...changes,
  });
  manager.start();
  const ready = () => manager.stats(OWNER).warmPools[0]?.ready ?? 0;
  const create = async (type = "thing", spec: { user?: string } = {}) => {
    let taken: Prepared | undefined;
    const asked = { resourceType: type, taken: (prepared: Prepared) => (taken = prepared) };
    const view = await manager.create(OWNER, { image: "things", ...spec }, { signal, prepared: asked });
    return { taken, view };
  };
  return { ...world, made, ready, create };
}

test.each([
  [1, 2],
  [2, 3],
])("a pool starts %d at once on %d processors", async (atOnce, cpus) => {
  const world = newWorld();
  world.engine.cpus = cpus;
  let [starting, most] = [0, 0];
  world.engine.before = async (step) => {
    if (step !== "create") return;
    most = Math.max(most, ++starting);
    await settled();
    starting--;
  };
  const { manager } = await newManager({ warmPools: [{ image: "warm", count: 6 }] }, world);
  manager.start();
  await eventually(() => manager.stats(OWNER).warmPools[0]?.ready === 6);
  expect(most).toBe(atOnce);
});

describe("a pool with something prepared", () => {
  test("gives out a prepared sandbox, and prepares another one", async () => {
    const { manager, made, ready, create } = await pooled();
    await eventually(() => ready() === 1);
    expect(manager.stats(OWNER).warmPools).toEqual([
      { image: "things", resourceType: "thing", target: 1, ready: 1, problem: "" },
    ]);
    const { taken } = await create();
    expect(taken).toBe(made[0]);
    await eventually(() => ready() === 1);
    expect(made).toHaveLength(2);
    await manager.shutdown({ leave: false, timeoutMs: 1000 });
    expect(made.map(({ cleanups }) => cleanups)).toEqual([[], [true]]);
  });

  test("gives none to callers that ask for another type, or for none", async () => {
    const { ready, create, manager } = await pooled();
    await eventually(() => ready() === 1);
    expect((await create("other")).taken).toBeUndefined();
    await manager.create(OWNER, { image: "things" }, { signal });
    expect(ready()).toBe(1);
  });

  test("gives none for a spec that its sandboxes cannot be adapted to", async () => {
    const { ready, create } = await pooled();
    await eventually(() => ready() === 1);
    expect((await create("thing", { user: "1000" })).taken).toBeUndefined();
    expect(ready()).toBe(1);
  });

  test("removes a sandbox whose session has ended, and gives out another one", async () => {
    const { engine, made, ready, create } = await pooled({ count: 2 });
    await eventually(() => ready() === 2);
    const [first, second] = made;
    if (first !== undefined) first.alive = false;
    const { taken, view } = await create();
    expect(taken).toBe(second);
    await eventually(() => ready() === 2);
    expect(first?.cleanups).toEqual([true]);
    expect(alive(engine)).toContain(view.sandboxId);
    expect(engine.sandboxes.size).toBe(3);
  });

  test("is refilled when a waiting sandbox has ended, even if the claim could not have used it", async () => {
    const { made, ready, manager } = await pooled();
    await eventually(() => ready() === 1);
    const [first] = made;
    if (first !== undefined) first.alive = false;
    const taken = () => {
      throw new Error("it takes no mounts");
    };
    const mounts = [{ source: { kind: "host", path: "/tmp" }, target: "/mnt", readOnly: true } as const];
    const asked = { image: "things", mounts };
    await manager.create(OWNER, asked, { signal, prepared: { resourceType: "thing", taken } });
    await eventually(() => made.length === 2 && ready() === 1);
  });

  test("leaves nothing of a sandbox that could not be prepared", async () => {
    let tries = 0;
    const { engine, log, manager } = await pooled({
      prepare: async () => {
        tries++;
        throw new BerthError("SESSION_START_FAILED", "There is no screen.");
      },
    });
    await eventually(() =>
      log.lines.some(({ message }) => message.includes("could not be started; retrying")),
    );
    expect(engine.sandboxes.size).toBe(0);
    expect(tries).toBe(1);
    await manager.shutdown({ leave: false, timeoutMs: 1000 });
  });

  test("ends what is prepared, with its sandbox, if the create fails", async () => {
    const { engine, made, ready, create, manager } = await pooled({
      spec: { image: "things", memoryBytes: 2 ** 30 },
    });
    await eventually(() => ready() === 1);
    engine.before = async (step) => {
      if (step === "setResources") throw new BerthError("ENGINE_UNAVAILABLE", "It is gone.");
    };
    await expect(create()).rejects.toMatchObject({ reason: "ENGINE_UNAVAILABLE" });
    expect(made[0]?.cleanups).toEqual([true]);
    await manager.shutdown({ leave: false, timeoutMs: 1000 });
    expect(engine.sandboxes.size).toBe(0);
  });

  test("drops what is prepared when its sandbox ends while it waits", async () => {
    const { engine, made, ready } = await pooled();
    await eventually(() => ready() === 1);
    const [ref = ""] = engine.sandboxes.keys();
    engine.end(ref, { exitCode: 1, outOfMemory: false });
    await eventually(() => made.length === 2 && ready() === 1);
    expect(made[0]?.cleanups).toEqual([true]);
  });

  test("drops what was prepared in a sandbox that ended meanwhile", async () => {
    const made: Thing[] = [];
    const world = await pooled({
      prepare: async ({ ref }) => {
        const thing = new Thing();
        made.push(thing);
        if (made.length === 1) {
          world.engine.end(ref, { exitCode: 1, outOfMemory: false });
          await settled();
        }
        return thing;
      },
    });
    await eventually(() => world.ready() === 1);
    const { taken, view } = await world.create();
    expect(taken).toBe(made[1]);
    expect(made.map(({ cleanups }) => cleanups).slice(0, 2)).toEqual([[true], []]);
    expect(alive(world.engine)).toContain(view.sandboxId);
    await world.manager.shutdown({ leave: false, timeoutMs: 1000 });
  });
});

describe("a pool with something prepared, after the engine came back with less memory than its spec has", () => {
  const GIB = 2 ** 30;

  async function shrunk() {
    const world = await pooled({ spec: { image: "things", memoryBytes: 2 * GIB } });
    const { manager, engine, monitor, made, ready } = world;
    const pool = () => manager.stats(OWNER).warmPools[0];
    await eventually(() => ready() === 1);
    engine.memoryBytes = GIB;
    engine.breakConnections();
    await eventually(() => monitor.info.memoryBytes === GIB && monitor.available);
    expect(() => manager.stats(OWNER)).not.toThrow();
    /** Waits until the pool has started another one, or could not. */
    const refilled = async () => {
      await eventually(() => (made.length === 2 && ready() === 1) || pool()?.problem !== "");
      expect(manager.stats(OWNER).warmPools).toMatchObject([{ image: "things", ready: 1, problem: "" }]);
    };
    return { ...world, refilled };
  }

  test("gives out what is ready, with less memory, and prepares more", async () => {
    const { manager, engine, made, refilled } = await shrunk();
    const limited: string[] = [];
    engine.before = async (step, ref) => {
      if (step === "setResources") limited.push(ref);
    };
    const [first = ""] = engine.sandboxes.keys();
    let taken: Prepared | undefined;
    const prepared = { resourceType: "thing", taken: (one: Prepared) => (taken = one) };
    const asked = manager.fit({ image: "things", memoryBytes: 2 * GIB });
    const created = manager.create(OWNER, asked, { signal, prepared });
    await expect(created).resolves.toMatchObject({ spec: { resources: { memoryBytes: GIB } } });
    expect(taken).toBe(made[0]);
    expect(limited).toEqual([first]);
    await refilled();
    await manager.shutdown({ leave: false, timeoutMs: 1000 });
    expect(manager.places.taken).toBe(0);
  });

  test("replaces one that has ended", async () => {
    const { engine, refilled } = await shrunk();
    const [ref = ""] = engine.sandboxes.keys();
    engine.end(ref, { exitCode: 1, outOfMemory: false });
    await refilled();
  });
});

function alive(engine: MemoryEngine): string[] {
  return [...engine.sandboxes.values()].map(({ sandboxId }) => sandboxId);
}
