import { describe, expect, test } from "vitest";
import { BerthError } from "../../../src/base/errors.ts";
import { settled } from "../../support/manual-clock.ts";
import { OWNER } from "../sandboxes/support.ts";
import { GRACE_MS, gate, hasSettled, keyOf, never, SessionBench, TTL_MS, WORKER } from "./support.ts";

/** The progress of a request, which is sent again and again. */
function repeatable() {
  let subject: string | undefined;
  const begin = (next: string): void => {
    subject = next;
  };
  return () => ({ subject, begin });
}

const broken = () => new BerthError("SESSION_START_FAILED", "on purpose");

describe("create", () => {
  test("starts sessions of several types concurrently, each in its own sandbox", async () => {
    const bench = await SessionBench.start();
    const held = gate();
    const creating: string[] = [];
    bench.engine.before = async (step, id) => {
      if (step !== "create") return;
      creating.push(id);
      await held.promise;
    };
    const results = bench.create(["shell", "notebook"]);
    await settled();
    expect(creating).toHaveLength(2);
    held.resolve();
    expect((await results).map(({ resourceType, status }) => [resourceType, status])).toEqual([
      ["shell", "CREATED"],
      ["notebook", "CREATED"],
    ]);
    expect(bench.listed.map(({ sandboxId }) => sandboxId).sort()).toEqual(bench.containers);
    expect(bench.containers).toHaveLength(2);
  });

  test("names a session after its type, its worker, a number and its custom name", async () => {
    const bench = await SessionBench.start();
    const named = await bench.created("shell", { config: { custom_name: "build", size: 3 } });
    expect(named).toMatchObject({ name: "shell_alice_001_build", customName: "build", state: "ACTIVE" });
    expect(named.sessionId).toMatch(/^shell_alice_001_build_[0-9a-f]{8}$/);
    expect(bench.shell.backend.config).toEqual({ custom_name: "build", size: 3 });
    await bench.sessions.destroy(OWNER, WORKER, []);
    expect((await bench.created("shell")).name).toBe("shell_alice_002");
  });

  test.each([
    ["letters of one byte", "a".repeat(256), 255],
    ["letters of two bytes", "ä".repeat(128), 254],
    ["an emoji at the end", `${"a".repeat(248)}😀`, 254],
  ])("labels a sandbox with what fits of its session's id: %s", async (_, worker, bytes) => {
    const bench = await SessionBench.start();
    await bench.create(["shell"], {}, never, worker);
    const { items } = bench.sessions.list(OWNER, { workerId: worker, types: new Set() });
    const [{ sandboxId, sessionId } = expect.fail()] = items;
    const { session_id: label = "" } = bench.sandboxes.get({ owner: OWNER, sandboxId }).spec.labels;
    expect(label.isWellFormed()).toBe(true);
    expect(Buffer.byteLength(label)).toBe(bytes);
    expect(sessionId.startsWith(label)).toBe(true);
  });

  test("keeps an existing session as it is, and restarts its time to live", async () => {
    const bench = await SessionBench.start();
    const { sessionId } = await bench.created("shell", { config: { size: 1 } });
    await bench.clock.advance(TTL_MS - 1);
    const [again] = await bench.create(["shell"], { config: { size: 2 }, ttlMs: 5 });
    expect(again).toMatchObject({
      status: "EXISTS",
      session: { sessionId, config: { size: 1 }, expireTimeMs: bench.clock.wallMs() + TTL_MS },
    });
    expect(bench.shell.backends).toHaveLength(1);
  });

  test("called twice at once finds the session of the first the second time", async () => {
    const bench = await SessionBench.start();
    const both = await Promise.all([bench.create(["shell"]), bench.create(["shell"])]);
    expect(both.flat().map(({ status }) => status)).toEqual(["CREATED", "EXISTS"]);
    expect(bench.containers).toHaveLength(1);
  });

  test("that fails for one type leaves nothing of that one, and keeps the others", async () => {
    const bench = await SessionBench.start();
    bench.shell.initializing = () => Promise.reject(broken());
    const [shell, notebook] = await bench.create(["shell", "notebook"]);
    expect(shell).toMatchObject({ status: "FAILED", failure: { reason: "SESSION_START_FAILED" } });
    expect(notebook?.status).toBe("CREATED");
    const [session] = bench.listed;
    expect(bench.listed).toHaveLength(1);
    expect(bench.stored).toEqual([session?.sessionId]);
    expect(bench.containers).toEqual([session?.sandboxId]);
  });

  test("for which there is no room fails with SANDBOX_LIMIT", async () => {
    const bench = await SessionBench.start({ maxSandboxes: 1 });
    const results = await bench.create(["shell", "notebook"]);
    expect(results).toMatchObject([
      { status: "CREATED" },
      { status: "FAILED", failure: { reason: "SANDBOX_LIMIT" } },
    ]);
    expect(bench.stored).toHaveLength(1);
  });

  test.each([
    ["an unknown type", { resourceType: "ruby" }, "resource_type"],
    ["a bad config", { config: { size: "large" } }, "config.size"],
  ])("with %s fails before anything exists", async (_, wrong, field) => {
    const bench = await SessionBench.start();
    const [result] = await bench.create(["shell"], wrong);
    expect(result).toMatchObject({ status: "FAILED", failure: { reason: "INVALID_ARGUMENT" } });
    expect((result as { failure: BerthError }).failure.metadata.field).toBe(field);
    expect(bench.containers).toEqual([]);
  });

  test("whose caller leaves fails, and leaves nothing", async () => {
    const bench = await SessionBench.start();
    bench.shell.initializing = () => gate().promise;
    const caller = new AbortController();
    const result = bench.create(["shell"], {}, caller.signal);
    await settled();
    expect(bench.listed).toMatchObject([{ state: "INITIALIZING" }]);
    caller.abort();
    await expect(result).rejects.toMatchObject({ reason: "CANCELED" });
    expect([bench.listed, bench.stored, bench.containers]).toEqual([[], [], []]);
  });

  test("cleans up a backend that starts although its caller has left", async () => {
    const bench = await SessionBench.start();
    const caller = new AbortController();
    const { initialize } = bench.shell;
    bench.shell.initialize = async (host, config) => {
      const backend = await initialize.call(bench.shell, host, config, never);
      caller.abort();
      return backend;
    };
    await expect(bench.create(["shell"], {}, caller.signal)).rejects.toMatchObject({ reason: "CANCELED" });
    expect(bench.shell.backend.cleanups).toEqual([false]);
    expect(bench.containers).toEqual([]);
  });

  test("in a given sandbox uses that one, which outlives the session", async () => {
    const bench = await SessionBench.start();
    const { sandboxId } = await bench.sandboxes.create(OWNER, {}, { signal: never });
    expect(await bench.created("shell", { sandbox: { sandboxId } })).toMatchObject({ sandboxId });
    await bench.sessions.destroy(OWNER, WORKER, ["shell"]);
    expect(bench.containers).toEqual([sandboxId]);
    expect(bench.shell.backend.cleanups).toEqual([false]);
  });

  test("with a config that needs persistent files fails if there are none, before anything is created", async () => {
    const bench = await SessionBench.start();
    const config = { keeps: true };
    const [refused] = await bench.create(["shell"], { config });
    expect(refused).toMatchObject({ status: "FAILED", failure: { reason: "INVALID_ARGUMENT" } });
    expect([bench.shell.backends, bench.containers]).toEqual([[], []]);
    const { sandboxId } = await bench.sandboxes.create(OWNER, {}, { signal: never });
    await bench.created("shell", { config, sandbox: { sandboxId } });
    expect(bench.shell.backend.host.keptDir).toBe("/");
  });

  test("in another owner's sandbox fails with SANDBOX_NOT_FOUND", async () => {
    const bench = await SessionBench.start();
    const { sandboxId } = await bench.sandboxes.create("somebody else", {}, { signal: never });
    const [result] = await bench.create(["shell"], { sandbox: { sandboxId } });
    expect(result).toMatchObject({ status: "FAILED", failure: { reason: "SANDBOX_NOT_FOUND" } });
    expect(bench.listed).toEqual([]);
  });

  test("separates workers and owners", async () => {
    const bench = await SessionBench.start();
    const { sessionId } = await bench.created("shell");
    const asked = { resourceType: "shell", config: undefined, customName: "", workspaceId: "" };
    const more = { ...asked, sandbox: undefined, ttlMs: undefined, secrets: undefined };
    const bob = await bench.sessions.create(OWNER, "bob", [more], never);
    const stranger = await bench.sessions.create("somebody else", WORKER, [more], never);
    expect([...bob, ...stranger].map(({ status }) => status)).toEqual(["CREATED", "CREATED"]);
    expect(bench.listed.map((session) => session.sessionId)).toEqual([sessionId]);
    await bench.sessions.destroy("somebody else", WORKER, []);
    expect(bench.containers).toHaveLength(2);
  });
});

describe("destroy", () => {
  test("lets a call finish within its grace", async () => {
    const bench = await SessionBench.start();
    await bench.created("shell");
    const { report } = await bench.wait("shell", "one");
    const destroyed = bench.sessions.destroy(OWNER, WORKER, ["shell"]);
    await bench.clock.advance(GRACE_MS - 1);
    expect(await hasSettled(destroyed)).toBe(false);
    bench.shell.call("one").finish();
    expect(await report).toMatchObject({ data: "one" });
    expect(await destroyed).toMatchObject([
      { status: "DESTROYED", failure: undefined, session: { state: "ACTIVE" } },
    ]);
    expect([bench.listed, bench.stored, bench.containers]).toEqual([[], [], []]);
  });

  test("aborts running and waiting calls with SESSION_LOST after its grace", async () => {
    const bench = await SessionBench.start();
    await bench.created("shell");
    const first = await bench.wait("shell", "one");
    const second = await bench.wait("shell", "two");
    const destroyed = bench.sessions.destroy(OWNER, WORKER, ["shell"], 500);
    await bench.clock.advance(499);
    expect(await hasSettled(first.report)).toBe(false);
    await bench.clock.advance(1);
    for (const { report } of [first, second]) {
      await expect(report).rejects.toMatchObject({ reason: "SESSION_LOST" });
    }
    expect(bench.shell.started).toEqual(["one"]);
    expect(await destroyed).toMatchObject([{ status: "DESTROYED" }]);
  });

  test("cleans up when the calls that it aborted have ended", async () => {
    const bench = await SessionBench.start();
    await bench.created("shell");
    const ending = gate();
    const work = bench.sessions.withSession(keyOf("shell"), never, () => ending.promise);
    await settled();
    const destroyed = bench.sessions.destroy(OWNER, WORKER, ["shell"], 0);
    await bench.clock.advance(1_000);
    expect(bench.shell.backend.cleanups).toEqual([]);
    ending.resolve();
    await work;
    expect(await destroyed).toMatchObject([{ status: "DESTROYED" }]);
    expect(bench.shell.backend.cleanups).toEqual([true]);
  });

  test("waits until a backend has completed work that outlives it, before its cleanup and its sandbox's end", async () => {
    const bench = await SessionBench.start();
    const { sandboxId } = await bench.created("shell");
    const completing = gate();
    bench.shell.finishing = () => completing.promise;
    const destroyed = bench.sessions.destroy(OWNER, WORKER, ["shell"]);
    await settled();
    const { backend } = bench.shell;
    expect([backend.finishes, backend.cleanups, bench.containers]).toEqual([1, [], [sandboxId]]);
    completing.resolve();
    await destroyed;
    expect([backend.finishes, backend.cleanups, bench.containers]).toEqual([1, [true], []]);
  });

  test("reports what could not be completed, and the session is gone anyway", async () => {
    const bench = await SessionBench.start();
    await bench.created("shell");
    bench.shell.finishing = () => Promise.reject(broken());
    const [result] = await bench.sessions.destroy(OWNER, WORKER, ["shell"]);
    expect(result).toMatchObject({ status: "DESTROYED", failure: { reason: "SESSION_START_FAILED" } });
    expect(bench.shell.backend.cleanups).toEqual([true]);
    expect([bench.listed, bench.stored, bench.containers]).toEqual([[], [], []]);
  });

  test("continues if a call ignores its abort", async () => {
    const bench = await SessionBench.start();
    await bench.created("shell");
    const stuck = gate();
    void bench.sessions.withSession(keyOf("shell"), never, () => stuck.promise).catch(() => {});
    await settled();
    const destroyed = bench.sessions.destroy(OWNER, WORKER, ["shell"], 0);
    expect(await hasSettled(destroyed)).toBe(false);
    await bench.clock.advance(1_999);
    expect(bench.shell.backend.cleanups).toEqual([]);
    await bench.clock.advance(1);
    expect(bench.shell.backend.cleanups).toEqual([true]);
    // The sandbox's lease has a few seconds more.
    await bench.clock.advance(5_000);
    expect(await destroyed).toMatchObject([{ status: "DESTROYED" }]);
    expect(bench.containers).toEqual([]);
  });

  test("makes a call that arrives meanwhile wait, and then run on a temporary session", async () => {
    const bench = await SessionBench.start();
    const { sessionId } = await bench.created("shell");
    const held = gate();
    bench.shell.cleaningUp = () => held.promise;
    const destroyed = bench.sessions.destroy(OWNER, WORKER, ["shell"]);
    await settled();
    const { report } = await bench.call({ tool: "shell:answer" });
    expect(bench.shell.backends).toHaveLength(1);
    held.resolve();
    await destroyed;
    const { meta } = await report;
    expect(meta.temporarySession).toBe(true);
    expect(meta.sessionId).not.toBe(sessionId);
  });

  test("waits for a running call, but a call that arrives meanwhile ends with its caller", async () => {
    const bench = await SessionBench.start();
    await bench.created("shell");
    await bench.wait("shell", "one");
    const destroyed = bench.sessions.destroy(OWNER, WORKER, ["shell"]);
    const caller = new AbortController();
    const badParams = { tool: "shell:wait", params: { name: 7 } };
    const calls = [
      (await bench.call({ tool: "shell:answer" }, caller.signal)).report,
      (await bench.call(badParams, caller.signal)).report,
      bench.sessions.openView(keyOf("shell"), caller.signal),
      bench.create(["shell"], {}, caller.signal),
      bench.sessions.refresh(OWNER, WORKER, [], caller.signal),
      bench.sessions.reinitialize(keyOf("shell"), { config: {}, secrets: undefined }, 0, caller.signal),
    ].map((call) => call.catch(({ reason }) => reason));
    caller.abort();
    await settled();
    const outcomes = Promise.race([Promise.all(calls), settled()]);
    expect(await outcomes).toEqual(calls.map(() => "CANCELED"));
    expect(await hasSettled(destroyed)).toBe(false);
    bench.shell.call("one").finish();
    expect(await destroyed).toMatchObject([{ status: "DESTROYED" }]);
  });

  test("makes a limited number of calls wait", async () => {
    const bench = await SessionBench.start();
    await bench.created("shell");
    const held = gate();
    bench.shell.cleaningUp = () => held.promise;
    const destroyed = bench.sessions.destroy(OWNER, WORKER, ["shell"]);
    const destroy = () => bench.sessions.destroy(OWNER, WORKER, ["shell"]);
    const waiting = Array.from({ length: 1000 }, destroy);
    const refused = await Promise.race([destroy().catch(({ reason }) => reason), settled()]);
    expect(refused).toBe("TOO_MANY_OPERATIONS");
    held.resolve();
    expect(await destroyed).toMatchObject([{ status: "DESTROYED" }]);
    for (const result of await Promise.all(waiting)) expect(result).toMatchObject([{ status: "NOT_FOUND" }]);
    expect(await destroy()).toMatchObject([{ status: "NOT_FOUND" }]);
  });

  test("reports a failed cleanup, and the session is gone anyway", async () => {
    const bench = await SessionBench.start();
    await bench.created("shell");
    bench.shell.cleaningUp = () => Promise.reject(broken());
    const [result] = await bench.sessions.destroy(OWNER, WORKER, ["shell"]);
    expect(result).toMatchObject({ status: "DESTROYED", failure: { reason: "SESSION_START_FAILED" } });
    expect([bench.listed, bench.stored, bench.containers]).toEqual([[], [], []]);
  });

  test("reports a sandbox that cannot be removed; Berth keeps retrying", async () => {
    const bench = await SessionBench.start();
    await bench.created("shell");
    bench.engine.before = async (step) => {
      if (step === "remove") throw new BerthError("ENGINE_UNAVAILABLE", "on purpose");
    };
    const [result] = await bench.sessions.destroy(OWNER, WORKER, ["shell"]);
    expect(result).toMatchObject({ status: "DESTROYED", failure: { reason: "ENGINE_UNAVAILABLE" } });
    expect([bench.listed, bench.stored]).toEqual([[], []]);
    bench.engine.before = async () => {};
    await bench.clock.advance(60_000);
    expect(bench.containers).toEqual([]);
  });

  test("repeated after a crash ends what it was to end, but no later session", async () => {
    const bench = await SessionBench.start();
    const old = await bench.created("shell");
    bench.shell.cleaningUp = () => gate().promise;
    const request = repeatable();
    const destroy = () => bench.sessions.destroy(OWNER, WORKER, ["shell"], 0, request());
    void destroy();
    await settled();
    await bench.restart();
    bench.shell.cleaningUp = async () => {};
    expect(await destroy()).toMatchObject([{ status: "DESTROYED", session: { sessionId: old.sessionId } }]);
    await bench.restart();
    const { sessionId } = await bench.created("shell");
    expect(await destroy()).toEqual([{ resourceType: "shell", status: "NOT_FOUND" }]);
    expect(bench.listed).toMatchObject([{ sessionId }]);
  });

  test("without types ends all sessions of the worker; a type that it lacks is NOT_FOUND", async () => {
    const bench = await SessionBench.start();
    await bench.created("shell");
    await bench.clock.advance(1);
    await bench.created("notebook");
    const results = await bench.sessions.destroy(OWNER, WORKER, []);
    expect(results.map(({ resourceType, status }) => [resourceType, status])).toEqual([
      ["shell", "DESTROYED"],
      ["notebook", "DESTROYED"],
    ]);
    expect(await bench.sessions.destroy(OWNER, WORKER, ["shell"])).toEqual([
      { resourceType: "shell", status: "NOT_FOUND" },
    ]);
  });
});

describe("reinitialize", () => {
  const reinitialize = (
    bench: SessionBench,
    config?: { readonly [name: string]: string | number | boolean },
  ) => bench.sessions.reinitialize(keyOf("shell"), { config, secrets: undefined }, undefined, never);

  test("replaces a session by one with the same name, config and time to live", async () => {
    const bench = await SessionBench.start();
    const old = await bench.created("shell", { config: { size: 1 }, customName: "build", ttlMs: 5_000 });
    const replaced = await reinitialize(bench);
    expect(replaced).toMatchObject({
      oldSessionId: old.sessionId,
      session: { name: "shell_alice_002_build", config: { size: 1 }, ttlMs: 5_000 },
    });
    expect(bench.shell.backends.map(({ cleanups }) => cleanups)).toEqual([[true], []]);
    expect(bench.listed).toHaveLength(1);
    expect(bench.containers).toEqual([bench.listed[0]?.sandboxId]);
    expect(bench.listed[0]?.sandboxId).not.toBe(old.sandboxId);
  });

  test("stays in a given sandbox, and accepts a new config", async () => {
    const bench = await SessionBench.start();
    const { sandboxId } = await bench.sandboxes.create(OWNER, {}, { signal: never });
    await bench.created("shell", { sandbox: { sandboxId }, customName: "old" });
    expect(await reinitialize(bench, { custom_name: "new", size: 2 })).toMatchObject({
      session: { sandboxId, customName: "new", config: { custom_name: "new", size: 2 } },
    });
    expect(bench.shell.backends[0]?.cleanups).toEqual([false]);
  });

  test.each([
    ["named a generation is refused", true],
    ["named none is used", false],
  ])("of a session whose creator %s, in a later sandbox of the same name", async (_, isNamed) => {
    const bench = await SessionBench.start();
    const sandbox = { sandboxId: "mine" };
    const { generation } = await bench.sandboxes.create(OWNER, {}, { ...sandbox, signal: never });
    await bench.created("shell", { sandbox: isNamed ? { ...sandbox, generation } : sandbox });
    await bench.restart();
    await bench.sandboxes.delete({ owner: OWNER, ...sandbox }, 0);
    await bench.sandboxes.create(OWNER, {}, { ...sandbox, signal: never });
    const replaced = await reinitialize(bench);
    if (isNamed) expect(replaced).toMatchObject({ failure: { reason: "SANDBOX_REPLACED" } });
    else expect(replaced).toMatchObject({ session: sandbox });
    expect(bench.listed).toHaveLength(isNamed ? 0 : 1);
  });

  test("repeated after a crash continues, or reports its new session, and replaces no later one", async () => {
    const bench = await SessionBench.start();
    const { sessionId: oldSessionId } = await bench.created("shell");
    const request = repeatable();
    const change = { config: { size: 2 }, secrets: undefined };
    const send = () => bench.sessions.reinitialize(keyOf("shell"), change, 0, never, request());
    const repeat = async () => {
      await bench.restart();
      return send();
    };
    bench.shell.cleaningUp = () => gate().promise;
    void send();
    await settled();
    bench.shell.cleaningUp = async () => {};
    const done = await repeat();
    expect(done).toMatchObject({ oldSessionId, session: { config: { size: 2 } } });
    expect(await repeat()).toMatchObject({
      oldSessionId,
      session: { sessionId: bench.listed[0]?.sessionId, config: { size: 2 } },
    });
    await bench.sessions.destroy(OWNER, WORKER, []);
    const later = await bench.created("shell");
    expect(await repeat()).toMatchObject({ oldSessionId, failure: { reason: "SESSION_LOST" } });
    expect(bench.listed).toMatchObject([{ sessionId: later.sessionId }]);
  });

  test("creates a session if there is none", async () => {
    const bench = await SessionBench.start();
    expect(await reinitialize(bench)).toMatchObject({ oldSessionId: "", session: { state: "ACTIVE" } });
    expect(bench.containers).toHaveLength(1);
  });

  test("with an invalid config changes nothing", async () => {
    const bench = await SessionBench.start();
    const { sessionId } = await bench.created("shell");
    await expect(reinitialize(bench, { size: "large" })).rejects.toMatchObject({
      reason: "INVALID_ARGUMENT",
    });
    expect(bench.listed).toMatchObject([{ sessionId, state: "ACTIVE" }]);
    expect(bench.shell.backend.alive).toBe(true);
  });

  test("with a config that does not fit the session's sandbox changes nothing", async () => {
    const bench = await SessionBench.start();
    const { sessionId } = await bench.created("shell");
    await expect(reinitialize(bench, { keeps: true })).rejects.toMatchObject({ reason: "INVALID_ARGUMENT" });
    expect(bench.listed).toMatchObject([{ sessionId, state: "ACTIVE" }]);
    expect(bench.shell.backends).toHaveLength(1);
  });

  test("that fails reports the session that it ended, and why there is no new one", async () => {
    const bench = await SessionBench.start();
    const { sessionId } = await bench.created("shell");
    bench.shell.initializing = () => Promise.reject(broken());
    expect(await reinitialize(bench)).toMatchObject({
      oldSessionId: sessionId,
      failure: { reason: "SESSION_START_FAILED" },
    });
    expect([bench.listed, bench.stored, bench.containers]).toEqual([[], [], []]);
  });

  test("gives calls on the old session their grace; later calls run on the new one", async () => {
    const bench = await SessionBench.start();
    await bench.created("shell");
    const first = await bench.wait("shell", "one");
    const replaced = reinitialize(bench);
    const second = await bench.wait("shell", "two");
    await bench.clock.advance(GRACE_MS - 1);
    bench.shell.call("one").finish();
    expect(await first.report).toMatchObject({ data: "one" });
    const { oldSessionId } = await replaced;
    await settled();
    expect(bench.shell.call("two").backend).toBe(bench.shell.backends[1]);
    bench.shell.call("two").finish();
    const { meta } = await second.report;
    expect(meta).toMatchObject({ temporarySession: false, sessionId: bench.listed[0]?.sessionId });
    expect(meta.sessionId).not.toBe(oldSessionId);
  });
});

test.each([false, true])(
  "a shutdown (leave: %s) completes what outlives a session once its calls ended",
  async (leave) => {
    const bench = await SessionBench.start();
    await bench.created("shell");
    const ending = gate();
    const work = bench.sessions.withSession(keyOf("shell"), never, () => ending.promise);
    await settled();
    const stopped = bench.sessions.shutdown({ leave, timeoutMs: 10_000 });
    await settled();
    expect(bench.shell.backend.finishes).toBe(0);
    ending.resolve();
    await work;
    await stopped;
    expect(bench.shell.backend.finishes).toBe(1);
  },
);

test("the list has an owner's sessions newest first, in pages", async () => {
  const bench = await SessionBench.start();
  for (const type of ["shell", "notebook"]) {
    await bench.created(type);
    await bench.clock.advance(1);
  }
  const filter = { workerId: WORKER, types: new Set<string>() };
  const first = bench.sessions.list(OWNER, filter, { limit: 1 });
  expect(first.items.map(({ resourceType }) => resourceType)).toEqual(["notebook"]);
  const rest = bench.sessions.list(OWNER, filter, { limit: 1, after: first.next });
  expect(rest.items.map(({ resourceType }) => resourceType)).toEqual(["shell"]);
  expect(rest.next).toBeUndefined();
  const shells = bench.sessions.list(OWNER, { workerId: undefined, types: new Set(["shell"]) });
  expect(shells.items).toHaveLength(1);
  expect(bench.sessions.list(OWNER, { workerId: "bob", types: new Set() }).items).toEqual([]);
});

test("a page of sessions with large configs is short", async () => {
  const bench = await SessionBench.start();
  for (let at = 0; at < 5; at++)
    await bench.create(["shell"], { config: { custom_name: "x".repeat(2 ** 20) } }, never, `worker ${at}`);
  const all = { workerId: undefined, types: new Set<string>() };
  const { items, next } = bench.sessions.list(OWNER, all, { limit: 100 });
  expect(items).toHaveLength(2);
  expect(bench.sessions.list(OWNER, all, { limit: 100, after: next }).items).toHaveLength(2);
});
