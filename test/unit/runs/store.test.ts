import { expect, test } from "vitest";
import type { Run, RunMessage, RunState } from "../../../src/runs/run.ts";
import { RunStore } from "../../../src/runs/store.ts";
import { Database } from "../../../src/state/database.ts";
import { MIGRATIONS, migrate, RUN_BYTES_SCHEMA, RUN_LISTS_SCHEMA } from "../../../src/state/schema.ts";
import { memoryDatabase } from "../../support/memory-database.ts";

const KEEP = 10_000;
const BYTES = 2 ** 29;

function newRun(number: number, state: RunState = "IDLE", owner = "me"): Run {
  const end = { outcome: "FINISHED", message: "", timeMs: 0 } as const;
  return {
    runId: `run_${owner}_${number}`,
    owner,
    settings: { onEnd: "KEEP", sandbox: { kind: "none" }, name: "" } as unknown as Run["settings"],
    createTimeMs: number,
    phase: (state === "IDLE" ? { state, end: undefined } : { state, step: 1, end }) as Run["phase"],
    startId: "",
    startTimeMs: undefined,
    lastReport: undefined,
    sandbox: undefined,
  };
}

function newStore() {
  const database = memoryDatabase();
  const store = new RunStore(database);
  let number = 0;
  const add = (state?: RunState, owner?: string, keep = KEEP): unknown =>
    store.add({ run: newRun(number++, state, owner), events: [], timeMs: 0 }, { runs: keep, bytes: BYTES });
  const numbers = (states: readonly RunState[] = [], owner = "me"): number[] =>
    store
      .list({ owner, states: new Set(states), limit: 100, before: undefined })
      .runs.map(({ run }) => run.createTimeMs);
  return { database, store, add, numbers };
}

/** The shortest of many measured times in milliseconds: the time it takes without disturbance. */
function leastMs(act: () => void): number {
  const times = Array.from({ length: 50 }, () => {
    const begin = performance.now();
    act();
    return performance.now() - begin;
  });
  return Math.min(...times);
}

test("with 10,000 runs a create and a list, filtered or not, take as long as with 100", () => {
  const { database, store, add } = newStore();
  const list = (states: RunState[]) => () =>
    void store.list({ owner: "me", states: new Set(states), limit: 10, before: undefined });
  const costs = (): Record<string, number> => ({
    create: leastMs(add),
    "list of all": leastMs(list([])),
    "list of none": leastMs(list(["ERROR"])),
    "list of few": leastMs(list(["FINISHED", "ERROR"])),
  });
  for (let i = 0; i < 10; i++) add("FINISHED");
  for (let i = 0; i < 50; i++) add();
  const few = costs();
  const count = database.prepare("SELECT count(*) AS number FROM runs");
  while (Number(count.get()?.number) < KEEP) {
    for (let i = 0; i < 1_000; i++) add();
  }
  // From now on the oldest runs are dropped.
  const many = costs();
  for (const [what, ms] of Object.entries(many)) {
    // Without an index they take 20 to 100 times as long.
    expect(ms, what).toBeLessThan(5 * (few[what] ?? 0) + 0.05);
  }
});

test("a list of several states is in order, and continues where it was", () => {
  const { store, add, numbers } = newStore();
  const states = ["IDLE", "FINISHED", "ERROR"] as const;
  for (let i = 0; i < 12; i++) add(states[i % 3]);
  expect(numbers(["ERROR", "FINISHED"])).toEqual([11, 10, 8, 7, 5, 4, 2, 1]);
  const first = store.list({ owner: "me", states: new Set(["ERROR", "IDLE"]), limit: 3, before: undefined });
  expect(first.runs.map(({ run }) => run.createTimeMs)).toEqual([11, 9, 8]);
  store.remove(first.runs.at(-1)?.run.runId ?? "");
  const before = first.runs.at(-1)?.position;
  const second = store.list({ owner: "me", states: new Set(["ERROR", "IDLE"]), limit: 3, before });
  expect(second.runs.map(({ run }) => run.createTimeMs)).toEqual([6, 5, 3]);
});

test("a list of large runs is short, in any state, and continues where it was", () => {
  const { store } = newStore();
  const states = ["IDLE", "FINISHED", "ERROR"] as const;
  for (let number = 0; number < 30; number++) {
    const run = newRun(number, states[number % 3]);
    const settings = { ...run.settings, nextStepPrompt: "x".repeat(300_000) };
    store.add({ run: { ...run, settings }, events: [], timeMs: 0 }, { runs: KEEP, bytes: BYTES });
  }
  for (const asked of [[], ["IDLE", "ERROR"], [...states]] as const) {
    const found: number[] = [];
    for (let before: number | undefined, more = true; more; ) {
      const page = store.list({ owner: "me", states: new Set<RunState>(asked), limit: 100, before });
      expect(page.runs.length).toBeGreaterThan(0);
      expect(page.runs.length).toBeLessThan(25);
      found.push(...page.runs.map(({ run }) => run.createTimeMs));
      before = page.runs.at(-1)?.position;
      more = page.more;
    }
    const isAsked = (number: number): boolean =>
      asked.length === 0 || asked.some((state) => state === states[number % 3]);
    const all = Array.from({ length: 30 }, (_, index) => 29 - index);
    expect(found).toEqual(all.filter(isAsked));
  }
});

test("of long steps and messages the newest are read, and skipping those reads the others", () => {
  const { store, add } = newStore();
  add();
  const run = newRun(0);
  const result = "é".repeat(8 * 1024);
  for (let step = 1; step <= 1_000; step++) {
    const addStep = {
      step,
      result,
      outcome: "CONTINUE",
      stuck: false,
      startTimeMs: 0,
      endTimeMs: 0,
    } as const;
    store.save({ run, events: [], timeMs: 0, addStep });
  }
  const contents = Array.from({ length: 100 }, (_, index) => `${index} `.padEnd(256 * 1024, "x"));
  const addMessages = contents.map((content) => ({ role: "USER", content }) as const);
  store.save({ run, events: [], timeMs: 0, addMessages });

  const steps = store.steps(run.runId).map(({ step }) => step);
  expect(steps).toEqual(Array.from(steps, (_, index) => 1_000 - steps.length + 1 + index));
  expect(steps.length).toBeGreaterThan(50);
  expect(steps.length).toBeLessThan(65);
  const read: string[] = [];
  while (read.length < 100) {
    const part = store.messages(run.runId, read.length).map(({ content }) => content);
    expect(part.length).toBeGreaterThan(0);
    expect(part.length).toBeLessThan(6);
    read.unshift(...part);
  }
  expect(read).toEqual(contents);
  expect(store.messages(run.runId, 100)).toEqual([]);
});

test("the newest of an owner's settled runs are kept, in any state, and no other owner's are dropped", () => {
  const { database, store, add, numbers } = newStore();
  add("IDLE", "another");
  for (let i = 1; i <= 5; i++) add("IDLE", "me", 3);
  expect(numbers()).toEqual([5, 4, 3]);
  const running = newRun(4);
  store.save({
    run: { ...running, phase: { state: "RUNNING", step: 1 } as Run["phase"] },
    events: [],
    timeMs: 0,
  });
  store.remove("run_me_3");
  for (let i = 6; i <= 7; i++) add("IDLE", "me", 3);
  expect(numbers()).toEqual([7, 6, 5, 4]);
  add("IDLE", "me", 3);
  expect(numbers()).toEqual([8, 7, 6, 4]);
  // It is settled again, and is now the oldest.
  store.save({ run: running, events: [], timeMs: 0 });
  add("IDLE", "me", 3);
  expect(numbers()).toEqual([9, 8, 7]);
  expect(numbers([], "another")).toEqual([0]);
  expect(database.prepare("SELECT owner, settled FROM run_counts ORDER BY owner").all()).toEqual([
    { owner: "another", settled: 1 },
    { owner: "me", settled: 3 },
  ]);
});

test("runs of a database from before the counters are counted", () => {
  const database = Database.open(":memory:");
  const before = MIGRATIONS.slice(0, MIGRATIONS.indexOf(RUN_LISTS_SCHEMA));
  for (const migration of before) database.exec(migration);
  database.exec(`PRAGMA user_version = ${before.length}`);
  const insert = database.prepare(
    "INSERT INTO runs (run_id, owner, state, unsettled, record) VALUES (?, 'me', ?, ?, ?)",
  );
  for (let i = 0; i < 4; i++) insert.run(`run_me_${i}`, "IDLE", 0, JSON.stringify(newRun(i)));
  insert.run("run_me_4", "RUNNING", 1, JSON.stringify(newRun(4)));
  migrate(database);
  const store = new RunStore(database);
  store.add({ run: newRun(5), events: [], timeMs: 0 }, { runs: 3, bytes: BYTES });
  const kept = store.list({ owner: "me", states: new Set(), limit: 10, before: undefined });
  expect(kept.runs.map(({ run }) => run.createTimeMs)).toEqual([5, 4, 3, 2]);
});

/** What each owner's runs take, added up row by row. */
function sizes(database: Database): Record<string, number> {
  const rows = database.prepare(
    `SELECT owner, sum(octet_length(record)
       + (SELECT coalesce(sum(octet_length(record)), 0) FROM run_steps WHERE run_steps.run_id = runs.run_id)
       + (SELECT coalesce(sum(octet_length(content)), 0) FROM run_messages WHERE run_messages.run_id = runs.run_id)
       + (SELECT coalesce(sum(octet_length(record)), 0) FROM run_events WHERE run_events.run_id = runs.run_id)
     ) AS bytes FROM runs GROUP BY owner`,
  );
  return Object.fromEntries(rows.all().map(({ owner, bytes }) => [String(owner), Number(bytes)]));
}

function countedSizes(database: Database): Record<string, number> {
  const rows = database.prepare("SELECT owner, bytes FROM run_counts WHERE bytes <> 0");
  return Object.fromEntries(rows.all().map(({ owner, bytes }) => [String(owner), Number(bytes)]));
}

/** Steps, messages and events of many runs, some of which go again. */
function change(store: RunStore): void {
  for (let number = 0; number < 20; number++) {
    const run = newRun(number, number % 2 ? "IDLE" : "FINISHED", number % 3 ? "me" : "another");
    store.add({ run, events: [{ type: "CREATED" }], timeMs: 0 }, { runs: 5, bytes: BYTES });
    for (let step = 1; step <= 5; step++) {
      const settings = { ...run.settings, name: "n".repeat(step) };
      const addStep = { step, result: "é".repeat(step * 100), outcome: "CONTINUE", stuck: false } as const;
      store.save({
        run: { ...run, settings },
        events: [{ type: "STARTED" }],
        timeMs: 0,
        addStep: { ...addStep, startTimeMs: 0, endTimeMs: 0 },
        addMessages: Array.from({ length: 30 }, () => ({ role: "USER", content: "text".repeat(step) })),
      });
    }
    if (number % 4 === 0) store.save({ run, events: [], timeMs: 0, clearSteps: true, clearMessages: true });
    if (number % 5 === 0) store.remove(run.runId);
  }
}

test("the bytes of an owner's runs are counted, whatever comes and goes", () => {
  const { database, store } = newStore();
  change(store);
  const { "": removed, ...left } = sizes(database);
  expect(removed).toBeGreaterThan(0);
  expect(Object.keys(left)).toEqual(["another", "me"]);
  expect(countedSizes(database)).toEqual(left);
  while (store.purge());
  expect(sizes(database)).toEqual(left);
  expect(countedSizes(database)).toEqual(left);
});

test("what removed runs leave is deleted a part at a time, and nobody finds it meanwhile", () => {
  const { database, store, numbers } = newStore();
  const maxBytes = 8 * 2 ** 20;
  const [content, result] = ["x".repeat(256 * 1024), "x".repeat(16 * 1024)];
  for (let number = 0; number < 4; number++) {
    const run = newRun(number);
    store.add({ run, events: [{ type: "CREATED" }], timeMs: 0 }, { runs: KEEP, bytes: BYTES });
    const step = {
      step: 0,
      result,
      outcome: "CONTINUE",
      stuck: false,
      startTimeMs: 0,
      endTimeMs: 0,
    } as const;
    for (let each = 0; each < 8; each++) {
      const addStep = { ...step, step: each };
      const events = [{ type: "STEP_REPORTED", step: addStep } as const];
      store.save({ run, events, timeMs: 0, addStep, addMessages: [{ role: "USER", content }] });
    }
  }
  const left = () => Object.values(sizes(database)).reduce((sum, bytes) => sum + bytes, 0);
  const before = left();
  expect(store.save({ run: newRun(3), events: [], timeMs: 0 }, maxBytes)).toHaveLength(2);
  store.remove(newRun(2).runId);
  expect(left()).toBe(before);
  expect(numbers()).toEqual([3]);
  expect(store.get("me", newRun(0).runId)).toBeUndefined();
  expect(store.newestEvent(newRun(0).runId)).toBe(0);
  expect(store.unsettled()).toEqual([]);

  const purged: number[] = [];
  for (let last = left(), more = true; more; last = left()) {
    more = store.purge();
    purged.push(last - left());
  }
  expect(purged.length).toBeGreaterThan(3);
  expect(Math.max(...purged)).toBeLessThan(3 * 2 ** 20);
  expect(numbers()).toEqual([3]);
  expect(Object.keys(sizes(database))).toEqual(["me"]);
  expect(countedSizes(database)).toEqual(sizes(database));
  expect(store.messageCount(newRun(3).runId)).toBe(8);
});

test("many steps that are about to be cleared are deleted a part at a time, and few all at once", () => {
  const { database, store, add } = newStore();
  add();
  const run = newRun(0);
  const step = { outcome: "CONTINUE", stuck: false, startTimeMs: 0, endTimeMs: 0 } as const;
  for (let number = 1; number <= 300; number++) {
    const addStep = { ...step, step: number, result: "x".repeat(16 * 1024) };
    store.save({ run, events: [], timeMs: 0, addStep });
  }
  const left = (): number => Object.values(sizes(database)).reduce((sum, bytes) => sum + bytes, 0);
  const cleared: number[] = [];
  for (let last = left(); store.clearSomeSteps(run.runId); last = left()) cleared.push(last - left());
  expect(cleared.length).toBeGreaterThan(2);
  expect(Math.max(...cleared)).toBeLessThan(3 * 2 ** 20);
  expect(left()).toBeLessThan(3 * 2 ** 20);
  expect(store.steps(run.runId).at(-1)).toMatchObject({ step: 300 });
  expect(countedSizes(database)).toEqual(sizes(database));
});

test("runs of a database from before their bytes were counted are counted", () => {
  const database = Database.open(":memory:");
  const before = MIGRATIONS.indexOf(RUN_BYTES_SCHEMA);
  for (const migration of MIGRATIONS.slice(0, before)) database.exec(migration);
  database.exec(`PRAGMA user_version = ${before}`);
  const add = database.prepare(
    "INSERT INTO runs (run_id, owner, state, unsettled, record) VALUES (?, ?, 'IDLE', 0, ?)",
  );
  const addStep = database.prepare("INSERT INTO run_steps (run_id, step, record) VALUES (?, ?, ?)");
  const addMessage = database.prepare(
    "INSERT INTO run_messages (run_id, role, content) VALUES (?, 'USER', ?)",
  );
  for (let i = 0; i < 4; i++) {
    const runId = `run_${i}`;
    add.run(runId, i % 2 ? "me" : "another", JSON.stringify(newRun(i)));
    for (let step = 1; step <= i; step++) addStep.run(runId, step, "é".repeat(10 * step));
    addMessage.run(runId, "text");
  }
  migrate(database);
  expect(countedSizes(database)).toEqual(sizes(database));
  const store = new RunStore(database);
  store.remove("run_3");
  store.purge();
  expect(countedSizes(database)).toEqual(sizes(database));
});

test("messages that an earlier version stored are compared like others", () => {
  const { database, store } = newStore();
  const run = newRun(1);
  store.add({ run, events: [], timeMs: 0 }, { runs: KEEP, bytes: BYTES });
  const add = (role: RunMessage["role"], content: string): unknown =>
    store.save({ run, events: [], timeMs: 0, addMessages: [{ role, content }] });
  add("ASSISTANT", "same");
  add("ASSISTANT", "that");
  database.exec("UPDATE run_messages SET digest = NULL");
  add("USER", "same");
  add("ASSISTANT", "that");
  add("ASSISTANT", "same");
  expect(store.messagesLike(run.runId, "same")).toEqual([
    { role: "ASSISTANT", content: "same" },
    { role: "ASSISTANT", content: "" },
    { role: "USER", content: "" },
    { role: "ASSISTANT", content: "" },
    { role: "ASSISTANT", content: "same" },
  ]);
});

test("of long events a few are read at once", () => {
  const { store } = newStore();
  const run = newRun(1);
  store.add({ run, events: [{ type: "CREATED" }], timeMs: 0 }, { runs: KEEP, bytes: BYTES });
  // Each takes six bytes in JSON.
  const result = "\u0001".repeat(16 * 1024);
  for (let number = 1; number <= 30; number++) {
    const step = {
      step: number,
      result,
      outcome: "CONTINUE",
      stuck: false,
      startTimeMs: 0,
      endTimeMs: 0,
    } as const;
    store.save({ run, events: [{ type: "STEP_REPORTED", step }], timeMs: 0 });
  }
  const sequences: number[] = [];
  for (;;) {
    const events = store.events(run.runId, sequences.at(-1) ?? 0, 100);
    if (events.length === 0) break;
    // What a watcher that stopped reading holds.
    expect(events.slice(0, -1).reduce((sum, event) => sum + JSON.stringify(event).length, 0)).toBeLessThan(
      65_536,
    );
    sequences.push(...events.map(({ sequence }) => sequence));
  }
  expect(sequences).toEqual(Array.from({ length: 31 }, (_, index) => index + 1));
  expect(store.newestEvents(run.runId).map(({ sequence }) => sequence)).toEqual(sequences.slice(-11));
});
