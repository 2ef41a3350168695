import { describe, expect, test } from "vitest";
import { eventually } from "../../support/eventually.ts";
import { settled } from "../../support/manual-clock.ts";
import { newManager, OWNER } from "./support.ts";

const HOUR = 3_600_000;
const MINUTE = 60_000;

async function started(changes: Parameters<typeof newManager>[0] = {}) {
  const parts = await newManager(changes);
  parts.manager.start();
  await settled();
  const create = async (spec: Parameters<typeof parts.manager.create>[1] = {}): Promise<string> => {
    const { sandboxId } = await parts.manager.create(OWNER, spec, { signal: new AbortController().signal });
    return sandboxId;
  };
  const state = (sandboxId: string) => parts.manager.get({ owner: OWNER, sandboxId }).state;
  const cause = (sandboxId: string) => parts.manager.get({ owner: OWNER, sandboxId }).termination?.cause;
  return { ...parts, create, state, cause };
}

describe("the idle timeout", () => {
  test("is an hour by default, to the millisecond", async () => {
    const { create, clock, state, cause } = await started();
    const id = await create();
    await clock.advance(HOUR - 1);
    expect(state(id)).toBe("RUNNING");
    await clock.advance(1);
    expect([state(id), cause(id)]).toEqual(["TERMINATED", "IDLE_TIMEOUT"]);
  });

  test("restarts with every use and does not pass during one", async () => {
    const { create, clock, state, manager } = await started();
    const id = await create({ idleTimeoutMs: 10 * MINUTE });
    await clock.advance(9 * MINUTE);
    const lease = manager.acquire({ owner: OWNER, sandboxId: id });
    expect(manager.get({ owner: OWNER, sandboxId: id }).expireTimeMs).toBeUndefined();
    await clock.advance(5 * HOUR);
    expect(state(id)).toBe("RUNNING");
    lease.release();
    await clock.advance(10 * MINUTE - 1);
    expect(state(id)).toBe("RUNNING");
    await clock.advance(1);
    expect(state(id)).toBe("TERMINATED");
  });

  test("does not pass while one of two uses continues", async () => {
    const { create, clock, state, manager } = await started();
    const id = await create({ idleTimeoutMs: MINUTE });
    const [first, second] = [1, 2].map(() => manager.acquire({ owner: OWNER, sandboxId: id }));
    first?.release();
    first?.release();
    await clock.advance(HOUR);
    expect(state(id)).toBe("RUNNING");
    second?.release();
    await clock.advance(MINUTE);
    expect(state(id)).toBe("TERMINATED");
  });

  test("restarts with a keep-alive, not with a read", async () => {
    const { create, clock, state, manager } = await started();
    const id = await create({ idleTimeoutMs: 10 * MINUTE });
    await clock.advance(9 * MINUTE);
    manager.keepAlive({ owner: OWNER, sandboxId: id });
    await clock.advance(9 * MINUTE);
    manager.get({ owner: OWNER, sandboxId: id });
    manager.stats(OWNER);
    expect(state(id)).toBe("RUNNING");
    await clock.advance(MINUTE);
    expect(state(id)).toBe("TERMINATED");
  });
});

test("a sandbox whose use starts together with the sweep is not swept", async () => {
  const { create, clock, engine, state, manager } = await started();
  const id = await create({ idleTimeoutMs: MINUTE });
  // The sweep waits for the sandbox's lock, which a pause holds.
  const pausing = Promise.withResolvers<void>();
  engine.before = async (step) => (step === "pause" ? pausing.promise : undefined);
  const name = { owner: OWNER, sandboxId: id };
  const paused = manager.pause(name, new AbortController().signal);
  await clock.advance(MINUTE);
  manager.keepAlive(name);
  pausing.resolve();
  await paused;
  await settled();
  expect(state(id)).toBe("PAUSED");
});

test("a delete still deletes a sandbox that a concurrent sweep leaves because it was used again", async () => {
  const MOMENTS = 30;
  for (let moment = 0; moment < MOMENTS; moment++) {
    const { create, clock, engine, state, manager } = await started();
    const id = await create({ idleTimeoutMs: MINUTE });
    const pausing = Promise.withResolvers<void>();
    engine.before = async (step) => (step === "pause" ? pausing.promise : undefined);
    const name = { owner: OWNER, sandboxId: id };
    const paused = manager.pause(name, new AbortController().signal);
    await clock.advance(MINUTE);
    pausing.resolve();
    for (let passed = 0; passed < moment; passed++) await Promise.resolve();
    await manager.delete(name, 0);
    expect([moment, state(id)]).toEqual([moment, "TERMINATED"]);
    await paused;
  }
});

test("the max lifetime ends a sandbox in use and aborts its leases", async () => {
  const { create, clock, cause, manager } = await started();
  const id = await create({ maxLifetimeMs: HOUR });
  const lease = manager.acquire({ owner: OWNER, sandboxId: id });
  await clock.advance(HOUR - 1);
  expect(lease.signal.aborted).toBe(false);
  lease.signal.addEventListener("abort", () => lease.release());
  await clock.advance(1);
  expect(lease.signal.reason).toMatchObject({ reason: "SANDBOX_DELETED" });
  expect(cause(id)).toBe("MAX_LIFETIME");
});

test("a deadline that passes during a sweep does not wait for a whole interval", async () => {
  const { create, clock, state } = await started();
  const id = await create({ idleTimeoutMs: MINUTE });
  const other = await create({ idleTimeoutMs: MINUTE });
  await clock.advance(MINUTE - 1);
  // As with Node's timers, the sweep fires slightly early, and the deadline passes during the sweep.
  const read = clock.monotonicMs.bind(clock);
  let looks = 0;
  clock.monotonicMs = () => read() - (looks++ < 3 ? 0.4 : 0);
  await clock.advance(20);
  expect([state(id), state(other)]).toEqual(["TERMINATED", "TERMINATED"]);
});

test("a failed removal is retried with growing pauses, each logged, and the sandbox keeps its place until it is gone", async () => {
  const { create, clock, engine, state, cause, manager, log } = await started();
  const id = await create({ idleTimeoutMs: MINUTE });
  const attempts: number[] = [];
  engine.before = async (step, ref) => {
    if (step !== "remove" || ref !== "ref-1") return;
    attempts.push(clock.monotonicMs());
    if (attempts.length < 9) throw new Error("the disk is busy");
  };
  await clock.advance(MINUTE);
  expect([state(id), attempts.length]).toEqual(["DELETING", 1]);
  expect([manager.stats(OWNER).totalSandboxes, manager.stuckRemovals]).toEqual([1, 1]);
  expect(() => manager.acquire({ owner: OWNER, sandboxId: id })).toThrow(
    expect.objectContaining({
      reason: "SANDBOX_NOT_RUNNING",
      message:
        "The sandbox cannot be used. It is being deleted: Nothing used it for its idle_timeout of 60000 ms.",
    }),
  );
  // Other sandboxes' deadlines do not speed it up.
  await create({ idleTimeoutMs: MINUTE / 2 });
  await clock.advance(4 * MINUTE);
  const pauses = attempts.slice(1).map((at, i) => (at - (attempts[i] ?? 0)) / 1000);
  expect(pauses).toEqual([1, 2, 4, 8, 16, 30, 30, 30]);
  const warnings = log.lines.filter(
    ({ message }) => message === "a sandbox could not be removed; trying again",
  );
  expect(warnings.map(({ fields }) => [fields.failures, String(fields.err)])).toEqual(
    [1, 2, 3, 4, 5, 6, 7, 8].map((failures) => [failures, "Error: the disk is busy"]),
  );
  expect([state(id), cause(id)]).toEqual(["TERMINATED", "IDLE_TIMEOUT"]);
  expect([manager.stats(OWNER).totalSandboxes, manager.stuckRemovals]).toEqual([0, 0]);
  expect(engine.sandboxes.size).toBe(0);
});

test("the removal of an orphan is retried if it failed", async () => {
  const { clock, engine, manager } = await started();
  let failures = 2;
  engine.before = async (step) => {
    if (step === "remove" && failures-- > 0) throw new Error("the disk is busy");
  };
  await engine.create({ sandboxId: "orphan", generation: 1, owner: OWNER, image: "any" } as never);
  engine.breakConnections();
  // The engine's sandboxes are listed once the connection is back.
  await eventually(() => manager.stuckRemovals === 1);
  await clock.advance(3_000);
  expect([engine.sandboxes.size, manager.stuckRemovals]).toEqual([0, 0]);
});

test("a removal that failed while the engine was unavailable is retried at once when it is back", async () => {
  const { create, clock, engine, state, manager } = await started();
  const id = await create({ idleTimeoutMs: MINUTE });
  engine.down = true;
  engine.breakConnections();
  await eventually(() => {
    engine.breakConnections();
    return manager.keepAlive({ owner: OWNER, sandboxId: id }).state === "RUNNING";
  });
  await clock.advance(5 * MINUTE);
  expect([state(id), manager.stuckRemovals]).toEqual(["DELETING", 1]);
  engine.down = false;
  await eventually(() => state(id) === "TERMINATED");
  expect(manager.stuckRemovals).toBe(0);
});

test("one that is hard to remove does not delay others", async () => {
  const { create, clock, engine, state } = await started();
  const stuck = await create({ idleTimeoutMs: MINUTE });
  const other = await create({ idleTimeoutMs: 2 * MINUTE });
  const removing = Promise.withResolvers<void>();
  const [first] = [...engine.sandboxes.keys()];
  engine.before = async (step, ref) => (step === "remove" && ref === first ? removing.promise : undefined);
  await clock.advance(2 * MINUTE);
  expect([state(stuck), state(other)]).toEqual(["DELETING", "TERMINATED"]);
  removing.resolve();
  await settled();
  expect(state(stuck)).toBe("TERMINATED");
});

test("many expire at the same moment", async () => {
  const { create, clock, engine, manager } = await started();
  for (let i = 0; i < 50; i++) await create({ idleTimeoutMs: MINUTE });
  await clock.advance(MINUTE);
  expect(engine.sandboxes.size).toBe(0);
  expect(manager.stats(OWNER).totalSandboxes).toBe(0);
});
