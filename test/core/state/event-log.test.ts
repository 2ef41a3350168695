import { describe, expect, test } from "vitest";
import { EventLog, type WatchItem } from "../../../src/core/state/event-log.ts";
import { ManualClock } from "../../support/manual-clock.ts";
import { memoryStore } from "../../support/memory-store.ts";

const KEEP = 20;

function newLog() {
  const log = new EventLog(new ManualClock(), memoryStore().events, KEEP);
  const append = (count: number, sandboxId = "x", owner = "me"): void => {
    for (let i = 0; i < count; i++) {
      const event = log.next({ sandboxId, generation: 1, owner }, { type: "UPDATED" });
      log.store(event);
      log.tell(event);
    }
  };
  const watch = (afterSequence: number, more: { owner?: string; sandboxId?: string } = {}) => {
    const stop = new AbortController();
    const filter = { owner: "me", sandboxId: undefined, ...more, afterSequence };
    return { items: log.watch(filter, stop.signal), stop };
  };
  return { log, append, watch };
}

async function take(items: AsyncGenerator<WatchItem>, count: number): Promise<WatchItem[]> {
  const taken: WatchItem[] = [];
  while (taken.length < count) {
    const { value, done } = await items.next();
    if (done) break;
    taken.push(value);
  }
  return taken;
}

const sequences = (items: readonly WatchItem[]) =>
  items.map((item) => (item.type === "event" ? item.event.sequence : [item.from, item.to]));

describe("a watcher", () => {
  test("gets the history after its place, then what happens", async () => {
    const { append, watch } = newLog();
    append(5);
    const { items, stop } = watch(2);
    expect(sequences(await take(items, 3))).toEqual([3, 4, 5]);
    const next = take(items, 2);
    append(2);
    expect(sequences(await next)).toEqual([6, 7]);
    stop.abort();
  });

  test("is told what was dropped before it came", async () => {
    const { append, watch } = newLog();
    append(100);
    const { items } = watch(10);
    const [trimmed, first, ...rest] = await take(items, KEEP);
    const oldest = first?.type === "event" ? first.event.sequence : 0;
    expect(trimmed).toEqual({ type: "trimmed", from: 11, to: oldest - 1 });
    expect(100 - oldest).toBeGreaterThanOrEqual(KEEP - 1);
    expect(sequences(rest)).toEqual(rest.map((_, index) => oldest + 1 + index));
  });

  test("that falls behind is told what it missed, once, and goes on", async () => {
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

  test("that keeps up misses nothing, however much is dropped behind it", async () => {
    const { append, watch } = newLog();
    const { items } = watch(0);
    for (let i = 0; i < 300; i++) {
      append(1);
      expect(sequences(await take(items, 1))).toEqual([i + 1]);
    }
  });

  test("hears of its owner's sandboxes only, and of one where it names one", async () => {
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

  test("of a place that was never reached is refused", async () => {
    const { append, watch } = newLog();
    append(3);
    await expect(watch(4).items.next()).rejects.toMatchObject({ reason: "OFFSET_OUT_OF_RANGE" });
    const { items, stop } = watch(3);
    const waiting = items.next();
    append(1);
    expect(sequences([(await waiting).value as WatchItem])).toEqual([4]);
    stop.abort();
  });
});
