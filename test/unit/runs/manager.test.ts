import { describe, expect, onTestFinished, test, vi } from "vitest";
import { BerthError } from "../../../src/base/errors.ts";
import type { StepReport } from "../../../src/runs/machine.ts";
import { endOf, type RunSettings, type RunState, sandboxOf } from "../../../src/runs/run.ts";
import { NO_PROGRESS, type RequestProgress } from "../../../src/state/request-log.ts";
import { Seal } from "../../../src/state/seal.ts";
import { settled } from "../../support/manual-clock.ts";
import { seededRandom } from "../../support/random.ts";
import { repeatableRequest } from "../../support/repeatable-request.ts";
import { scaled } from "../../support/scale.ts";
import { RUN_SETTINGS, RunBench } from "./support.ts";

const OWNER = "default";
const never = new AbortController().signal;

function create(bench: RunBench, settings: Partial<RunSettings> = {}): string {
  return bench.runs.create(OWNER, { ...RUN_SETTINGS, ...settings }).run.runId;
}

async function running(bench: RunBench, settings: Partial<RunSettings> = {}): Promise<string> {
  const runId = create(bench, settings);
  await bench.runs.start(OWNER, runId, undefined, never);
  return runId;
}

function finish(
  bench: RunBench,
  runId: string,
  more: Partial<StepReport> = {},
  progress: RequestProgress = NO_PROGRESS,
) {
  const report = {
    step: 1,
    startId: "",
    messages: [],
    result: "",
    outcome: "FINISHED",
    fingerprint: "",
  } as const;
  return bench.runs.report(OWNER, runId, { ...report, ...more }, progress);
}

/** Blocks the engine at a step until it is released. */
function hold(bench: RunBench, at: string): () => Promise<void> {
  const gate = Promise.withResolvers<void>();
  bench.engine.before = async (step) => {
    if (step === at) await gate.promise;
  };
  return async () => {
    bench.engine.before = async () => {};
    gate.resolve();
    await settled();
  };
}

const reasonOf = (work: Promise<unknown>): Promise<string> =>
  work.then(
    () => "none",
    (error: unknown) => (error instanceof BerthError ? error.reason : String(error)),
  );

describe("of concurrent starts", () => {
  test("as many succeed as there are places", async () => {
    const bench = await RunBench.start(2);
    const start = (): Promise<string> => reasonOf(bench.runs.start(OWNER, create(bench), undefined, never));
    const reasons = await Promise.all(Array.from({ length: 5 }, start));
    expect(reasons.sort()).toEqual([
      "TOO_MANY_OPERATIONS",
      "TOO_MANY_OPERATIONS",
      "TOO_MANY_OPERATIONS",
      "none",
      "none",
    ]);
  });

  test("those of one owner leave places to others", async () => {
    const bench = await RunBench.start(30);
    const runs: string[] = [];
    const startOf = (owner: string): Promise<string> => {
      const { runId } = bench.runs.create(owner, RUN_SETTINGS).run;
      runs.push(runId);
      return reasonOf(bench.runs.start(owner, runId, undefined, never));
    };
    const startsOf = async (owner: string): Promise<number> => {
      const reasons = await Promise.all(Array.from({ length: 31 }, () => startOf(owner)));
      return reasons.filter((reason) => reason === "none").length;
    };
    expect(await startsOf("other")).toBe(27);
    expect(await startsOf(OWNER)).toBe(3);
    await bench.runs.cancel("other", runs[0] ?? "");
    expect(await startOf("other")).toBe("TOO_MANY_OPERATIONS");
    expect(await startOf("third")).toBe("none");
  });

  test("a failed start releases its place", async () => {
    const bench = await RunBench.start(1);
    bench.engine.before = async (step) => {
      if (step === "create") throw new BerthError("SANDBOX_START_FAILED", "It did not start.");
    };
    const runId = create(bench);
    expect(await reasonOf(bench.runs.start(OWNER, runId, undefined, never))).toBe("SANDBOX_START_FAILED");
    bench.engine.before = async () => {};
    expect(await reasonOf(bench.runs.start(OWNER, runId, undefined, never))).toBe("none");
  });

  test("one gets a sandbox that several are to work in", async () => {
    const bench = await RunBench.start();
    const { sandboxId } = await bench.sandboxes.create(OWNER, {}, { signal: never });
    const start = (): Promise<string> => {
      const sandbox = { kind: "given", sandboxId, generation: undefined } as const;
      return reasonOf(bench.runs.start(OWNER, create(bench, { sandbox }), undefined, never));
    };
    const reasons = await Promise.all(Array.from({ length: 4 }, start));
    expect(reasons.sort()).toEqual(["SANDBOX_IN_USE", "SANDBOX_IN_USE", "SANDBOX_IN_USE", "none"]);
  });
});

describe("a start that is under way", () => {
  test("is the only one, and nobody can reset the run meanwhile", async () => {
    const bench = await RunBench.start();
    const runId = create(bench);
    const go = hold(bench, "create");
    const first = bench.runs.start(OWNER, runId, undefined, never);
    await settled();
    expect(await reasonOf(bench.runs.start(OWNER, runId, undefined, never))).toBe("RUN_STATE");
    expect(await reasonOf(bench.runs.reset(OWNER, runId))).toBe("RUN_STATE");
    expect(sandboxOf(bench.runs.catalog.find(OWNER, runId))).toBeUndefined();
    await go();
    expect((await first).run.phase).toMatchObject({ state: "RUNNING", step: 1 });
    expect(bench.containers).toHaveLength(1);
  });

  test("is aborted by a cancel: the run stays IDLE, and nothing is left", async () => {
    const bench = await RunBench.start();
    const runId = create(bench);
    const go = hold(bench, "create");
    const start = reasonOf(bench.runs.start(OWNER, runId, undefined, never));
    await settled();
    const cancel = bench.runs.cancel(OWNER, runId);
    await go();
    expect((await cancel).run.phase).toEqual({ state: "IDLE", end: undefined });
    expect(await start).toBe("CANCELED");
    expect(bench.containers).toEqual([]);
  });

  test("is aborted by a delete", async () => {
    const bench = await RunBench.start();
    const runId = create(bench);
    const go = hold(bench, "create");
    const start = reasonOf(bench.runs.start(OWNER, runId, undefined, never));
    await settled();
    const gone = bench.runs.delete(OWNER, runId);
    await go();
    await gone;
    expect(await start).toBe("CANCELED");
    expect(bench.containers).toEqual([]);
    expect(() => bench.runs.catalog.find(OWNER, runId)).toThrow("There is no run");
  });

  test("leaves nothing when the service is killed, whether the container was created or not", async () => {
    const bench = await RunBench.start();
    const runId = create(bench);
    const go = hold(bench, "create");
    void bench.runs.start(OWNER, runId, undefined, never).catch(() => {});
    await settled();
    expect(bench.store.runs.unsettled()).toHaveLength(1);
    await bench.kill();
    await go();
    await bench.restart();
    await bench.clock.advance(60_000);
    expect(bench.containers).toEqual([]);
    expect(bench.store.runs.unsettled()).toEqual([]);
    expect(bench.runs.catalog.find(OWNER, runId)).toMatchObject({ phase: { state: "IDLE" } });
    await bench.runs.start(OWNER, runId, undefined, never);
    expect(bench.containers).toHaveLength(1);
  });

  test("is not disturbed by a repeated last report of the previous pass", async () => {
    const bench = await RunBench.start();
    const runId = await running(bench, { maxSteps: 1 });
    const { startId } = bench.runs.catalog.find(OWNER, runId);
    await finish(bench, runId, { startId, outcome: "CONTINUE" });
    const go = hold(bench, "create");
    const start = bench.runs.start(OWNER, runId, undefined, never);
    await settled();
    const again = await finish(bench, runId, { startId, outcome: "CONTINUE" });
    expect(again.end?.end.outcome).toBe("MAX_STEPS");
    await go();
    expect((await start).run.phase.state).toBe("RUNNING");
    expect(bench.containers).toHaveLength(1);
  });

  test("that fails restores what the run had", async () => {
    const bench = await RunBench.start();
    const runId = await running(bench, { onEnd: "KEEP", maxSteps: 1 });
    await finish(bench, runId, { outcome: "CONTINUE" });
    const before = bench.runs.catalog.get(OWNER, runId);
    expect(sandboxOf(before.run)).toBeDefined();
    bench.engine.before = async (step) => {
      if (step === "create") throw new BerthError("SANDBOX_START_FAILED", "on purpose");
    };
    expect(await reasonOf(bench.runs.start(OWNER, runId, "hello", never))).toBe("SANDBOX_START_FAILED");
    expect(bench.runs.catalog.get(OWNER, runId)).toEqual(before);
  });
});

describe("a request that is repeated, because its answer was lost, does not affect a later pass", () => {
  const stateOf = (bench: RunBench, runId: string): RunState =>
    bench.runs.catalog.get(OWNER, runId).run.phase.state;
  /** Starts the next pass of a run that has ended. */
  const startAgain = async (bench: RunBench, runId: string): Promise<void> => {
    await bench.runs.reset(OWNER, runId);
    await bench.runs.start(OWNER, runId, undefined, never);
  };

  test("a cancel", async () => {
    const bench = await RunBench.start();
    const runId = await running(bench);
    const request = repeatableRequest();
    await bench.runs.cancel(OWNER, runId, request());
    expect((await bench.runs.cancel(OWNER, runId, request())).run.phase.state).toBe("ERROR");
    await startAgain(bench, runId);
    await bench.runs.cancel(OWNER, runId, request());
    expect(stateOf(bench, runId)).toBe("RUNNING");
  });

  test("a reset", async () => {
    const bench = await RunBench.start();
    const runId = await running(bench);
    await finish(bench, runId);
    const request = repeatableRequest();
    await bench.runs.reset(OWNER, runId, request());
    expect((await bench.runs.reset(OWNER, runId, request())).run.phase.state).toBe("IDLE");
    await bench.runs.start(OWNER, runId, undefined, never);
    await finish(bench, runId);
    await bench.runs.reset(OWNER, runId, request());
    expect(stateOf(bench, runId)).toBe("FINISHED");
  });

  test("a report that names no start", async () => {
    const bench = await RunBench.start();
    const runId = await running(bench);
    const request = repeatableRequest();
    await finish(bench, runId, {}, request());
    await expect(finish(bench, runId, {}, request())).resolves.toMatchObject({
      end: { steps: [{ step: 1 }] },
    });
    await startAgain(bench, runId);
    expect(await reasonOf(finish(bench, runId, {}, request()))).toBe("RUN_STATE");
    expect(stateOf(bench, runId)).toBe("RUNNING");
  });

  test("a start", async () => {
    const bench = await RunBench.start();
    const runId = create(bench, { maxSteps: 1 });
    const request = repeatableRequest();
    const start = () => bench.runs.start(OWNER, runId, undefined, never, request());
    const { startId } = (await start()).run;
    expect((await start()).run.startId).toBe(startId);
    await finish(bench, runId);
    await startAgain(bench, runId);
    // After its last step it could be started once more.
    await finish(bench, runId, { outcome: "CONTINUE" });
    expect(await reasonOf(start())).toBe("RUN_STATE");
    expect(stateOf(bench, runId)).toBe("IDLE");
  });
});

describe("cleaning up that fails", () => {
  test("is retried until it is done, and no start happens before", async () => {
    const bench = await RunBench.start();
    const runId = await running(bench, { maxSteps: 1 });
    bench.engine.before = async (step) => {
      if (step === "remove") throw new BerthError("ENGINE_UNAVAILABLE", "on purpose");
    };
    const { end } = await finish(bench, runId, { outcome: "CONTINUE" });
    expect(end?.end.outcome).toBe("MAX_STEPS");
    expect(await reasonOf(bench.runs.start(OWNER, runId, undefined, never))).toBe("ENGINE_UNAVAILABLE");
    expect(await reasonOf(bench.runs.delete(OWNER, runId))).toBe("ENGINE_UNAVAILABLE");
    expect(bench.containers).toHaveLength(1);
    bench.engine.before = async () => {};
    await bench.clock.advance(6_000);
    expect(bench.containers).toEqual([]);
    expect(bench.store.runs.unsettled()).toEqual([]);
    await bench.runs.start(OWNER, runId, undefined, never);
    await bench.clock.advance(10_000);
    expect(bench.containers).toHaveLength(1);
  });

  test("continues after a restart of the service", async () => {
    const bench = await RunBench.start();
    const runId = await running(bench);
    bench.engine.before = async (step) => {
      if (step === "remove") await new Promise(() => {});
    };
    void finish(bench, runId).catch(() => {});
    await settled();
    expect(bench.containers).toHaveLength(1);
    bench.engine.before = async () => {};
    await bench.restart();
    await bench.clock.advance(1_000);
    expect(bench.containers).toEqual([]);
    expect(bench.runs.catalog.find(OWNER, runId).phase.state).toBe("FINISHED");
    expect(bench.killed).toContain(runId);
  });
});

test("processes that do not end delay the end of a run only for a limited time, and it is retried", async () => {
  const bench = await RunBench.start();
  const runId = await running(bench, { onEnd: "KEEP" });
  bench.killed.length = 0;
  bench.endProcesses = () => new Promise(() => {});
  const end = finish(bench, runId);
  await bench.clock.advance(30_000);
  await end;
  expect(bench.store.runs.unsettled()).toHaveLength(1);
  bench.endProcesses = async () => {};
  await bench.clock.advance(5_000);
  expect(bench.killed).toEqual([runId, runId]);
  expect(bench.store.runs.unsettled()).toEqual([]);
});

test("a delete waits for operations in the sandbox of a run, and not for the run", async () => {
  const bench = await RunBench.start();
  const runId = await running(bench);
  const sandboxId = sandboxOf(bench.runs.catalog.find(OWNER, runId)) ?? "";
  const operation = bench.sandboxes.acquire({ owner: OWNER, sandboxId });
  const deleted = bench.sandboxes.delete({ owner: OWNER, sandboxId }, 3600_000);
  await settled();
  expect(bench.runs.catalog.find(OWNER, runId).phase.state).toBe("RUNNING");
  operation.release();
  await deleted;
  expect(endOf(bench.runs.catalog.find(OWNER, runId))?.outcome).toBe("ERROR");
  // After a restart too.
  const next = await running(bench);
  await bench.restart();
  const nextId = sandboxOf(bench.runs.catalog.find(OWNER, next)) ?? "";
  await bench.sandboxes.delete({ owner: OWNER, sandboxId: nextId }, 3600_000);
  expect(bench.containers).toEqual([]);
});

/** Fills the disk. Returns what makes room again. */
function fillDisk({ store: { runs } }: RunBench): () => void {
  const { save, remove } = runs;
  const fail = (): never => {
    throw new BerthError("NO_SPACE", "The disk is full.");
  };
  Object.assign(runs, { save: fail, remove: fail });
  return () => Object.assign(runs, { save, remove });
}

describe("on a full disk", () => {
  test("a run ends, and its sandbox with it; that is stored later", async () => {
    const bench = await RunBench.start();
    const runId = await running(bench);
    const watch = bench.runs.catalog.watch(OWNER, runId, 2, never);
    const makeRoom = fillDisk(bench);
    await bench.clock.advance(RUN_SETTINGS.stepTimeoutMs);
    expect(endOf(bench.runs.catalog.find(OWNER, runId))?.outcome).toBe("LEASE_EXPIRED");
    expect(bench.containers).toEqual([]);
    expect(bench.store.runs.get(OWNER, runId)?.phase.state).toBe("RUNNING");
    expect(await reasonOf(bench.runs.start(OWNER, runId, undefined, never))).toBe("NO_SPACE");
    makeRoom();
    await bench.clock.advance(1_000);
    expect(bench.store.runs.get(OWNER, runId)).toEqual(bench.runs.catalog.find(OWNER, runId));
    expect(bench.store.runs.unsettled()).toEqual([]);
    expect(await watch.next()).toMatchObject({
      value: { event: { body: { type: "ENDED", end: { outcome: "LEASE_EXPIRED" } } } },
    });
  });

  test("a run is canceled, and continues neither now nor after a restart", async () => {
    const bench = await RunBench.start();
    const runId = await running(bench);
    const list = (state: RunState) =>
      bench.runs.catalog
        .list(OWNER, { states: new Set([state]), limit: 10, before: undefined })
        .runs.map(({ run }) => run.runId);
    const makeRoom = fillDisk(bench);
    expect((await bench.runs.cancel(OWNER, runId)).run.phase).toMatchObject({
      state: "ERROR",
      end: { outcome: "CANCELED" },
    });
    expect(bench.containers).toEqual([]);
    expect(bench.running.has(OWNER, runId)).toBe(false);
    expect(list("RUNNING")).toEqual([]);
    expect(list("ERROR")).toEqual([runId]);
    expect(await reasonOf(bench.runs.reset(OWNER, runId))).toBe("NO_SPACE");
    makeRoom();
    // Without waiting for the next attempt to store it.
    await bench.runs.reset(OWNER, runId);
    expect(list("IDLE")).toEqual([runId]);

    await bench.runs.start(OWNER, runId, undefined, never);
    const makeRoomAgain = fillDisk(bench);
    await bench.runs.cancel(OWNER, runId);
    await bench.kill();
    makeRoomAgain();
    await bench.restart();
    expect(bench.runs.catalog.find(OWNER, runId).phase).toMatchObject({ state: "ERROR" });
    expect(bench.containers).toEqual([]);
  });

  test("a run is deleted, whatever its state", async () => {
    const bench = await RunBench.start();
    const ids = [await running(bench), create(bench), await running(bench), create(bench)];
    await finish(bench, ids[2] ?? "");
    const go = hold(bench, "create");
    const start = reasonOf(bench.runs.start(OWNER, ids[3] ?? "", undefined, never));
    await settled();
    const makeRoom = fillDisk(bench);
    const deleted = Promise.all(ids.map((runId) => bench.runs.delete(OWNER, runId)));
    await go();
    await deleted;
    expect(await start).toBe("CANCELED");
    const all = { states: new Set<RunState>(), limit: 10, before: undefined };
    expect(bench.runs.catalog.list(OWNER, all)).toEqual({ runs: [], next: undefined });
    for (const runId of ids) expect(() => bench.runs.catalog.find(OWNER, runId)).toThrow("There is no run");
    expect(bench.containers).toEqual([]);
    expect(bench.store.runs.list({ owner: OWNER, ...all }).runs).toHaveLength(4);
    makeRoom();
    await bench.clock.advance(1_000);
    expect(bench.store.runs.list({ owner: OWNER, ...all }).runs).toEqual([]);
  });

  test("who watches a run gets its end once that is stored", async () => {
    const bench = await RunBench.start();
    const watched = async (runId: string) => {
      const watch = bench.runs.catalog.watch(OWNER, runId, 2, never);
      const types: string[] = [];
      const read = (async () => {
        for await (const item of watch) if (item.type === "event") types.push(item.event.body.type);
      })();
      await settled();
      return { types, read };
    };
    const [later, atOnce, gone] = [await running(bench), await running(bench), await running(bench)];
    const [ofLater, ofAtOnce, ofGone] = [await watched(later), await watched(atOnce), await watched(gone)];
    const makeRoom = fillDisk(bench);
    for (const runId of [later, atOnce]) await bench.runs.cancel(OWNER, runId);
    await bench.runs.delete(OWNER, gone);
    await ofGone.read;
    expect(ofGone.types).toEqual(["ENDED", "DELETED"]);
    makeRoom();
    // This stores what waits of the run, and then fails.
    expect(await reasonOf(bench.runs.start(OWNER, atOnce, undefined, never))).toBe("RUN_STATE");
    await settled();
    expect(ofAtOnce.types).toEqual(["ENDED"]);
    await bench.clock.advance(1_000);
    expect(ofLater.types).toEqual(["ENDED"]);
  });

  test("a run continues after a restart", async () => {
    const bench = await RunBench.start();
    const runId = await running(bench);
    fillDisk(bench);
    await expect(bench.restart()).resolves.toBeUndefined();
    expect(bench.runs.catalog.find(OWNER, runId).phase.state).toBe("RUNNING");
    await bench.clock.advance(RUN_SETTINGS.stepTimeoutMs);
    expect(endOf(bench.runs.catalog.find(OWNER, runId))?.outcome).toBe("LEASE_EXPIRED");
    expect(bench.containers).toEqual([]);
  });

  test("a report that ends a run and cannot be stored leaves it to its lease", async () => {
    const bench = await RunBench.start();
    const runId = await running(bench);
    const { transaction } = bench.store;
    // With a file, SQLite finds the disk full when it commits.
    bench.store.transaction = (work) =>
      transaction(() => {
        work();
        throw new BerthError("NO_SPACE", "The disk is full.");
      });
    expect(await reasonOf(finish(bench, runId))).toBe("NO_SPACE");
    bench.store.transaction = transaction;
    expect(bench.runs.catalog.find(OWNER, runId).phase.state).toBe("RUNNING");
    expect(bench.running.has(OWNER, runId)).toBe(true);
    await bench.clock.advance(RUN_SETTINGS.stepTimeoutMs);
    expect(endOf(bench.runs.catalog.find(OWNER, runId))?.outcome).toBe("LEASE_EXPIRED");
    expect(bench.containers).toEqual([]);
  });
});

test("an end that could not be written does not apply to a later start", async () => {
  const bench = await RunBench.start();
  const runId = await running(bench);
  const { save } = bench.store.runs;
  bench.store.runs.save = () => {
    throw new BerthError("INTERNAL", "The database failed.");
  };
  await bench.clock.advance(RUN_SETTINGS.stepTimeoutMs);
  expect(bench.runs.catalog.find(OWNER, runId).phase.state).toBe("RUNNING");
  bench.store.runs.save = save;
  await bench.runs.cancel(OWNER, runId);
  await bench.runs.reset(OWNER, runId);
  await bench.runs.start(OWNER, runId, undefined, never);
  await bench.clock.advance(6_000);
  expect(bench.runs.catalog.find(OWNER, runId).phase.state).toBe("RUNNING");
});

test.each(["report", "sign of life"])("a %s restarts the lease", async (sign) => {
  const bench = await RunBench.start();
  const runId = await running(bench);
  await bench.clock.advance(RUN_SETTINGS.stepTimeoutMs - 1);
  if (sign === "report") await finish(bench, runId, { outcome: "CONTINUE" });
  else bench.runs.keepAlive(OWNER, runId, 1, "");
  await bench.clock.advance(RUN_SETTINGS.stepTimeoutMs - 1);
  expect(bench.runs.catalog.find(OWNER, runId).phase.state).toBe("RUNNING");
  await bench.clock.advance(1);
  expect(endOf(bench.runs.catalog.find(OWNER, runId))?.outcome).toBe("LEASE_EXPIRED");
});

test("a sandbox that replaced the run's own is not affected by the run's end", async () => {
  const bench = await RunBench.start();
  const { sandboxId } = await bench.sandboxes.create(OWNER, {}, { signal: never });
  const runId = await running(bench, { sandbox: { kind: "given", sandboxId, generation: undefined } });
  bench.engine.before = async (step) => {
    if (step === "remove") throw new BerthError("ENGINE_UNAVAILABLE", "on purpose");
  };
  await finish(bench, runId);
  bench.engine.before = async () => {};
  // Another caller deletes the sandbox, and creates one with the same id, before the run is cleaned up.
  await bench.sandboxes.delete({ owner: OWNER, sandboxId });
  await bench.sandboxes.create(OWNER, {}, { sandboxId, signal: never });
  await bench.clock.advance(20_000);
  expect(bench.containers).toEqual([sandboxId]);
  expect(bench.store.runs.unsettled()).toEqual([]);
});

test("setting the wall clock neither ends a run nor keeps one alive, also across a restart", async () => {
  const bench = await RunBench.start();
  const ids = [await running(bench), await running(bench, { stepTimeoutMs: 1e6, maxDurationMs: 60_000 })];
  const states = (): string[] => ids.map((runId) => bench.runs.catalog.find(OWNER, runId).phase.state);
  for (const jump of [3600_000, -7200_000]) {
    bench.clock.setWall(jump);
    await bench.clock.advance(1_000);
    await bench.restart(1_000);
    expect(states()).toEqual(["RUNNING", "RUNNING"]);
  }
  await bench.clock.advance(20_000);
  expect(states()).toEqual(["ERROR", "RUNNING"]);
  await bench.clock.advance(36_000);
  expect(states()).toEqual(["ERROR", "ERROR"]);
  const outcomes = ids.map((runId) => endOf(bench.runs.catalog.find(OWNER, runId))?.outcome);
  expect(outcomes).toEqual(["LEASE_EXPIRED", "DEADLINE"]);
});

test("a run whose sandbox is paused across a restart continues", async () => {
  const bench = await RunBench.start();
  const runId = await running(bench);
  const sandboxId = sandboxOf(bench.runs.catalog.find(OWNER, runId)) ?? "";
  await bench.sandboxes.pause({ owner: OWNER, sandboxId }, never);
  await bench.restart();
  expect(bench.runs.catalog.find(OWNER, runId).phase.state).toBe("RUNNING");
  await finish(bench, runId);
  expect(bench.containers).toEqual([]);
});

test("an owner's newest runs are kept, and no run that is RUNNING is dropped", async () => {
  const bench = await RunBench.start();
  const first = await running(bench, { sandbox: { kind: "none" }, stepTimeoutMs: 1e6 });
  for (let i = 0; i < 10; i++) {
    const run = bench.runs.create(OWNER, { ...RUN_SETTINGS, name: String(i) }).run;
    bench.store.runs.remove(run.runId);
    bench.store.runs.purge();
    bench.store.runs.add({ run, events: [], timeMs: 0 }, { runs: 3, bytes: 2 ** 29 });
  }
  const { runs } = bench.runs.catalog.list(OWNER, { states: new Set(), limit: 100, before: undefined });
  expect(runs.map(({ run }) => run.settings.name)).toEqual(["9", "8", "7", ""]);
  expect(runs.at(-1)?.run.runId).toBe(first);
});

describe("the bytes of an owner's runs are bounded:", () => {
  const RESULT = "x".repeat(10_000);
  const report = (bench: RunBench, runId: string, more: Partial<StepReport>) =>
    reasonOf(finish(bench, runId, { result: RESULT, ...more }));

  async function full(): Promise<{ bench: RunBench; runIds: string[] }> {
    const bench = await RunBench.start();
    bench.maxBytesPerOwner = 215_000;
    await bench.restart();
    const runIds: string[] = [];
    for (let i = 0; i < 5; i++)
      runIds.push(await running(bench, { sandbox: { kind: "none" }, maxSteps: 10, stepTimeoutMs: 1e6 }));
    for (const runId of runIds) expect(await report(bench, runId, { outcome: "CONTINUE" })).toBe("none");
    return { bench, runIds };
  }

  test("the oldest ended runs are removed, and their watches end", async () => {
    const { bench, runIds } = await full();
    const [first = "", second = "", third = ""] = runIds;
    for (const runId of [second, third])
      expect(await report(bench, runId, { step: 2, result: "" })).toBe("none");
    const watch = bench.runs.catalog.watch(OWNER, second, 5, never);
    const end = watch.next();
    for (const step of [2, 3, 4])
      expect(await report(bench, first, { step, outcome: "CONTINUE" })).toBe("none");
    const left = (): string[] => runIds.filter((runId) => bench.store.runs.get(OWNER, runId) !== undefined);
    expect(left()).toEqual(runIds.filter((runId) => runId !== second));
    expect(await Promise.race([end, settled().then(() => "still watching")])).toEqual({ done: true });
  });

  test("if none has ended, a report, a start and a create are refused, and nothing changes", async () => {
    const { bench, runIds } = await full();
    const [first = "", second = "", third = ""] = runIds;
    const idle = create(bench, { sandbox: { kind: "made", spec: {} } });
    for (const runId of [first, second])
      expect(await report(bench, runId, { step: 2, outcome: "CONTINUE" })).toBe("none");
    const before = bench.runs.catalog.get(OWNER, third);
    expect(await report(bench, third, { step: 2, outcome: "CONTINUE" })).toBe("NO_SPACE");
    expect(bench.runs.catalog.get(OWNER, third)).toEqual(before);
    expect(bench.runs.catalog.find(OWNER, idle).phase.state).toBe("IDLE");
    expect(() => create(bench, { nextStepPrompt: "x".repeat(50_000) })).toThrow("--run-owner-quota");
    const small = create(bench);
    expect(await reasonOf(bench.runs.start(OWNER, small, "x".repeat(50_000), never))).toBe("NO_SPACE");
    expect(bench.runs.catalog.find(OWNER, small).phase.state).toBe("IDLE");
    expect(bench.containers).toEqual([]);
    // The end of a run is always written, and frees space.
    await bench.runs.cancel(OWNER, first);
    expect(await report(bench, third, { step: 2, outcome: "CONTINUE" })).toBe("none");
  });

  test("a report that ends its run is accepted with its result, and the run then makes room", async () => {
    const { bench, runIds } = await full();
    const [first = "", second = "", third = ""] = runIds;
    for (const runId of [first, second])
      expect(await report(bench, runId, { step: 2, outcome: "CONTINUE" })).toBe("none");
    expect(await report(bench, third, { step: 2, outcome: "CONTINUE" })).toBe("NO_SPACE");
    expect(await report(bench, third, { step: 2, outcome: "FINISHED" })).toBe("none");
    const { run, steps } = bench.runs.catalog.get(OWNER, third);
    expect(run.phase).toMatchObject({ state: "FINISHED" });
    expect(steps.at(-1)?.result).toBe(RESULT);
    expect(await report(bench, first, { step: 3, outcome: "CONTINUE" })).toBe("none");
    expect(bench.store.runs.get(OWNER, third)).toBeUndefined();
  });
});

test("a cleanup that cannot read the database is repeated", async () => {
  const bench = await RunBench.start();
  const runId = await running(bench);
  bench.engine.before = async (step) => {
    if (step === "remove") throw new BerthError("ENGINE_UNAVAILABLE", "on purpose");
  };
  await bench.runs.cancel(OWNER, runId);
  const { get } = bench.store.runs;
  bench.store.runs.get = () => {
    throw new Error("disk I/O error");
  };
  await bench.clock.advance(5_000);
  bench.store.runs.get = get.bind(bench.store.runs);
  bench.engine.before = async () => {};
  expect(bench.runs.catalog.find(OWNER, runId).sandbox).toBeDefined();
  await bench.clock.advance(5_000);
  expect(bench.runs.catalog.find(OWNER, runId).sandbox).toBeUndefined();
});

test("a first step without messages finds repetitions in the whole conversation, however long", async () => {
  const bench = await RunBench.start();
  const runId = await running(bench, { sandbox: { kind: "none" }, maxSteps: 1, duplicateThreshold: 2 });
  const long = "x".repeat(600 * 1024);
  const messages = ["again", "again", long, long, "again"].map((content) => {
    return { role: "ASSISTANT" as const, content };
  });
  expect(await finish(bench, runId, { outcome: "CONTINUE", messages })).toMatchObject({ stuck: true });
  await bench.runs.start(OWNER, runId, undefined, never);
  expect(await finish(bench, runId, { outcome: "CONTINUE" })).toMatchObject({ stuck: true });
});

test("a report decrypts only those messages of a long conversation that it may repeat", async () => {
  const bench = await RunBench.start();
  const settings = { maxSteps: 100, duplicateThreshold: 2, stepTimeoutMs: 1e6 };
  const runId = await running(bench, { sandbox: { kind: "none" }, ...settings });
  let step = 1;
  const say = async (...contents: string[]): Promise<{ stuck: boolean; opened: number }> => {
    const messages = contents.map((content) => ({ role: "ASSISTANT" as const, content }));
    const open = vi.spyOn(Seal.prototype, "openText");
    onTestFinished(() => open.mockRestore());
    open.mockClear();
    const { stuck } = await finish(bench, runId, { step: step++, outcome: "CONTINUE", messages });
    return { stuck, opened: open.mock.calls.length };
  };
  await say(...Array.from({ length: 97 }, () => "a long message"), "short", "equal", "short");
  const repeated = await say("short");
  expect(repeated.stuck).toBe(true);
  const silent = await say();
  expect(silent.stuck).toBe(true);
  const other = await say("another");
  expect(other.stuck).toBe(false);
  expect(Math.max(repeated.opened, silent.opened, other.opened)).toBeLessThan(10);
  expect((await say()).stuck).toBe(false);
  expect((await say("a long message")).stuck).toBe(true);
});

test("a report opens no other message of its length, however long they are", async () => {
  const bench = await RunBench.start();
  const runId = await running(bench, { sandbox: { kind: "none" }, maxSteps: 100, stepTimeoutMs: 1e6 });
  let step = 1;
  const say = (...contents: string[]) =>
    finish(bench, runId, {
      step: step++,
      outcome: "CONTINUE",
      messages: contents.map((content) => ({ role: "ASSISTANT", content })),
    });
  const messages = Array.from({ length: 98 }, (_, index) => String(index).padStart(10_000));
  await say(...messages, messages[7] ?? "");
  const open = vi.spyOn(Seal.prototype, "openText");
  onTestFinished(() => open.mockRestore());
  expect((await say("another".padStart(10_000))).stuck).toBe(false);
  expect((await say(messages[7] ?? "")).stuck).toBe(true);
  const opened = open.mock.results.reduce((sum, { value }) => sum + String(value).length, 0);
  expect(opened).toBeLessThan(100_000);
});

test("a slow watcher of a run that is dropped gets the rest of its history, and then the end", async () => {
  const bench = await RunBench.start();
  bench.maxBytesPerOwner = 300_000;
  await bench.restart();
  const runId = await running(bench, { sandbox: { kind: "none" }, maxSteps: 300, stepTimeoutMs: 1e6 });
  for (let step = 1; step <= 150; step++)
    await finish(bench, runId, { step, outcome: step < 150 ? "CONTINUE" : "FINISHED" });
  const newest = bench.store.runs.newestEvent(runId);
  const watch = bench.runs.catalog.watch(OWNER, runId, 0, never);
  const items = [(await watch.next()).value];
  // This one does not fit, so nothing is removed.
  expect(() => create(bench, { nextStepPrompt: "x".repeat(300_000) })).toThrow("--run-owner-quota");
  while (bench.store.runs.get(OWNER, runId)) create(bench, { nextStepPrompt: "x".repeat(50_000) });
  for await (const item of watch) items.push(item);
  expect(items.map((item) => item.type === "event" && item.event.sequence)).toEqual(
    Array.from({ length: newest }, (_, index) => index + 1),
  );
  expect(items.at(-1)).toMatchObject({ event: { body: { type: "ENDED" } } });
});

test("an event is read once for all that wait for it, and they are woken in turns of the event loop", async () => {
  const bench = await RunBench.start();
  const runId = await running(bench, { sandbox: { kind: "none" } });
  const newest = bench.store.runs.newestEvent(runId);
  const order: string[] = [];
  const watch = async (): Promise<void> => {
    const items = bench.runs.catalog.watch(OWNER, runId, newest, never);
    const { value } = await items.next();
    order.push(value.event.body.type);
    for (const end = performance.now() + 6; performance.now() < end; );
  };
  const watchers = Array.from({ length: 4 }, watch);
  await settled();
  const events = vi.spyOn(bench.store.runs, "events");
  let isSeen = false;
  const turn = (): void => {
    order.push("turn");
    if (!isSeen) setImmediate(turn);
  };
  setImmediate(turn);
  await finish(bench, runId, { outcome: "CONTINUE" });
  await Promise.all(watchers);
  isSeen = true;
  expect(events).toHaveBeenCalledTimes(1);
  expect(order.filter((what) => what === "STEP_REPORTED")).toHaveLength(4);
  expect(order.join(" ")).not.toContain("STEP_REPORTED STEP_REPORTED");
});

test("of a long history, watchers of a run that is removed get the end", async () => {
  const bench = await RunBench.start();
  const runId = await running(bench, { sandbox: { kind: "none" }, maxSteps: 300, stepTimeoutMs: 1e6 });
  const result = "x".repeat(16 * 1024);
  for (let step = 1; step <= 200; step++) await finish(bench, runId, { step, outcome: "CONTINUE", result });
  const watch = bench.runs.catalog.watch(OWNER, runId, 0, never);
  await watch.next();
  const open = vi.spyOn(Seal.prototype, "openText");
  onTestFinished(() => open.mockRestore());
  await bench.runs.delete(OWNER, runId);
  expect(open.mock.calls.length).toBeLessThan(100);
  const items = [];
  for await (const item of watch) items.push(item);
  // What the watcher had read at once before, what is gone, and the newest.
  expect(items.filter(({ type }) => type === "trimmed")).toHaveLength(1);
  expect(items.length).toBeLessThan(150);
  expect(items.at(-1)).toMatchObject({ event: { body: { type: "DELETED" } } });
});

test("a watcher of a run that is dropped for newer ones gets its history, and then the end", async () => {
  const bench = await RunBench.start();
  const first = create(bench);
  const watch = bench.runs.catalog.watch(OWNER, first, 0, never);
  expect(await watch.next()).toMatchObject({ value: { event: { body: { type: "CREATED" } } } });
  const end = watch.next();
  bench.store.transaction(() => {
    for (let i = 0; i < 10_000; i++) create(bench);
  });
  expect(await Promise.race([end, settled().then(() => "still watching")])).toEqual({ done: true });
});

test("what a removed run leaves in the database is deleted soon, also if the service is killed before that", async () => {
  const bench = await RunBench.start();
  const removed = async (): Promise<string> => {
    const runId = await running(bench, { sandbox: { kind: "none" } });
    await finish(bench, runId, { result: "x".repeat(16 * 1024) });
    await bench.runs.delete(OWNER, runId);
    expect(bench.store.runs.get(OWNER, runId)).toBeUndefined();
    expect(bench.store.runs.steps(runId)).toHaveLength(1);
    return runId;
  };
  const first = await removed();
  await bench.clock.advance(1_000);
  expect(bench.store.runs.steps(first)).toEqual([]);
  const second = await removed();
  await bench.restart();
  expect(bench.store.runs.steps(second)).toHaveLength(1);
  await bench.clock.advance(1_000);
  expect(bench.store.runs.steps(second)).toEqual([]);
  expect(bench.store.runs.purge()).toBe(false);
});

test.each([
  ["start", (bench: RunBench, runId: string) => bench.runs.start(OWNER, runId, undefined, never)],
  ["reset", (bench: RunBench, runId: string) => bench.runs.reset(OWNER, runId)],
])("a %s of a run with many steps deletes them in turns of the event loop", async (_, act) => {
  const bench = await RunBench.start();
  const runId = create(bench, { sandbox: { kind: "none" } });
  const run = bench.runs.catalog.find(OWNER, runId);
  const step = { outcome: "CONTINUE", stuck: false, startTimeMs: 0, endTimeMs: 0 } as const;
  for (let number = 1; number <= 1_000; number++) {
    const addStep = { ...step, step: number, result: "x".repeat(16 * 1024) };
    bench.store.runs.save({ run, events: [], timeMs: 0, addStep });
  }
  let turns = 0;
  let isOver = false;
  const turn = (): void => {
    turns++;
    if (!isOver) setImmediate(turn);
  };
  setImmediate(turn);
  const { steps } = await act(bench, runId);
  isOver = true;
  expect(steps).toEqual([]);
  expect(bench.store.runs.steps(runId)).toEqual([]);
  // Of 16 MiB, 2 MiB in each.
  expect(turns).toBeGreaterThan(6);
});

test("whatever happens concurrently, nothing is left in the end", async () => {
  const random = seededRandom(7);
  const pick = <T>(items: readonly T[]): T => items[Math.floor(random() * items.length)] as T;
  for (let round = 0; round < scaled(300, 30); round++) {
    const bench = await RunBench.start();
    bench.engine.before = async () => {
      for (let turns = Math.floor(random() * 5); turns > 0; turns--) await settled();
      if (random() < 0.05) throw new BerthError("ENGINE_UNAVAILABLE", "on purpose");
    };
    const ids = Array.from({ length: 4 }, () => create(bench, { stepTimeoutMs: 10_000 }));
    const work: Promise<string>[] = [];
    for (let i = 0; i < 60; i++) {
      const runId = pick(ids);
      const act = pick(["start", "start", "report", "report", "cancel", "reset", "wait", "delete"] as const);
      if (act === "wait") await bench.clock.advance(pick([1, 1_000, 10_000]));
      else if (act === "start") work.push(reasonOf(bench.runs.start(OWNER, runId, undefined, never)));
      else if (act === "report")
        work.push(reasonOf(finish(bench, runId, { outcome: pick(["CONTINUE", "FINISHED"]) })));
      else if (act !== "delete") work.push(reasonOf(Promise.try(() => bench.runs[act](OWNER, runId))));
      else if (random() < 0.2) work.push(reasonOf(bench.runs.delete(OWNER, runId)));
    }
    bench.engine.before = async () => {};
    for (let i = 0; i < 20; i++) await bench.clock.advance(5_000);
    const refusals = new Set(await Promise.all(work));
    for (const known of ["none", "RUN_STATE", "RUN_NOT_FOUND", "ENGINE_UNAVAILABLE", "CANCELED"])
      refusals.delete(known);
    expect([...refusals]).toEqual([]);
    expect(bench.containers).toEqual([]);
    expect(bench.store.runs.unsettled()).toEqual([]);
    expect(bench.clock.pending).toBeLessThan(6);
    expect(bench.log.errors).toEqual([]);
  }
});
