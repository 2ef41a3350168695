import { expect, test } from "vitest";
import { BerthError } from "../../../src/base/errors.ts";
import { SessionRecord } from "../../../src/sessions/record.ts";
import { SessionRegistry } from "../../../src/sessions/registry.ts";
import type { RequestedSession, SessionResult, SessionSecrets } from "../../../src/sessions/session.ts";
import { ServiceTime } from "../../../src/state/service-time.ts";
import { ManualClock, settled } from "../../support/manual-clock.ts";
import { memoryStore } from "../../support/memory-store.ts";
import { OWNER } from "../sandboxes/support.ts";
import { FakeType, gate, never, SessionBench, WORKER } from "./support.ts";

const MAX_SESSIONS = 256;
const MAX_LOST = 10_000;
/** Of the configs and secrets of the sessions in a sandbox. */
const MAX_BYTES = 4 * 1024 * 1024;
const isFull = {
  status: "FAILED",
  failure: { reason: "TOO_MANY_OPERATIONS", metadata: { limit: String(MAX_SESSIONS) } },
};
const exceeds = (quota: number) => ({
  status: "FAILED",
  failure: { reason: "TENANT_QUOTA", metadata: { quota: "sessions", limit: String(quota), asked: "1" } },
});

/** A sandbox in which workers create sessions. */
async function crowd(bench: SessionBench, worker = "worker") {
  const { sandboxId } = await bench.sandboxes.create(OWNER, {}, { signal: never });
  const sandbox = { sandboxId };
  let workers = 0;
  const join = async (more: Partial<RequestedSession> = {}): Promise<SessionResult> => {
    const [result] = await bench.create(["shell"], { sandbox, ...more }, never, `${worker} ${workers++}`);
    if (result === undefined) throw new Error("no result");
    return result;
  };
  const fill = (count: number) => Promise.all(Array.from({ length: count }, () => join()));
  return { sandboxId, join, fill };
}

/** Secrets whose names take `bytes`. */
function secretsOf(bytes: number): SessionSecrets {
  return { env: { TOKEN: "x".repeat(bytes) }, redact: false };
}

function statuses(results: readonly SessionResult[]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const { status } of results) counts[status] = (counts[status] ?? 0) + 1;
  return counts;
}

test("a sandbox has a limited number of sessions, also if they are created at once; another fits when one has ended", async () => {
  const bench = await SessionBench.start();
  const { join, fill } = await crowd(bench);
  const held = gate();
  bench.shell.initializing = () => held.promise;
  const filling = fill(MAX_SESSIONS + 2);
  await settled();
  held.resolve();
  const results = await filling;
  expect(statuses(results)).toEqual({ CREATED: MAX_SESSIONS, FAILED: 2 });
  expect(results.at(-1)).toMatchObject(isFull);
  expect(bench.shell.backends).toHaveLength(MAX_SESSIONS);
  expect(bench.stored).toHaveLength(MAX_SESSIONS);
  // It limits neither other sandboxes nor a session's own sandbox.
  expect(await (await crowd(bench, "elsewhere")).join()).toMatchObject({ status: "CREATED" });
  await bench.created("shell");

  await bench.sessions.destroy(OWNER, "worker 7", []);
  expect(statuses(await fill(2))).toEqual({ CREATED: 1, FAILED: 1 });
  // A session that is there needs no further place.
  await bench.sessions.reinitialize(
    { owner: OWNER, workerId: "worker 8", resourceType: "shell" },
    { config: {}, secrets: undefined },
    undefined,
    never,
  );
  expect(await join()).toMatchObject(isFull);
});

test("the sessions of a sandbox have a limited size together, which ends with each", async () => {
  const bench = await SessionBench.start();
  bench.shell.takesSecrets = true;
  const { join, fill } = await crowd(bench);
  const half = { secrets: secretsOf(MAX_BYTES / 2 - 1024) };
  expect([await join(half), await join(half)]).toMatchObject([{ status: "CREATED" }, { status: "CREATED" }]);
  expect(statuses(await fill(10))).toEqual({ CREATED: 10 });
  const metadata = { limit: String(MAX_BYTES) };
  expect(await join(half)).toMatchObject({
    status: "FAILED",
    failure: { reason: "TOO_MANY_OPERATIONS", metadata },
  });
  await bench.sessions.destroy(OWNER, "worker 0", []);
  expect(await join(half)).toMatchObject({ status: "CREATED" });
});

test("a session keeps its place until it has been cleaned up", async () => {
  const bench = await SessionBench.start();
  const { join, fill } = await crowd(bench);
  await fill(MAX_SESSIONS);
  const held = gate();
  bench.shell.cleaningUp = () => held.promise;
  const destroyed = bench.sessions.destroy(OWNER, "worker 0", []);
  await settled();
  expect(await join()).toMatchObject(isFull);
  held.resolve();
  await destroyed;
  expect(await join()).toMatchObject({ status: "CREATED" });
});

test.each(["fails to start", "is abandoned by its caller", "expires"])(
  "a session that %s gives its place back",
  async (end) => {
    const bench = await SessionBench.start();
    bench.quota = { sessions: MAX_SESSIONS };
    const { sandboxId, join, fill } = await crowd(bench);
    await fill(MAX_SESSIONS - 1);
    const caller = new AbortController();
    if (end === "fails to start") {
      bench.shell.initializing = () => Promise.reject(new BerthError("SESSION_START_FAILED", "on purpose"));
    } else if (end !== "expires") bench.shell.initializing = () => gate().promise;
    const more = { sandbox: { sandboxId }, ttlMs: 1_000 };
    const creating = bench.create(["shell"], more, caller.signal);
    creating.catch(() => {});
    await settled();
    caller.abort(new BerthError("CANCELED", "on purpose"));
    await bench.clock.advance(1_000);
    bench.shell.initializing = async () => {};
    expect(await join()).toMatchObject({ status: "CREATED" });
    expect(await join()).toMatchObject(isFull);
    expect(bench.quotas.usage(OWNER).sessions).toBe(MAX_SESSIONS);
  },
);

test("sessions of an earlier run of the service count, and those that are ended then do not", async () => {
  const bench = await SessionBench.start();
  const { sandboxId, join, fill } = await crowd(bench);
  await fill(MAX_SESSIONS - 1);
  await bench.create(["notebook"], { sandbox: { sandboxId } });
  await bench.kill();
  await bench.begin([bench.shell]);
  // The one of a type that is no longer offered was ended.
  expect(bench.quotas.usage(OWNER).sessions).toBe(MAX_SESSIONS - 1);
  expect(await join()).toMatchObject({ status: "CREATED" });
  expect(await join()).toMatchObject(isFull);
  await bench.sessions.destroy(OWNER, "worker 0", []);
  expect(await join()).toMatchObject({ status: "CREATED" });
});

test("a tenant has as many sessions as its quota allows, and no sandbox is created for one that it refuses", async () => {
  const bench = await SessionBench.start();
  bench.quota = { sessions: 1 };
  const sandboxes: string[] = [];
  bench.engine.before = async (step, id) => {
    if (step === "create") sandboxes.push(id);
  };
  expect(await bench.create(["shell", "notebook"])).toMatchObject([{ status: "CREATED" }, exceeds(1)]);
  expect(sandboxes).toHaveLength(1);
  // A session of one call does not count.
  const { report } = await bench.call({ tool: "notebook:answer" });
  expect((await report).meta.temporarySession).toBe(true);
  bench.quota = { sessions: 2 };
  await bench.created("notebook");
  await bench.sessions.destroy(OWNER, WORKER, []);
  expect(bench.quotas.usage(OWNER).sessions).toBe(0);
});

test("sessions no longer count when their sandbox ends, and the next call on each still reports the loss", async () => {
  const bench = await SessionBench.start();
  bench.quota = { sessions: 2 };
  const { sandboxId, fill } = await crowd(bench);
  expect(statuses(await fill(3))).toEqual({ CREATED: 2, FAILED: 1 });
  await bench.sandboxes.delete({ owner: OWNER, sandboxId }, 0);
  expect(bench.quotas.usage(OWNER).sessions).toBe(0);
  await bench.created("shell");
  const { report } = await bench.call({ tool: "shell:answer", workerId: "worker 0" });
  await expect(report).rejects.toMatchObject({ reason: "SESSION_LOST" });
  expect(bench.quotas.usage(OWNER).sessions).toBe(1);
});

test("of the sessions whose sandboxes have ended, the oldest of the owner with the most give way", () => {
  const registry = new SessionRegistry();
  const clock = new ManualClock();
  const time = ServiceTime.resume(clock, memoryStore().time);
  const type = new FakeType("shell");
  const recordOf = (owner: string, number: number): SessionRecord => {
    const named = { owner, workerId: `worker ${number}`, sessionId: `${number}`, name: "" };
    const rest = {
      config: {},
      customName: "",
      sandbox: undefined,
      workspaceId: "",
      ttlMs: 1_000,
      createTimeMs: number,
    };
    const init = { ...named, ...rest, type, temporary: false, secrets: undefined };
    return new SessionRecord(init, { clock, time, onExpiry: () => {}, onUse: () => {} });
  };
  const lose = (record: SessionRecord): string[] => {
    registry.add(record);
    return registry.lose(record).map(({ sessionId }) => sessionId);
  };
  for (let number = 0; number < MAX_LOST - 1; number++) expect(lose(recordOf("a", number))).toEqual([]);
  const replaced = recordOf("a", 0);
  // It is no longer lost.
  registry.add(replaced);
  expect(lose(recordOf("b", 0))).toEqual([]);
  expect(lose(recordOf("b", 1))).toEqual([]);
  expect(lose(recordOf("b", 2))).toEqual(["1"]);
  // A session that is gone needs no place.
  registry.remove(replaced);
  expect(registry.lose(replaced)).toEqual([]);
});

test("of large sessions whose sandboxes have ended fewer are kept, also those of an earlier run of the service", async () => {
  const bench = await SessionBench.start();
  const { sandboxId, fill } = await crowd(bench);
  await fill(3);
  const { sessions } = bench.world.store;
  for (const session of sessions.load()) {
    if (session.workerId !== "worker 2") sessions.put({ ...session, secrets: secretsOf(20 << 20) });
  }
  await bench.kill();
  bench.engine.vanish(bench.refOf(sandboxId));
  await bench.begin();
  expect(Array.from(sessions.load(), ({ workerId }) => workerId)).toEqual(["worker 1", "worker 2"]);
});

test("of two stored sessions of a worker and type, the older is ended when the service starts", async () => {
  const bench = await SessionBench.start();
  const older = await bench.created("shell");
  const [stored] = bench.world.store.sessions.load();
  await bench.sessions.destroy(OWNER, WORKER, []);
  const newer = await bench.created("shell");
  if (stored !== undefined) bench.world.store.sessions.put({ ...stored, createTimeMs: 0 });
  await bench.restart();
  expect(bench.listed).toMatchObject([{ sessionId: newer.sessionId }]);
  expect(bench.stored).toEqual([newer.sessionId]);
  expect(older.sessionId).not.toBe(newer.sessionId);
  expect(bench.quotas.usage(OWNER).sessions).toBe(1);
});
