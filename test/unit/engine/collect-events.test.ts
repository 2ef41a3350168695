import { describe, expect, test } from "vitest";
import { collectEvents, type EventSink } from "../../../src/engine/collect-events.ts";
import type { EngineEvent } from "../../../src/engine/port.ts";

function removed(ref: string): EngineEvent {
  return { type: "removed", ref, sandboxId: ref };
}

/** A source to which one reader listens. */
class Source {
  sink: EventSink | undefined;

  readonly listen = (sink: EventSink): (() => void) => {
    this.sink = sink;
    return () => {
      this.sink = undefined;
    };
  };
}

describe("events of an engine", () => {
  test("are collected from the call on, and read in order", async () => {
    const source = new Source();
    const events = collectEvents(source.listen, new AbortController().signal);
    source.sink?.push(removed("a"));
    source.sink?.push(removed("b"));
    expect((await events.next()).value).toEqual(removed("a"));
    expect((await events.next()).value).toEqual(removed("b"));
    const third = events.next();
    source.sink?.push(removed("c"));
    expect((await third).value).toEqual(removed("c"));
    await events.return(undefined);
    expect(source.sink).toBeUndefined();
  });

  test("a failure of the source follows the events before it", async () => {
    const source = new Source();
    const events = collectEvents(source.listen, new AbortController().signal);
    source.sink?.push(removed("a"));
    source.sink?.fail(new Error("lost"));
    source.sink?.fail(new Error("lost again"));
    expect((await events.next()).value).toEqual(removed("a"));
    await expect(events.next()).rejects.toThrow(/^lost$/);
    expect(source.sink).toBeUndefined();
  });

  test("a reader that is too far behind fails after what it has not read", async () => {
    const source = new Source();
    const events = collectEvents(source.listen, new AbortController().signal);
    for (let at = 0; at < 100_001; at++) source.sink?.push(removed(String(at)));
    const read: string[] = [];
    const all = (async () => {
      for await (const event of events) read.push(event.ref);
    })();
    await expect(all).rejects.toThrow("too many events are unread");
    expect(read).toEqual(Array.from({ length: 100_000 }, (_, at) => String(at)));
  });

  test("end with the signal, also while the reader waits", async () => {
    const source = new Source();
    const over = new AbortController();
    const events = collectEvents(source.listen, over.signal);
    const next = events.next();
    over.abort();
    expect(await next).toEqual({ done: true, value: undefined });
    expect(source.sink).toBeUndefined();
  });

  test("nothing is collected for a signal that was aborted before", async () => {
    const source = new Source();
    const events = collectEvents(source.listen, AbortSignal.abort());
    expect(source.sink).toBeUndefined();
    expect((await events.next()).done).toBe(true);
  });
});
