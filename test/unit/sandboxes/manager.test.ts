import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { describe, expect, test } from "vitest";
import { BerthError } from "../../../src/base/errors.ts";
import type { RequestProgress } from "../../../src/state/request-log.ts";
import { settled } from "../../support/manual-clock.ts";
import type { EngineStep, MemoryEngine } from "../../support/memory-engine.ts";
import { repeatableRequest } from "../../support/repeatable-request.ts";
import { eventsOf, newManager, OWNER } from "./support.ts";

const never = new AbortController().signal;
const named = (sandboxId: string) => ({ owner: OWNER, sandboxId });

/** Blocks each step of the given kind until it is released. */
function hold(engine: { before: (step: EngineStep, id: string) => Promise<void> }, held: EngineStep) {
  const gate = Promise.withResolvers<void>();
  engine.before = async (step) => (step === held ? gate.promise : undefined);
  return gate;
}

const EXITED = { exitCode: 3, outOfMemory: false };

/** Calls `act` once the engine has created a sandbox, and answers when its events have arrived. */
function afterCreate(engine: MemoryEngine, act: (ref: string) => void): void {
  const create = engine.create.bind(engine);
  engine.create = async (spec, signal) => {
    const made = await create(spec, signal);
    act(made.ref);
    await settled();
    return made;
  };
}

describe("create", () => {
  test.each(["ensureImage", "create"] as const)(
    "canceled in %s leaves nothing and gives its place back",
    async (step) => {
      const { manager, engine } = await newManager({ maxSandboxes: 1 });
      const gate = hold(engine, step);
      const abort = new AbortController();
      const creating = manager.create(OWNER, {}, { sandboxId: "x", signal: abort.signal });
      creating.catch(() => {});
      await settled();
      expect(manager.stats(OWNER).totalSandboxes).toBe(1);
      abort.abort();
      gate.resolve();
      await expect(creating).rejects.toMatchObject({ reason: "CANCELED" });
      expect(engine.sandboxes.size).toBe(0);
      expect(manager.get(named("x"))).toMatchObject({
        state: "TERMINATED",
        termination: { cause: "CREATE_FAILED" },
      });
      await manager.create(OWNER, {}, { signal: never });
    },
  );

  test("that the engine finishes although it was canceled is undone", async () => {
    const { manager, engine } = await newManager();
    const abort = new AbortController();
    const create = engine.create.bind(engine);
    engine.create = async (spec) => {
      const made = await create(spec);
      abort.abort();
      return made;
    };
    await expect(manager.create(OWNER, {}, { signal: abort.signal })).rejects.toMatchObject({
      reason: "CANCELED",
    });
    expect(engine.sandboxes.size).toBe(0);
    expect(manager.stats(OWNER).totalSandboxes).toBe(0);
  });

  test("deleted halfway fails with SANDBOX_DELETED, and the delete waits until nothing is left", async () => {
    const { manager, engine } = await newManager();
    const gate = hold(engine, "create");
    const creating = manager.create(OWNER, {}, { sandboxId: "x", signal: never });
    creating.catch(() => {});
    await settled();
    let deleted = false;
    const deleting = manager.delete(named("x")).then(() => {
      deleted = true;
    });
    await settled();
    expect(deleted).toBe(false);
    gate.resolve();
    await expect(creating).rejects.toMatchObject({ reason: "SANDBOX_DELETED" });
    await deleting;
    expect(engine.sandboxes.size).toBe(0);
    expect(manager.get(named("x")).termination?.cause).toBe("DELETED");
  });

  test("says to the engine for which sandbox it needs the image", async () => {
    const { manager, engine } = await newManager();
    const asked: unknown[] = [];
    engine.ensureImage = async (image, { sandbox }) => void asked.push(image, sandbox);
    const create = engine.create.bind(engine);
    engine.create = async (spec, signal) => {
      asked.push(spec);
      return create(spec, signal);
    };
    await manager.create(OWNER, { image: "own", runtime: "gvisor" }, { signal: never });
    const [image, ensured, created] = asked;
    expect([image, ensured]).toEqual(["own", created]);
    expect(created).toMatchObject({ image: "own", runtime: "gvisor", network: "NONE" });
  });

  test("of one sandbox does not wait for the create of another", async () => {
    const { manager, engine } = await newManager();
    const gate = Promise.withResolvers<void>();
    engine.before = async (step, image) =>
      step === "ensureImage" && image === "slow" ? gate.promise : undefined;
    const slow = manager.create(OWNER, { image: "slow" }, { signal: never });
    const quick = await manager.create(OWNER, { image: "quick" }, { signal: never });
    expect(quick.state).toBe("RUNNING");
    gate.resolve();
    expect((await slow).state).toBe("RUNNING");
  });

  test("with an id that is taken is refused, and with one that is free again increments the generation", async () => {
    const { manager } = await newManager();
    const create = () => manager.create(OWNER, {}, { sandboxId: "x", signal: never });
    expect((await create()).generation).toBe(1);
    await expect(create()).rejects.toMatchObject({ reason: "SANDBOX_EXISTS" });
    await manager.delete(named("x"));
    expect((await create()).generation).toBe(2);
    expect(() => manager.acquire({ ...named("x"), generation: 1 })).toThrow(
      expect.objectContaining({ reason: "SANDBOX_REPLACED" }),
    );
    await expect(manager.delete({ ...named("x"), generation: 1 })).rejects.toMatchObject({
      reason: "SANDBOX_REPLACED",
    });
  });

  test("repeated, because its answer was lost, does not get a later sandbox with the same id", async () => {
    const { manager, clock } = await newManager();
    const request = repeatableRequest();
    const make = (progress?: RequestProgress) =>
      manager.create(OWNER, {}, { sandboxId: "x", signal: never, ...(progress && { progress }) });
    const { createTimeMs } = await make(request());
    expect((await make(request())).createTimeMs).toBe(createTimeMs);
    await manager.delete(named("x"), 0);
    await clock.advance(25 * 3_600_000);
    // The ended sandbox is forgotten.
    expect(await make()).toMatchObject({ generation: 1 });
    await expect(make(request())).rejects.toMatchObject({ reason: "SANDBOX_EXISTS" });
  });

  test("with the same id by two owners creates two, and neither sees the other's", async () => {
    const { manager, engine } = await newManager();
    await manager.create("alice", {}, { sandboxId: "x", signal: never });
    await manager.create("bob", {}, { sandboxId: "x", signal: never });
    expect(engine.sandboxes.size).toBe(2);
    await manager.delete({ owner: "alice", sandboxId: "x" });
    expect(manager.get({ owner: "bob", sandboxId: "x" }).state).toBe("RUNNING");
    expect(manager.list("alice", { labels: {}, states: new Set(["RUNNING"]) }).items).toEqual([]);
    expect(() => manager.get({ owner: "carol", sandboxId: "x" })).toThrow(
      expect.objectContaining({ reason: "SANDBOX_NOT_FOUND" }),
    );
  });
});

describe("delete", () => {
  test("repeated, because its answer was lost, does not end a later sandbox with the same id", async () => {
    const { manager } = await newManager();
    const request = repeatableRequest();
    const make = () => manager.create(OWNER, {}, { sandboxId: "x", signal: never });
    const state = () => manager.get(named("x")).state;
    await make();
    const other = request();
    await manager.delete(named("x"), 0, undefined, request());
    expect(state()).toBe("TERMINATED");
    await make();
    await manager.delete(named("x"), 0, undefined, request());
    expect(state()).toBe("RUNNING");
    await manager.delete(named("x"), 0, undefined, other);
    expect(state()).toBe("TERMINATED");
  });

  test("waits for operations up to its grace, then ends them", async () => {
    const { manager, clock, engine } = await newManager();
    await manager.create(OWNER, {}, { sandboxId: "x", signal: never });
    const lease = manager.acquire(named("x"));
    let deleted = false;
    const deleting = manager.delete(named("x"), 10_000).then(() => {
      deleted = true;
    });
    await clock.advance(9_999);
    expect(lease.signal.aborted).toBe(false);
    expect(() => manager.acquire(named("x"))).toThrow(
      expect.objectContaining({
        reason: "SANDBOX_NOT_RUNNING",
        message: "The sandbox cannot be used. It is being deleted.",
      }),
    );
    await clock.advance(1);
    expect(lease.signal.reason).toMatchObject({ reason: "SANDBOX_DELETED" });
    expect(deleted).toBe(false);
    lease.release();
    await deleting;
    expect(engine.sandboxes.size).toBe(0);
  });

  test("does not wait for ever for an operation that does not release its lease", async () => {
    const { manager, clock, engine } = await newManager();
    await manager.create(OWNER, {}, { sandboxId: "x", signal: never });
    manager.acquire(named("x"));
    const deleting = manager.delete(named("x"), 0);
    await clock.advance(10_000);
    await deleting;
    expect(engine.sandboxes.size).toBe(0);
    expect(manager.stats(OWNER).activeOperations).toBe(0);
  });

  test("happens at once when the last operation ends", async () => {
    const { manager, engine } = await newManager();
    await manager.create(OWNER, {}, { sandboxId: "x", signal: never });
    const leases = [1, 2, 3].map(() => manager.acquire(named("x")));
    const deleting = manager.delete(named("x"), 60_000);
    await settled();
    for (const lease of leases) lease.release();
    await deleting;
    expect(engine.sandboxes.size).toBe(0);
  });

  test("that fails reports it, keeps the place, and can be called again", async () => {
    const { manager, engine } = await newManager({ maxSandboxes: 1 });
    await manager.create(OWNER, {}, { sandboxId: "x", signal: never });
    let attempts = 0;
    engine.before = async (step) => {
      if (step === "remove" && ++attempts === 1) throw new Error("the disk is busy");
    };
    await expect(manager.delete(named("x"))).rejects.toThrow("the disk is busy");
    expect(manager.get(named("x")).state).toBe("DELETING");
    await expect(manager.create(OWNER, {}, { signal: never })).rejects.toMatchObject({
      reason: "SANDBOX_LIMIT",
    });
    await manager.delete(named("x"));
    expect(manager.get(named("x")).termination?.cause).toBe("DELETED");
    await manager.create(OWNER, {}, { signal: never });
  });

  test("by many callers at once removes it once, and all return when it is gone", async () => {
    const { manager, engine, events } = await newManager();
    await manager.create(OWNER, {}, { sandboxId: "x", signal: never });
    let removals = 0;
    engine.before = async (step) => {
      if (step === "remove") removals++;
    };
    await Promise.all(Array.from({ length: 20 }, () => manager.delete(named("x"))));
    expect(removals).toBe(1);
    const types = (await eventsOf(events, "x")).map(({ body }) => body.type);
    expect(types).toEqual(["CREATING", "RUNNING", "DELETING", "TERMINATED"]);
  });
});

test("a sandbox is given up only if one operation was alone in it for the given time", async () => {
  const { manager, clock } = await newManager();
  await manager.create(OWNER, {}, { sandboxId: "x", signal: never });
  const [first, second] = [manager.acquire(named("x")), manager.acquire(named("x"))];
  const { ref } = first.sandbox;
  await clock.advance(10_000);
  expect(manager.giveUp(ref, "stopped", 1_500)).toBe(false);
  second.release();
  await clock.advance(1_499);
  expect(manager.giveUp(ref, "stopped", 1_500)).toBe(false);
  await clock.advance(1);
  expect(manager.giveUp(ref, "stopped", 1_500)).toBe(true);
  expect(first.signal.reason).toMatchObject({ reason: "SANDBOX_TERMINATED" });
  first.release();
});

describe("what the engine reports", () => {
  test.each([
    ["EXITED", { exitCode: 3, outOfMemory: false }],
    ["OUT_OF_MEMORY", { exitCode: 137, outOfMemory: true }],
  ] as const)("a main process that ends is %s; operations are aborted at once", async (cause, end) => {
    const { manager, engine, monitor } = await newManager();
    manager.start();
    await settled();
    await manager.create(OWNER, {}, { sandboxId: "x", signal: never });
    const lease = manager.acquire(named("x"));
    lease.signal.addEventListener("abort", () => lease.release());
    engine.end("ref-1", end);
    await settled();
    expect(lease.signal.reason).toMatchObject({ reason: "SANDBOX_TERMINATED" });
    expect(manager.get(named("x"))).toMatchObject({ state: "TERMINATED", termination: { cause } });
    expect(engine.sandboxes.size).toBe(0);
    monitor.stop();
  });

  test("the cause is in the error of a call that finds the sandbox gone before", async () => {
    const { manager, engine, monitor } = await newManager();
    manager.start();
    await settled();
    for (const [i, method] of (["pause", "resume", "usage"] as const).entries()) {
      await manager.create(OWNER, {}, { sandboxId: `x${i}`, signal: never });
      engine.before = async (step) => {
        if (step === "remove") return;
        throw new BerthError("SANDBOX_TERMINATED", "The sandbox's container is gone.");
      };
      const call: Promise<unknown> = manager[method](named(`x${i}`), never);
      call.catch(() => {});
      await settled();
      engine.end(`ref-${i + 1}`, { exitCode: 3, outOfMemory: false });
      await expect(call).rejects.toMatchObject({
        reason: "SANDBOX_TERMINATED",
        message: expect.stringContaining("ended with code 3"),
        metadata: { cause: "EXITED" },
      });
      engine.before = async () => {};
    }
    monitor.stop();
  });

  test("what vanished while the connection was down is noticed when it is back, and live sandboxes stay", async () => {
    const { manager, engine, monitor } = await newManager();
    manager.start();
    await settled();
    for (const id of ["gone", "ended", "fine"])
      await manager.create(OWNER, {}, { sandboxId: id, signal: never });
    engine.down = true;
    engine.breakConnections();
    await expect.poll(() => monitor.available).toBe(false);
    engine.sandboxes.delete("ref-1");
    const sandbox = engine.sandboxes.get("ref-2");
    if (sandbox)
      engine.sandboxes.set("ref-2", { ...sandbox, state: "ended", end: { exitCode: 0, outOfMemory: false } });
    engine.down = false;
    await expect.poll(() => monitor.available).toBe(true);
    await settled();
    expect(manager.get(named("gone")).termination?.cause).toBe("ENGINE_LOST");
    expect(manager.get(named("ended")).termination?.cause).toBe("EXITED");
    expect(manager.get(named("fine")).state).toBe("RUNNING");
    monitor.stop();
  });

  test.each([
    ["RUNNING", "paused", "resumed"],
    ["PAUSED", "resumed", "paused"],
  ] as const)(
    "a sandbox that is %s, and is changed and changed back while Berth asks for its state, is so again",
    async (state, change, back) => {
      const { manager, engine, monitor } = await newManager();
      manager.start();
      await settled();
      await manager.create(OWNER, {}, { sandboxId: "x", signal: never });
      if (state === "PAUSED") await manager.pause(named("x"), never);
      const gate = hold(engine, "isPaused");
      engine.change("ref-1", change);
      await settled();
      engine.change("ref-1", back);
      await settled();
      gate.resolve();
      await settled();
      expect(manager.get(named("x")).state).toBe(state);
      monitor.stop();
    },
  );

  test("a sandbox that is created while the list is on its way is not considered lost", async () => {
    const { manager, engine, monitor } = await newManager();
    const gate = hold(engine, "list");
    manager.start();
    await settled();
    await manager.create(OWNER, {}, { sandboxId: "new", signal: never });
    gate.resolve();
    await settled();
    expect(manager.get(named("new")).state).toBe("RUNNING");
    monitor.stop();
  });

  test.each([
    ["ends", (engine: MemoryEngine, ref: string) => engine.end(ref, EXITED), "ended with code 3"],
    ["is removed", (engine: MemoryEngine, ref: string) => engine.vanish(ref), "removed outside Berth"],
  ])(
    "a sandbox that %s before its create returns fails that create, with the cause",
    async (_what, act, words) => {
      const { manager, engine, monitor } = await newManager();
      manager.start();
      await settled();
      afterCreate(engine, (ref) => act(engine, ref));
      const message = expect.stringContaining(words);
      await expect(manager.create(OWNER, {}, { sandboxId: "x", signal: never })).rejects.toMatchObject({
        reason: "SANDBOX_START_FAILED",
        message,
      });
      expect(manager.get(named("x")).termination).toMatchObject({ cause: "CREATE_FAILED", message });
      expect(engine.sandboxes.size).toBe(0);
      monitor.stop();
    },
  );

  test("the end of another owner's sandbox with the same id does not fail a create", async () => {
    const { manager, engine, monitor } = await newManager();
    manager.start();
    await settled();
    await manager.create("alice", {}, { sandboxId: "x", signal: never });
    const gate = hold(engine, "create");
    const creating = manager.create("bob", {}, { sandboxId: "x", signal: never });
    await settled();
    engine.end("ref-1", EXITED);
    await settled();
    gate.resolve();
    expect((await creating).state).toBe("RUNNING");
    monitor.stop();
  });

  test("a warm sandbox that ends while its limits are changed is replaced by a new one", async () => {
    const { manager, engine, monitor } = await newManager({ warmPools: [{ image: "warm", count: 1 }] });
    manager.start();
    await expect.poll(() => manager.stats(OWNER).warmPools[0]?.ready).toBe(1);
    const change = engine.setResources.bind(engine);
    engine.setResources = async (ref, resources) => {
      await change(ref, resources);
      engine.end(ref, EXITED);
      await settled();
    };
    const asked = { image: "warm", memoryBytes: 2 ** 30 };
    const { sandboxId } = await manager.create(OWNER, asked, { signal: never });
    const states = [...engine.sandboxes.values()].filter((one) => one.sandboxId === sandboxId);
    expect(states).toMatchObject([{ state: "running" }]);
    expect(manager.get(named(sandboxId)).state).toBe("RUNNING");
    monitor.stop();
    await manager.shutdown({ leave: false, timeoutMs: 1_000 });
  });

  test("a warm sandbox that cannot have the wanted limits is replaced by a new one", async () => {
    const { manager, engine, monitor } = await newManager({ warmPools: [{ image: "warm", count: 1 }] });
    manager.start();
    await expect.poll(() => manager.stats(OWNER).warmPools[0]?.ready).toBe(1);
    const [warm] = engine.sandboxes.keys();
    engine.setResources = async () => {
      throw new BerthError("UNSUPPORTED", "Its node has no room for them.");
    };
    const made = await manager
      .create(OWNER, { image: "warm", memoryBytes: 2 ** 30 }, { signal: never })
      .catch((error: unknown) => error);
    expect(made).toMatchObject({ state: "RUNNING" });
    expect([...engine.sandboxes.keys()]).not.toContain(warm);
    monitor.stop();
    await manager.shutdown({ leave: false, timeoutMs: 1_000 });
  });
});

describe("shutdown", () => {
  test("ends everything, including creates in progress, and refuses later calls", async () => {
    const { manager, engine, clock } = await newManager();
    await manager.create(OWNER, {}, { sandboxId: "x", signal: never });
    const lease = manager.acquire(named("x"));
    lease.signal.addEventListener("abort", () => lease.release());
    const gate = hold(engine, "create");
    const creating = manager.create(OWNER, {}, { signal: never });
    creating.catch(() => {});
    await settled();
    const stopping = manager.shutdown({ leave: false, timeoutMs: 10_000 });
    gate.resolve();
    await expect(creating).rejects.toMatchObject({ reason: "SHUTTING_DOWN" });
    await clock.advance(1);
    expect(await stopping).toEqual([]);
    expect(engine.sandboxes.size).toBe(0);
    expect(manager.get(named("x")).termination?.cause).toBe("SERVER_SHUTDOWN");
    expect(manager.stats(OWNER)).toMatchObject({ isShuttingDown: true, totalSandboxes: 0 });
    await expect(manager.create(OWNER, {}, { signal: never })).rejects.toMatchObject({
      reason: "SHUTTING_DOWN",
    });
    expect(() => manager.acquire(named("x"))).toThrow(expect.objectContaining({ reason: "SHUTTING_DOWN" }));
  });

  test("has a time limit, and names what it could not remove", async () => {
    const { manager, engine, clock } = await newManager();
    await manager.create(OWNER, {}, { sandboxId: "stuck", signal: never });
    await manager.create(OWNER, {}, { sandboxId: "fine", signal: never });
    engine.before = async (step, ref) => {
      if (step === "remove" && ref === "ref-1") await new Promise(() => {});
    };
    const stopping = manager.shutdown({ leave: false, timeoutMs: 10_000 });
    await clock.advance(10_000);
    expect(await stopping).toEqual(["stuck"]);
    expect(manager.get(named("fine")).state).toBe("TERMINATED");
  });

  test("removes the others even if one cannot be removed", async () => {
    const { manager, engine, log } = await newManager();
    for (const id of ["a", "broken", "c"]) await manager.create(OWNER, {}, { sandboxId: id, signal: never });
    engine.before = async (step, ref) => {
      if (step === "remove" && ref === "ref-2") throw new Error("the disk is busy");
    };
    expect(await manager.shutdown({ leave: false, timeoutMs: 10_000 })).toEqual(["broken"]);
    expect(engine.sandboxes.size).toBe(1);
    expect(log.errors).toHaveLength(1);
  });

  test("leaves sandboxes if asked to", async () => {
    const { manager, engine } = await newManager();
    await manager.create(OWNER, {}, { sandboxId: "x", signal: never });
    expect(await manager.shutdown({ leave: true, timeoutMs: 10_000 })).toEqual(["x"]);
    expect(engine.sandboxes.size).toBe(1);
  });
});

test("nothing is kept for unknown ids", async () => {
  const { manager, engine, clock } = await newManager();
  for (let i = 0; i < 100; i++) {
    await manager.delete(named(`unknown-${i}`));
    expect(() => manager.get(named(`unknown-${i}`))).toThrow(
      expect.objectContaining({ reason: "SANDBOX_NOT_FOUND" }),
    );
  }
  expect(engine.sandboxes.size).toBe(0);
  expect(clock.pending).toBe(0);
  expect(manager.list(OWNER, { labels: {}, states: new Set(["TERMINATED", "DELETING"]) }).items).toEqual([]);
});

describe("what waits in the engine", () => {
  const waits = (owner: string, sandboxId: string, sinceMs: number) =>
    ({ owner, sandboxId, sinceMs, image: "image:1", reason: "STARTING", message: "" }) as const;

  test("is limited to the tenant's own or, for callers who see the whole service, listed without others' ids", async () => {
    const { manager, engine } = await newManager();
    engine.waiting = [
      waits("other", "theirs", 2),
      waits(OWNER, "mine", 3),
      waits("warm-pool", "pooled", 1),
      waits("", "", 4),
    ];
    expect(manager.stats(OWNER, false)).toMatchObject({
      waitingSandboxes: 1,
      waiting: [{ sandboxId: "mine", warmPool: false }],
    });
    const whole = manager.stats(OWNER);
    expect(whole.waiting.map(({ sandboxId, warmPool, sinceMs }) => [sandboxId, warmPool, sinceMs])).toEqual([
      ["", true, 1],
      ["", false, 2],
      ["mine", false, 3],
      ["", false, 4],
    ]);
    expect(whole.waitingSandboxes).toBe(4);
    expect(JSON.stringify(whole.waiting)).not.toContain("other");
  });

  test("is counted completely and listed up to a limit", async () => {
    const { manager, engine } = await newManager();
    engine.waiting = Array.from({ length: 250 }, (_, index) => waits(OWNER, `s${index}`, 1_000 - index));
    const { waiting, waitingSandboxes } = manager.stats(OWNER);
    expect([waitingSandboxes, waiting.length, waiting[0]?.sandboxId]).toEqual([250, 100, "s249"]);
  });
});

describe("an ended sandbox", () => {
  const env = (at: number) => ({ LARGE: `${at}`.padEnd(2 ** 20, "x"), SMALL: "y" });

  test("with a large environment does not keep it in memory, and still shows it", async () => {
    setFlagsFromString("--expose-gc");
    const collect = runInNewContext("gc") as () => void;
    const { manager } = await newManager();
    const heapBytes = () => {
      collect();
      return process.memoryUsage().heapUsed;
    };
    const before = heapBytes();
    for (let at = 0; at < 30; at++) {
      const sandboxId = `large-${at}`;
      await manager.create(OWNER, { env: env(at), labels: { at: `${at}` } }, { sandboxId, signal: never });
      await manager.delete(named(sandboxId), 0);
    }
    const list = (labels: Record<string, string>) =>
      manager.list(OWNER, { labels, states: new Set(["TERMINATED"] as const) }).items;
    expect(list({}).length).toBeGreaterThan(0);
    expect(list({ at: "7" })).toHaveLength(1);
    expect(heapBytes() - before).toBeLessThan(10 * 2 ** 20);
    expect(list({ at: "7" })).toMatchObject([{ sandboxId: "large-7", spec: { env: env(7) } }]);
    expect(manager.get(named("large-29")).spec).toMatchObject({ env: env(29), labels: { at: "29" } });
  });

  test.each([
    ["names of secrets", { secretEnv: { ["X".repeat(2 ** 20)]: "token" } }],
    ["labels", { labels: { large: "x".repeat(2 ** 20) } }],
  ])("with large %s fills a page as one with large variables does", async (_what, spec) => {
    const { manager } = await newManager();
    for (let at = 0; at < 6; at++) await manager.create(OWNER, spec, { sandboxId: `s${at}`, signal: never });
    const page = (state: "RUNNING" | "TERMINATED") =>
      manager.list(OWNER, { labels: {}, states: new Set([state]) }, { limit: 100 }).items.length;
    expect(page("RUNNING")).toBe(2);
    for (let at = 0; at < 6; at++) await manager.delete(named(`s${at}`), 0);
    expect(page("TERMINATED")).toBe(2);
  });

  test("with a large environment whose id is taken again leaves no write that fails", async () => {
    const { manager, clock, log, engine, world } = await newManager();
    const create = () => manager.create(OWNER, { env: env(0) }, { sandboxId: "x", signal: never });
    await create();
    manager.acquire(named("x")).release();
    await manager.delete(named("x"), 0);
    await create();
    await clock.advance(1_000);
    // A change that waits for space on the disk, and one that does not any more.
    const { sandboxes } = world.store;
    const { put } = sandboxes;
    sandboxes.put = () => {
      throw new BerthError("NO_SPACE", "The disk is full.");
    };
    const go = hold(engine, "remove");
    const deleted = manager.delete(named("x"), 0);
    await settled();
    sandboxes.put = put;
    go.resolve();
    await deleted;
    await create();
    await clock.advance(2_000);
    expect(log.errors.map(({ fields, message }) => [message, String(fields.err)])).toEqual([]);
    expect(manager.get(named("x"))).toMatchObject({ generation: 3, state: "RUNNING" });
  });
});
