import { readSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { pipeCapacitySetter } from "../../../src/base/pipe-capacity.ts";
import { LargePipes, MAX_LARGE, MAX_PER_SANDBOX, PipeLoad } from "../../../src/engine/large-pipes.ts";
import { fillPipe, makeFifo, openFifo } from "../../support/fifo.ts";

const KIB = 1024;
const MIB = 1024 * KIB;

test("a pipe that carries much holds 1 MiB, and 64 KiB when it has been idle", async () => {
  const end = { fd: openFifo(makeFifo()), destroyed: false };
  const load = new PipeLoad(end, "sandbox", new LargePipes(pipeCapacitySetter, 20));
  const capacity = () => {
    const bytes = fillPipe(end.fd);
    readSync(end.fd, Buffer.alloc(bytes));
    return bytes;
  };
  load.add(400 * KIB);
  expect(capacity()).toBe(64 * KIB);
  load.add(400 * KIB);
  expect(capacity()).toBe(MIB);
  await expect.poll(capacity).toBe(64 * KIB);
  load.add(600 * KIB);
  expect(capacity()).toBe(MIB);
  load.close();
});

describe("of pipes that carry much,", () => {
  /** Pipes whose changes of capacity are recorded. */
  function recorded({ idleMs = 1_000_000, refuse = false } = {}) {
    const calls: [fd: number, bytes: number][] = [];
    const largePipes = new LargePipes(
      () => (fd, bytes) => {
        calls.push([fd, bytes]);
        return !refuse;
      },
      idleMs,
    );
    const pipe = (fd: number, sandbox = `sandbox-${fd}`) => {
      const end = { fd, destroyed: false };
      return { end, load: new PipeLoad(end, sandbox, largePipes) };
    };
    return { calls, pipe };
  }

  test("only so many become large, until others are closed", () => {
    const { calls, pipe } = recorded();
    const pipes = Array.from({ length: MAX_LARGE + 1 }, (_, fd) => pipe(fd));
    for (const { load } of pipes) load.add(MIB);
    expect(calls).toEqual(Array.from({ length: MAX_LARGE }, (_, fd) => [fd, MIB]));
    pipes[3]?.load.close();
    pipes.at(-1)?.load.add(MIB);
    expect(calls.at(-1)).toEqual([MAX_LARGE, MIB]);
  });

  test("only so many of one sandbox become large", () => {
    const { calls, pipe } = recorded();
    for (let fd = 0; fd < MAX_PER_SANDBOX + 3; fd++) pipe(fd, "greedy").load.add(MIB);
    expect(calls).toHaveLength(MAX_PER_SANDBOX);
    pipe(100, "other").load.add(MIB);
    expect(calls.at(-1)).toEqual([100, MIB]);
  });

  test("one that stays busy stays large, and is not asked for again", async () => {
    const { calls, pipe } = recorded({ idleMs: 5 });
    const { load } = pipe(7);
    const until = performance.now() + 100;
    while (performance.now() < until) {
      load.add(MIB);
      await new Promise(setImmediate);
    }
    expect(calls).toEqual([[7, MIB]]);
    await expect.poll(() => calls).toContainEqual([7, 64 * KIB]);
  });

  test("one that the kernel refuses is asked for again only after as much again", () => {
    const { calls, pipe } = recorded({ refuse: true });
    const { load } = pipe(7);
    load.add(512 * KIB);
    expect(calls).toHaveLength(1);
    load.add(490 * KIB);
    expect(calls).toHaveLength(1);
    load.add(22 * KIB);
    expect(calls).toHaveLength(2);
  });

  test("one that carries much in short pieces stays as it is", () => {
    const { calls, pipe } = recorded();
    const { load } = pipe(7);
    for (let i = 0; i < 1_000; i++) load.add(15 * KIB);
    expect(calls).toEqual([]);
  });

  test("one whose end is destroyed is left alone: its descriptor may be another's", async () => {
    const { calls, pipe } = recorded({ idleMs: 5 });
    const [early, late] = [pipe(7), pipe(8)];
    early.end.destroyed = true;
    early.load.add(MIB);
    late.load.add(MIB);
    late.end.destroyed = true;
    await new Promise((resolve) => setTimeout(resolve, 50));
    expect(calls).toEqual([[8, MIB]]);
  });

  test("none becomes large where the capacity cannot be set", () => {
    let asked = 0;
    const largePipes = new LargePipes(() => void asked++);
    const load = new PipeLoad({ fd: 7, destroyed: false }, "sandbox", largePipes);
    for (let i = 0; i < 3; i++) load.add(MIB);
    expect(asked).toBe(1);
  });
});
