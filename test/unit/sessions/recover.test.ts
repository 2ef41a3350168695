import { describe, expect, test } from "vitest";
import { BerthError } from "../../../src/base/errors.ts";
import type { StoredSession } from "../../../src/sessions/store.ts";
import { settled } from "../../support/manual-clock.ts";
import { OWNER } from "../sandboxes/support.ts";
import { GRACE_MS, gate, hasSettled, never, SessionBench, TTL_MS, WORKER } from "./support.ts";

/** How much the stored last use of a session may lag behind the real one. */
const SLACK_MS = 5_000;

const stop = (bench: SessionBench, leave: boolean) => bench.sessions.shutdown({ leave, timeoutMs: 10_000 });

describe("after the service was killed", () => {
  test("a session continues in its sandbox, with a new backend from its next call on", async () => {
    const bench = await SessionBench.start();
    const before = await bench.created("shell", { config: { size: 7 } });
    await bench.restart({ downMs: 1_000 });
    expect(bench.listed).toMatchObject([{ ...before, expireTimeMs: expect.any(Number) }]);
    expect(bench.shell.backends).toHaveLength(1);
    expect(await bench.answer("shell")).toEqual({ backend: 1, restarted: true });
    expect(bench.shell.backend).toMatchObject({
      config: { size: 7 },
      host: { name: { sandboxId: before.sandboxId } },
    });
    expect(bench.containers).toEqual([before.sandboxId]);
  });

  test("its time to live continues from its last use", async () => {
    const bench = await SessionBench.start();
    await bench.created("shell");
    await bench.clock.advance(60_000);
    await bench.answer("shell");
    await bench.clock.advance(4_000);
    // This use is not stored, because too little time has passed since the previous one.
    await bench.answer("shell");
    await bench.clock.advance(1_000);
    await bench.restart({ downMs: 60_000 });
    await bench.clock.advance(TTL_MS - 61_000 - 1);
    expect(bench.listed).toHaveLength(1);
    await bench.clock.advance(SLACK_MS + 1);
    expect([bench.listed, bench.stored, bench.containers]).toEqual([[], [], []]);
  });

  test("one that an older version stored, which did not say whether it was initialized, continues", async () => {
    const bench = await SessionBench.start();
    const { sessionId } = await bench.created("shell");
    const { sessions } = bench.world.store;
    for (const { initialized: _, ...older } of sessions.load()) sessions.put(older as StoredSession);
    await bench.restart();
    expect(bench.listed).toMatchObject([{ sessionId }]);
  });

  test("one that expired meanwhile is ended", async () => {
    const bench = await SessionBench.start();
    await bench.created("shell");
    await bench.restart({ downMs: TTL_MS + SLACK_MS });
    expect([bench.listed, bench.stored, bench.containers]).toEqual([[], [], []]);
  });

  test("one whose sandbox is gone fails its next call with that reason, and is then removed", async () => {
    const bench = await SessionBench.start();
    const { sandboxId } = await bench.created("shell");
    await bench.kill();
    bench.engine.vanish(bench.refOf(sandboxId));
    await bench.begin();
    expect(bench.listed).toEqual([]);
    const { report } = await bench.call({ tool: "shell:answer" });
    await expect(report).rejects.toMatchObject({
      reason: "SESSION_LOST",
      message: expect.stringContaining("the server was restarted"),
    });
    await settled();
    expect(bench.stored).toEqual([]);
    const { report: next } = await bench.call({ tool: "shell:answer" });
    expect((await next).meta.temporarySession).toBe(true);
  });

  test("nothing is left of a temporary session and of one that was being created", async () => {
    const bench = await SessionBench.start();
    await bench.wait("shell", "one");
    bench.notebook.initializing = () => gate().promise;
    void bench.create(["notebook"]).catch(() => {});
    await settled();
    expect(bench.stored).toHaveLength(2);
    expect(bench.containers).toHaveLength(2);
    await bench.restart();
    expect([bench.listed, bench.stored, bench.containers]).toEqual([[], [], []]);
  });

  test("one of a type that is no longer offered is ended; the others continue", async () => {
    const bench = await SessionBench.start();
    await bench.create(["shell", "notebook"]);
    await bench.restart({ types: [bench.shell] });
    expect(bench.listed.map(({ resourceType }) => resourceType)).toEqual(["shell"]);
    expect(bench.stored).toHaveLength(1);
    expect(bench.containers).toHaveLength(1);
  });

  test("one that was destroyed stays destroyed", async () => {
    const bench = await SessionBench.start();
    await bench.created("shell");
    await bench.sessions.destroy(OWNER, WORKER, []);
    await bench.restart();
    expect([bench.listed, bench.containers]).toEqual([[], []]);
  });

  test("one in a given sandbox keeps that sandbox when it ends", async () => {
    const bench = await SessionBench.start();
    const { sandboxId } = await bench.sandboxes.create(OWNER, {}, { signal: never });
    await bench.created("shell", { sandbox: { sandboxId } });
    await bench.restart();
    expect(await bench.sessions.destroy(OWNER, WORKER, [])).toMatchObject([{ status: "DESTROYED" }]);
    expect(bench.containers).toEqual([sandboxId]);
  });
});

describe("a shutdown", () => {
  test("ends running calls, and refuses new work", async () => {
    const bench = await SessionBench.start();
    await bench.created("shell");
    const { report } = await bench.wait("shell", "one");
    await stop(bench, true);
    await expect(report).rejects.toMatchObject({ reason: "SHUTTING_DOWN" });
    const { report: late } = await bench.call({ tool: "shell:answer" });
    await expect(late).rejects.toMatchObject({ reason: "SHUTTING_DOWN" });
    await expect(bench.create(["notebook"])).rejects.toMatchObject({ reason: "SHUTTING_DOWN" });
  });

  test("that leaves sandboxes leaves sessions, with their last use", async () => {
    const bench = await SessionBench.start();
    const { sessionId } = await bench.created("shell");
    await bench.clock.advance(1_000);
    await bench.sessions.refresh(OWNER, WORKER, [], never);
    await bench.clock.advance(1_000);
    await bench.sessions.refresh(OWNER, WORKER, [], never);
    const usedMs = bench.clock.wallMs();
    await stop(bench, true);
    await bench.clock.advance(1_000);
    expect([...bench.world.store.sessions.load()]).toMatchObject([{ sessionId, lastUsedTimeMs: usedMs }]);
    // Also if another restart follows before it is used.
    for (let restarts = 0; restarts < 2; restarts++) {
      await bench.restart();
      expect(bench.listed).toMatchObject([{ sessionId, lastUsedTimeMs: usedMs }]);
    }
    expect(await bench.answer("shell")).toEqual({ backend: 1, restarted: true });
  });

  test("that does not leave sandboxes removes sessions", async () => {
    const bench = await SessionBench.start();
    await bench.created("shell");
    await stop(bench, false);
    expect(bench.stored).toEqual([]);
    await bench.clock.advance(2 * TTL_MS);
    expect(bench.shell.backend.cleanups).toEqual([]);
  });

  test("waits for the cleanup of a temporary session, which its caller does not", async () => {
    const bench = await SessionBench.start();
    const held = gate();
    bench.shell.cleaningUp = () => held.promise;
    const { report } = await bench.call({ tool: "shell:answer" });
    expect((await report).meta.temporarySession).toBe(true);
    const stopped = stop(bench, true);
    expect(await hasSettled(stopped)).toBe(false);
    held.resolve();
    await stopped;
    expect(bench.containers).toEqual([]);
  });

  test("does not wait longer than its timeout", async () => {
    const bench = await SessionBench.start();
    bench.shell.cleaningUp = () => gate().promise;
    await bench.call({ tool: "shell:answer" });
    const stopped = stop(bench, true);
    await bench.clock.advance(9_999);
    expect(await hasSettled(stopped)).toBe(false);
    await bench.clock.advance(1);
    await stopped;
  });

  test("fails a create in progress, and leaves nothing of it", async () => {
    const bench = await SessionBench.start();
    bench.shell.initializing = () => gate().promise;
    const creating = bench.create(["shell"]);
    await settled();
    await stop(bench, true);
    expect([bench.stored, bench.containers]).toEqual([[], []]);
    expect(await creating).toMatchObject([{ status: "FAILED", failure: { reason: "SHUTTING_DOWN" } }]);
  });

  test("ends a call on a temporary session, and leaves nothing of it", async () => {
    const bench = await SessionBench.start();
    const { report } = await bench.wait("shell", "one");
    await stop(bench, true);
    expect([bench.stored, bench.containers]).toEqual([[], []]);
    await expect(report).rejects.toMatchObject({ reason: "SHUTTING_DOWN" });
  });

  test("ends a temporary session that is being created, and leaves nothing of it", async () => {
    const bench = await SessionBench.start();
    bench.shell.initializing = () => gate().promise;
    const { report } = await bench.wait("shell", "one");
    await stop(bench, true);
    expect([bench.stored, bench.containers]).toEqual([[], []]);
    await expect(report).rejects.toMatchObject({ reason: "SHUTTING_DOWN" });
  });
});

test("a session that cannot be stored fails its create, and leaves nothing", async () => {
  const bench = await SessionBench.start();
  const { put } = bench.world.store.sessions;
  bench.world.store.sessions.put = () => {
    throw new BerthError("NO_SPACE", "on purpose");
  };
  const [result] = await bench.create(["shell"]);
  bench.world.store.sessions.put = put;
  expect(result).toMatchObject({ status: "FAILED", failure: { reason: "NO_SPACE" } });
  expect([bench.listed, bench.stored, bench.containers]).toEqual([[], [], []]);
});

test("an end that cannot be stored is stored as soon as the disk has room", async () => {
  const bench = await SessionBench.start();
  await bench.created("shell");
  const { sessions } = bench.world.store;
  const remove = sessions.remove;
  sessions.remove = () => {
    throw new BerthError("NO_SPACE", "on purpose");
  };
  const destroyed = bench.sessions.destroy(OWNER, WORKER, [], GRACE_MS);
  expect(await destroyed).toMatchObject([{ status: "DESTROYED", failure: undefined }]);
  await bench.clock.advance(1_000);
  expect(bench.stored).toHaveLength(1);
  sessions.remove = remove;
  await bench.clock.advance(1_000);
  expect(bench.stored).toEqual([]);
});
