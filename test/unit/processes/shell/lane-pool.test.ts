import { expect, onTestFinished, test } from "vitest";
import { Turns } from "../../../../src/base/turns.ts";
import type { Engine, OutputSink, SpawnRequest } from "../../../../src/engine/port.ts";
import { LanePool } from "../../../../src/processes/shell/lane-pool.ts";
import type { LeasedSandbox } from "../../../../src/sandboxes/lease.ts";
import { eventually } from "../../../support/eventually.ts";
import { settled } from "../../../support/manual-clock.ts";
import { MemoryLog } from "../../../support/memory-log.ts";

/** Opens pools of sandboxes whose shells never start. */
function open(count: number, turns: Turns) {
  const spawned: string[] = [];
  const engine = {
    outside: async () => undefined,
    spawn: (ref: string, _request: unknown, _sink: unknown, signal: AbortSignal) => {
      spawned.push(ref);
      return new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
    },
  } as unknown as Engine;
  const settings = { spare: 1, max: 16, idleMs: 60_000 };
  const pools = Array.from({ length: count }, (_, i) => {
    const spec = { resources: { pidsLimit: 512 } };
    const sandbox = { ref: `ref-${i}`, sandboxId: `sbx-${i}`, user: "", spec } as LeasedSandbox;
    return new LanePool(engine, sandbox, settings, new MemoryLog(), turns);
  });
  onTestFinished(() => {
    for (const pool of pools) pool.close();
  });
  return { spawned, pools };
}

test("lanes that nobody waits for are opened a few at a time, across all sandboxes", async () => {
  const { spawned, pools } = open(100, new Turns(16));
  expect(spawned).toHaveLength(16);
  // A command in a sandbox whose turn has not come gets its lane at once.
  const late = pools[99];
  const wanted = late?.take(AbortSignal.timeout(60_000));
  expect(spawned.slice(16)).toEqual(["ref-99"]);
  // Shells that do not start do not block turns for long.
  await eventually(() => spawned.length >= 32);
  late?.close();
  expect(await wanted).toBeUndefined();
});

test("a sandbox that ends gives up its turn", async () => {
  const { spawned, pools } = open(3, new Turns(1));
  pools[1]?.close();
  pools[0]?.close();
  await eventually(() => spawned.length > 1);
  expect(spawned).toEqual(["ref-0", "ref-2"]);
});

test("a spare lane is opened after a moment, so that a command can get its lane first", async () => {
  const { spawned, pools } = open(1, new Turns(16));
  const wanted = pools[0]?.take(AbortSignal.timeout(60_000));
  expect(spawned).toHaveLength(1);
  await expect.poll(() => spawned.length).toBe(2);
  pools[0]?.close();
  expect(await wanted).toBeUndefined();
});

test("a lane that dies while it is checked from outside leaves its place to the next", async () => {
  const ends: (() => void)[] = [];
  let checks = 0;
  const engine = {
    outside: async () => ({
      async seclusion() {
        // The first one's shell is killed meanwhile.
        if (checks++ === 0) ends[0]?.();
        return { program: "" };
      },
    }),
    async spawn(_: string, { input = Buffer.of() }: SpawnRequest, sink: OutputSink) {
      ends.push(() => sink.end());
      const [, nonce] = /printf %s ([0-9a-f]{32})R/.exec(Buffer.from(input).toString()) ?? [];
      sink.data("stdout", Buffer.from(`${nonce}R42:7;`));
      return { close() {} };
    },
  } as unknown as Engine;
  // As many processes as one lane may have.
  const spec = { resources: { pidsLimit: 16 } };
  const sandbox = { ref: "ref", sandboxId: "sbx", user: "", spec } as LeasedSandbox;
  const settings = { spare: 1, max: 16, idleMs: 60_000 };
  const pool = new LanePool(engine, sandbox, settings, new MemoryLog(), new Turns(16));
  onTestFinished(() => pool.close());
  await settled();
  expect(checks).toBe(1);
  expect(await pool.take(new AbortController().signal)).toBeDefined();
});
