import { create } from "@bufbuild/protobuf";
import { createContextValues, type HandlerContext } from "@connectrpc/connect";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { WatchRunRequestSchema } from "../../../gen/ts/berth/v1/run_pb.js";
import { WatchEventsRequestSchema } from "../../../gen/ts/berth/v1/sandbox_pb.js";
import { RunHandler, type RunHandlerParts } from "../../../src/rpc/run-service.ts";
import { SandboxHandler, type SandboxHandlerParts } from "../../../src/rpc/sandbox-service.ts";

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

const context = { values: createContextValues(), signal: new AbortController().signal } as HandlerContext;
const KEEPALIVE_MS = 15_000;

/** The messages of watches of sandboxes and of runs, over the same history. */
const watches = {
  sandboxes: (watch: () => AsyncGenerator) => {
    const parts = { events: { watch }, keepaliveMs: KEEPALIVE_MS } as unknown as SandboxHandlerParts;
    return new SandboxHandler(parts).watchEvents(create(WatchEventsRequestSchema, {}), context);
  },
  runs: (watch: () => AsyncGenerator) => {
    const parts = { runs: { catalog: { watch } }, keepaliveMs: KEEPALIVE_MS } as unknown as RunHandlerParts;
    return new RunHandler(parts).watchRun(create(WatchRunRequestSchema, { runId: "run" }), context);
  },
};

const trimmed = { type: "trimmed", from: 1, to: 2 };

test.each(["sandboxes", "runs"] as const)(
  "a watch of %s without events starts with a keepalive",
  async (of) => {
    const happens = Promise.withResolvers<void>();
    const items = watches[of](async function* () {
      await happens.promise;
      yield trimmed;
      await new Promise(() => {});
    });
    const kinds: unknown[] = [];
    void (async () => {
      for await (const { item } of items) kinds.push(item?.case);
    })();
    await vi.advanceTimersByTimeAsync(10);
    expect(kinds).toEqual(["keepalive"]);
    happens.resolve();
    await vi.advanceTimersByTimeAsync(10);
    expect(kinds).toEqual(["keepalive", "trimmed"]);
    await vi.advanceTimersByTimeAsync(KEEPALIVE_MS);
    expect(kinds).toEqual(["keepalive", "trimmed", "keepalive"]);
  },
);

test.each(["sandboxes", "runs"] as const)("a watch of %s starts with an event that is there", async (of) => {
  const items = watches[of](async function* () {
    yield trimmed;
    await new Promise(() => {});
  });
  expect((await items.next()).value).toMatchObject({ item: { case: "trimmed" } });
  await items.return(undefined);
});
