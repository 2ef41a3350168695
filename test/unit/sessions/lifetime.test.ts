import { describe, expect, test } from "vitest";
import { NO_OBSERVER } from "../../../src/sessions/tool-runner.ts";
import { settled } from "../../support/manual-clock.ts";
import { OWNER } from "../sandboxes/support.ts";
import { keyOf, never, requestOf, SessionBench, TTL_MS, WORKER } from "./support.ts";

describe("the time to live", () => {
  test("ends a session that nobody uses, with its sandbox", async () => {
    const bench = await SessionBench.start();
    const { expireTimeMs } = await bench.created("shell");
    expect(expireTimeMs).toBe(bench.clock.wallMs() + TTL_MS);
    await bench.clock.advance(TTL_MS - 1);
    expect(bench.containers).toHaveLength(1);
    await bench.clock.advance(1);
    expect([bench.listed, bench.stored, bench.containers]).toEqual([[], [], []]);
    expect(bench.shell.backend.cleanups).toEqual([true]);
  });

  test("is what its creator requested", async () => {
    const bench = await SessionBench.start();
    await bench.created("shell", { ttlMs: 1_000 });
    await bench.created("notebook");
    await bench.clock.advance(1_000);
    expect(bench.listed.map(({ resourceType }) => resourceType)).toEqual(["notebook"]);
  });

  test("may be longer than that of other idle sandboxes", async () => {
    const bench = await SessionBench.start();
    const { sandboxId, sessionId } = await bench.created("shell", { ttlMs: 72 * 3600_000 });
    await bench.clock.advance(71 * 3600_000);
    expect(bench.containers).toEqual([sandboxId]);
    expect(bench.sandboxes.get({ owner: OWNER, sandboxId }).spec.labels).toEqual({ session_id: sessionId });
  });

  test("starts again with each call's end, and does not run during a call", async () => {
    const bench = await SessionBench.start();
    await bench.created("shell");
    await bench.clock.advance(TTL_MS - 1);
    const { report } = await bench.wait("shell", "long", { timeoutMs: 10 * TTL_MS });
    expect(bench.listed).toMatchObject([{ activeCalls: 1, expireTimeMs: undefined }]);
    await bench.clock.advance(2 * TTL_MS);
    bench.shell.call("long").finish();
    await report;
    await bench.clock.advance(TTL_MS - 1);
    expect(bench.listed).toHaveLength(1);
    await bench.clock.advance(1);
    expect(bench.listed).toEqual([]);
  });

  test("starts again with a call that has bad params", async () => {
    const bench = await SessionBench.start();
    await bench.created("shell");
    await bench.clock.advance(TTL_MS - 1);
    const request = requestOf({ tool: "shell:wait", params: { name: 7 } });
    const call = bench.tools.run(request, NO_OBSERVER, never);
    await expect(call).rejects.toMatchObject({ reason: "INVALID_ARGUMENT" });
    await bench.clock.advance(1);
    expect(bench.listed).toHaveLength(1);
  });

  test("ends with the session, also if a call ends later", async () => {
    const bench = await SessionBench.start();
    const timers = bench.clock.pending;
    await bench.created("shell", { ttlMs: 24 * 24 * 3600_000 });
    const call = await bench.wait("shell", "one");
    const destroyed = bench.sessions.destroy(OWNER, WORKER, [], 0);
    await bench.clock.advance(10_000);
    await destroyed;
    await expect(call.report).rejects.toMatchObject({ reason: "SESSION_LOST" });
    await settled();
    expect([bench.listed, bench.clock.pending]).toEqual([[], timers]);
  });

  test("starts again with a refresh, as does the idle time of the sandbox", async () => {
    const bench = await SessionBench.start();
    const { sandboxId } = await bench.sandboxes.create(OWNER, { idleTimeoutMs: 30_000 }, { signal: never });
    await bench.created("shell", { sandbox: { sandboxId }, ttlMs: 40_000 });
    for (let passed = 0; passed < 4; passed++) {
      await bench.clock.advance(25_000);
      const [refreshed] = await bench.sessions.refresh(OWNER, WORKER, [], never);
      expect(refreshed).toMatchObject({ status: "REFRESHED", session: { activeCalls: 0 } });
    }
    expect(bench.containers).toEqual([sandboxId]);
    await bench.clock.advance(40_000);
    expect(await bench.sessions.refresh(OWNER, WORKER, ["shell"], never)).toEqual([
      { resourceType: "shell", status: "NOT_FOUND" },
    ]);
  });
});

describe("a sandbox that is lost", () => {
  test("under a call ends the call with the cause, and the session", async () => {
    const bench = await SessionBench.start();
    const { sandboxId } = await bench.created("shell");
    const { report } = await bench.wait("shell", "one");
    bench.engine.vanish(bench.refOf(sandboxId));
    await expect(report).rejects.toMatchObject({ reason: "SANDBOX_TERMINATED" });
    await settled();
    expect([bench.listed, bench.stored]).toEqual([[], []]);
    expect(await bench.created("shell")).toMatchObject({ state: "ACTIVE" });
  });

  test("under an idle session makes the next call SESSION_LOST, and the one after that temporary", async () => {
    const bench = await SessionBench.start();
    const { sandboxId } = await bench.created("shell");
    await bench.sandboxes.delete({ owner: OWNER, sandboxId }, 0);
    expect(bench.listed).toEqual([]);
    expect(await bench.sessions.refresh(OWNER, WORKER, ["shell"], never)).toMatchObject([
      { status: "NOT_FOUND" },
    ]);
    const { report } = await bench.call({ tool: "shell:answer" });
    await expect(report).rejects.toMatchObject({ reason: "SESSION_LOST" });
    const { report: next } = await bench.call({ tool: "shell:answer" });
    expect((await next).meta.temporarySession).toBe(true);
  });

  test("ends the backends of its idle sessions at once: only their next calls are waited for", async () => {
    const bench = await SessionBench.start();
    const { sandboxId } = await bench.sandboxes.create(OWNER, {}, { signal: never });
    await bench.create(["shell", "notebook"], { sandbox: { sandboxId } });
    await bench.sandboxes.delete({ owner: OWNER, sandboxId }, 0);
    await settled();
    for (const type of [bench.shell, bench.notebook]) expect(type.backend.cleanups).toEqual([true]);
    await expect(bench.sessions.openView(keyOf("shell"), never)).rejects.toMatchObject({
      reason: "SESSION_LOST",
    });
    const { report } = await bench.call({ tool: "notebook:answer" });
    await expect(report).rejects.toMatchObject({ reason: "SESSION_LOST" });
    await settled();
    for (const type of [bench.shell, bench.notebook]) expect(type.backend.cleanups).toEqual([true]);
  });

  test("under an idle session is replaced by a create", async () => {
    const bench = await SessionBench.start();
    const { sandboxId, sessionId } = await bench.created("shell");
    bench.engine.vanish(bench.refOf(sandboxId));
    await settled();
    const session = await bench.created("shell");
    expect(session.sessionId).not.toBe(sessionId);
    expect(bench.stored).toEqual([session.sessionId]);
    expect(bench.shell.backends[0]?.alive).toBe(false);
  });

  test("is not one that is paused: calls fail until it is resumed", async () => {
    const bench = await SessionBench.start();
    const { sandboxId } = await bench.created("shell");
    const sandbox = { owner: OWNER, sandboxId };
    await bench.sandboxes.pause(sandbox, never);
    const { report } = await bench.call({ tool: "shell:answer" });
    await expect(report).rejects.toMatchObject({ reason: "SANDBOX_NOT_RUNNING" });
    await bench.sandboxes.resume(sandbox, never);
    expect(await bench.answer("shell")).toEqual({ backend: 0, restarted: false });
  });
});
