import { describe, expect, test } from "vitest";
import type { SandboxEventBody } from "../../../src/sandboxes/sandbox.ts";
import { EventLog, type WatchItem } from "../../../src/state/event-log.ts";
import { ManualClock } from "../../support/manual-clock.ts";
import { memoryStore } from "../../support/memory-store.ts";

const KEEP = 20;

function newLog(store = memoryStore(), clock = new ManualClock(), keep = KEEP) {
  const log = new EventLog(clock, store.events, keep);
  const append = (count: number, sandboxId = "x", owner = "me"): void => {
    for (let i = 0; i < count; i++) {
      const event = log.eventOf({ sandboxId, generation: 1, owner }, { type: "UPDATED" });
      log.store(event);
      log.publish(event);
    }
  };
  const watch = (afterSequence: number, more: { owner?: string; sandboxId?: string } = {}) => {
    const stop = new AbortController();
    const filter = { owner: "me", sandboxId: undefined, ...more, afterSequence };
    return { items: log.watch(filter, stop.signal), stop };
  };
  return { log, append, watch, store };
}

type Log = ReturnType<typeof newLog>;

/** The items that a watcher gets without waiting. */
async function now(
  { watch }: Log,
  afterSequence: number,
  more: { owner?: string } = {},
): Promise<WatchItem<SandboxEventBody>[]> {
  const { items, stop } = watch(afterSequence, more);
  const taken: WatchItem<SandboxEventBody>[] = [];
  for (;;) {
    const next = items.next();
    const turn = new Promise<undefined>((resolve) => setImmediate(resolve, undefined));
    const item = await Promise.race([next, turn]);
    if (item === undefined || item.done) {
      stop.abort();
      await next.catch(() => {});
      return taken;
    }
    taken.push(item.value);
  }
}

async function take(
  items: AsyncGenerator<WatchItem<SandboxEventBody>>,
  count: number,
): Promise<WatchItem<SandboxEventBody>[]> {
  const taken: WatchItem<SandboxEventBody>[] = [];
  while (taken.length < count) {
    const { value, done } = await items.next();
    if (done) break;
    taken.push(value);
  }
  return taken;
}

const sequences = (items: readonly WatchItem<SandboxEventBody>[]) =>
  items.map((item) => (item.type === "event" ? item.event.sequence : [item.from, item.to]));

describe("a watcher", () => {
  test("gets the history after its position, then new events", async () => {
    const { append, watch } = newLog();
    append(5);
    const { items, stop } = watch(2);
    expect(sequences(await take(items, 3))).toEqual([3, 4, 5]);
    const next = take(items, 2);
    append(2);
    expect(sequences(await next)).toEqual([6, 7]);
    stop.abort();
  });

  test("learns what was dropped before it started", async () => {
    const { append, watch } = newLog();
    append(100);
    const { items } = watch(10);
    const [trimmed, first, ...rest] = await take(items, KEEP);
    const oldest = first?.type === "event" ? first.event.sequence : 0;
    expect(trimmed).toEqual({ type: "trimmed", from: 11, to: oldest - 1 });
    expect(100 - oldest).toBeGreaterThanOrEqual(KEEP - 1);
    expect(sequences(rest)).toEqual(rest.map((_, index) => oldest + 1 + index));
  });

  test("that falls behind learns what it missed, once, and continues", async () => {
    const { append, watch } = newLog();
    append(3);
    const { items } = watch(0);
    expect(sequences(await take(items, 2))).toEqual([1, 2]);
    append(500);
    const [trimmed, ...rest] = await take(items, 15);
    expect(trimmed).toMatchObject({ type: "trimmed", from: 3 });
    const from = trimmed?.type === "trimmed" ? trimmed.to + 1 : 0;
    expect(sequences(rest)).toEqual(rest.map((_, index) => from + index));
  });

  test("that keeps up misses nothing, however much is dropped after it has read it", async () => {
    const { append, watch } = newLog();
    const { items } = watch(0);
    for (let i = 0; i < 300; i++) {
      append(1);
      expect(sequences(await take(items, 1))).toEqual([i + 1]);
    }
  });

  test("gets events only of its owner's sandboxes, or only of the one that it names", async () => {
    const { append, watch } = newLog();
    append(1, "mine");
    append(1, "mine", "somebody");
    append(1, "other");
    append(1, "mine");
    expect(sequences(await take(watch(0).items, 3))).toEqual([1, 3, 4]);
    expect(sequences(await take(watch(0, { sandboxId: "mine" }).items, 2))).toEqual([1, 4]);
    expect(sequences(await take(watch(0, { owner: "somebody" }).items, 1))).toEqual([2]);
  });

  test("ends with its signal's reason, and is forgotten", async () => {
    const { log, watch } = newLog();
    const { items, stop } = watch(0);
    const waiting = items.next();
    await Promise.resolve();
    expect(log.watchers).toBe(1);
    stop.abort();
    await expect(waiting).rejects.toMatchObject({ reason: "CANCELED" });
    expect(log.watchers).toBe(0);
  });

  test("that waits is woken in turns of the event loop, because thousands may wait", async () => {
    const { append, watch } = newLog();
    const order: string[] = [];
    const watchers = Array.from({ length: 4 }, async () => {
      await watch(0).items.next();
      order.push("watcher");
      for (const end = performance.now() + 6; performance.now() < end; );
    });
    // The next turn is nobody's yet.
    await new Promise((resolve) => setImmediate(resolve));
    let isSeen = false;
    const turn = (): void => {
      order.push("turn");
      if (!isSeen) setImmediate(turn);
    };
    setImmediate(turn);
    append(1);
    await Promise.all(watchers);
    isSeen = true;
    expect(order.filter((what) => what === "watcher")).toHaveLength(4);
    expect(order.join(" ")).not.toContain("watcher watcher");
  });

  test("from a position that was never reached is refused", async () => {
    const { append, watch } = newLog();
    append(3);
    await expect(watch(4).items.next()).rejects.toMatchObject({ reason: "OFFSET_OUT_OF_RANGE" });
    const { items, stop } = watch(3);
    const waiting = items.next();
    append(1);
    expect(sequences([(await waiting).value as WatchItem<SandboxEventBody>])).toEqual([4]);
    stop.abort();
  });
});

describe("an owner's flood of events", () => {
  test("does not push out another's, and nobody else learns what it pushed out", async () => {
    const log = newLog();
    log.append(3, "theirs", "another");
    log.append(200, "mine");
    log.append(1, "theirs", "another");
    expect(sequences(await now(log, 0, { owner: "another" }))).toEqual([1, 2, 3, 204]);
    const [trimmed, ...rest] = await now(log, 0);
    const oldest = rest[0]?.type === "event" ? rest[0].event.sequence : 0;
    expect(trimmed).toEqual({ type: "trimmed", from: 1, to: oldest - 1 });
    expect(rest).toHaveLength(204 - oldest);
  });

  test("is recorded as such across a restart", async () => {
    const first = newLog();
    first.append(3, "theirs", "another");
    first.append(200, "mine");
    first.append(2, "theirs", "another");
    const wanted = await now(first, 10);
    // The service was killed. Everything it wrote is still there.
    const next = newLog(first.store);
    expect(sequences(await now(next, 0, { owner: "another" }))).toEqual([1, 2, 3, 204, 205]);
    expect(await now(next, 10)).toEqual(wanted);
    expect(first.store.events.load().length).toBeLessThanOrEqual(KEEP * 1.25);
  });

  test("that is shared leaves each of them an equal share", async () => {
    const log = newLog();
    for (let i = 0; i < 100; i++) for (const owner of ["a", "b", "c", "me"]) log.append(1, "x", owner);
    for (const owner of ["a", "b", "c", "me"]) {
      const items = await now(log, 0, { owner });
      expect(items.filter(({ type }) => type === "event").length).toBeGreaterThanOrEqual(KEEP / 4);
    }
  });
});

describe("an event that cannot be stored", () => {
  const event = (log: Log, sandboxId: string) =>
    log.log.eventOf({ sandboxId, generation: 1, owner: "me" }, { type: "UPDATED" });
  const ids = (items: readonly WatchItem<SandboxEventBody>[]) =>
    items.map((item) => (item.type === "event" ? item.event.sandboxId : item.type));

  test("is published once it is stored, in the order in which things happened", async () => {
    const log = newLog();
    log.append(1, "before");
    log.log.defer(event(log, "waits-1"));
    log.log.defer(event(log, "waits-2"));
    expect(ids(await now(log, 0))).toEqual(["before"]);
    log.append(1, "after");
    expect(ids(await now(log, 0))).toEqual(["before", "waits-1", "waits-2", "after"]);
    expect(sequences(await now(log, 0))).toEqual([1, 2, 3, 4]);
    expect(await now(newLog(log.store), 0)).toEqual(await now(log, 0));
  });

  test("among thousands is stored with a part of them, and nothing is stored before them", async () => {
    const log = newLog(memoryStore(), new ManualClock(), 1_200);
    log.append(1, "before");
    for (let i = 0; i < 1_205; i++) log.log.defer(event(log, `waits-${i}`));
    const stored = (): number => log.store.events.load().length;
    expect(() => log.append(1, "after")).toThrow("Many events are not stored yet");
    const counts: number[] = [];
    for (; log.log.waits; log.log.publish()) {
      counts.push(stored());
      log.log.store();
      // What cannot wait is lost with what was lost before, which has one place.
      log.log.defer(event(log, "late"));
    }
    expect(counts).toEqual([1, 501, 1_001]);
    log.append(1, "after");
    const waited = Array.from({ length: 1_200 }, (_, index) => `waits-${index}`);
    expect(ids(await now(log, 0))).toEqual(["before", ...waited, "trimmed", "after"]);
    expect(await now(newLog(log.store, new ManualClock(), 1_200), 0)).toEqual(await now(log, 0));
  });

  test("uses up no number if the service is killed: no two published events have the same", async () => {
    const first = newLog();
    first.append(2);
    first.log.defer(event(first, "never-published"));
    const told = await now(first, 0);
    const next = newLog(first.store);
    next.append(1, "next");
    expect(sequences(told)).toEqual([1, 2]);
    expect(ids(await now(next, 2))).toEqual(["next"]);
  });

  test("together with many more: those that cannot wait are reported as a loss", async () => {
    const log = newLog();
    for (let i = 0; i < KEEP + 5; i++) log.log.defer(event(log, `${i}`));
    log.append(1, "after");
    const items = await now(log, 0);
    expect(items.filter(({ type }) => type === "trimmed")).not.toEqual([]);
    log.append(1, "later");
    expect(ids(await now(log, 0)).slice(-2)).toEqual(["trimmed", "later"]);
    expect(await now(newLog(log.store), 0)).toEqual(await now(log, 0));
  });
});

describe("after a restart", () => {
  const otherBoot = (): ManualClock => Object.assign(new ManualClock(), { bootId: "another" });

  test("of a service that was killed, events continue where they were", async () => {
    const first = newLog();
    first.append(5);
    const next = newLog(first.store);
    next.append(1);
    expect(sequences(await now(next, 4))).toEqual([5, 6]);
    await expect(newLog(first.store).watch(7).items.next()).rejects.toMatchObject({
      reason: "OFFSET_OUT_OF_RANGE",
    });
  });

  test("of a machine that lost its power, no number that may have been published is used again", async () => {
    const first = newLog();
    first.append(5);
    // Events 6 and 7 were lost from the disk, but a watcher has seen them.
    const next = newLog(first.store, otherBoot());
    next.append(1, "next");
    const [trimmed, ...rest] = await now(next, 5);
    expect(trimmed).toMatchObject({ type: "trimmed", from: 6 });
    const to = trimmed?.type === "trimmed" ? trimmed.to : 0;
    expect(to).toBeGreaterThan(1_000);
    expect(sequences(rest)).toEqual([to + 1]);
    expect(sequences(await now(next, 7))).toEqual([[8, to], to + 1]);
    // The loss is recorded from then on.
    const third = newLog(first.store, otherBoot());
    expect(sequences(await now(third, 4))).toEqual([5, [6, to], to + 1]);
  });

  test("of a machine that was shut down properly, nothing is reported as lost", async () => {
    const first = newLog();
    first.append(5);
    first.log.close();
    const next = newLog(first.store, otherBoot());
    next.append(1);
    expect(sequences(await now(next, 4))).toEqual([5, 6]);
  });

  test("of a machine that loses power repeatedly, the oldest losses are merged", async () => {
    const store = memoryStore();
    for (let i = 0; i < 250; i++) {
      const clock = Object.assign(new ManualClock(), { bootId: `boot ${i}` });
      newLog(store, clock, 1_000).append(1, `${i}`);
    }
    expect(store.events.losses().length).toBeLessThanOrEqual(100);
    const log = newLog(store, Object.assign(new ManualClock(), { bootId: "last" }), 1_000);
    const items = await now(log, 0);
    let next = 1;
    for (const item of items) {
      const [from, to] =
        item.type === "event" ? [item.event.sequence, item.event.sequence] : [item.from, item.to];
      expect(from).toBe(next);
      next = to + 1;
    }
    expect(items.filter(({ type }) => type === "event").length).toBeGreaterThan(90);
  });
});
