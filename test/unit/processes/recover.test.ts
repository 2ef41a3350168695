import { describe, expect, onTestFinished, test, vi } from "vitest";
import { WHOLE } from "../../../src/base/ordered-index.ts";
import type { StoredProcess } from "../../../src/processes/store.ts";
import { settled } from "../../support/manual-clock.ts";
import { OWNER } from "../sandboxes/support.ts";
import { SIGKILL, SIGTERM } from "./fake-jobs.ts";
import { never, ProcessBench } from "./support.ts";

/** A process that outlives its caller. */
const DETACHED = { onDisconnect: "DETACH" } as const;

/** Fires the timer that saves output, which uses real time. */
function saveOutput(): () => Promise<void> {
  vi.useFakeTimers({ toFake: ["setInterval", "clearInterval"] });
  onTestFinished(() => void vi.useRealTimers());
  return async () => {
    vi.advanceTimersByTime(1_000);
    await settled();
  };
}

describe("after the service was killed", () => {
  test("a process that had ended can be read, with its output", async () => {
    const bench = await ProcessBench.start();
    const before = await bench.exec();
    await bench.clock.advance(1_000);
    bench.job.write("out");
    bench.job.write("err", "stderr");
    bench.job.exit(3);
    await before.over;
    await bench.clock.advance(1_000);
    await bench.restart();
    const after = await bench.attach(before.processId);
    await after.over;
    expect(after.events).toEqual(before.events);
    expect(bench.processes.get(OWNER, before.processId).options).toMatchObject({
      command: { kind: "argv", args: ["true"] },
    });
  });

  test("a process that still runs is followed to its end", async () => {
    const bench = await ProcessBench.start();
    const save = saveOutput();
    const { processId } = await bench.exec(DETACHED);
    bench.job.write("one ");
    await save();
    await bench.clock.advance(1_000);
    await bench.kill();
    bench.job.write("two ");
    await bench.begin();
    const after = await bench.attach(processId);
    bench.job.write("three");
    expect(bench.operations).toBe(1);
    bench.job.exit(5);
    await after.over;
    expect(after.stdout).toBe("one two three");
    expect(after.status).toMatchObject({ cause: "EXITED", exitCode: 5, stdoutBytes: 13 });
    expect(bench.operations).toBe(0);
    expect(bench.runner.jobs).toHaveLength(1);
  });

  test("the end of a process that still ran is stored like any other", async () => {
    const bench = await ProcessBench.start();
    const { processId } = await bench.exec(DETACHED);
    await bench.restart();
    bench.job.exit(5);
    await bench.clock.advance(1_000);
    await bench.restart();
    expect(bench.processes.get(OWNER, processId).status).toMatchObject({ cause: "EXITED", exitCode: 5 });
  });

  test.each(["DETACH", "KILL"] as const)(
    "a process that ended meanwhile ends as its pipes say (%s)",
    async (onDisconnect) => {
      const bench = await ProcessBench.start();
      const { processId } = await bench.exec({ onDisconnect });
      await bench.clock.advance(1_000);
      await bench.kill();
      bench.job.write("last words");
      bench.job.exit(0);
      await bench.begin();
      const after = await bench.attach(processId);
      await after.over;
      expect(after.stdout).toBe("last words");
      expect(after.status).toMatchObject({ cause: "EXITED", exitCode: 0 });
    },
  );

  test("the end of a process that ended meanwhile is stored, with its output", async () => {
    const bench = await ProcessBench.start();
    const { processId } = await bench.exec(DETACHED);
    await bench.clock.advance(1_000);
    await bench.kill();
    bench.job.write("last words");
    bench.job.exit(5);
    await bench.begin();
    await bench.restart();
    expect(bench.processes.get(OWNER, processId).status).toMatchObject({ cause: "EXITED", exitCode: 5 });
    expect((await bench.attach(processId)).stdout).toBe("last words");
  });

  test("a process whose caller is gone is ended", async () => {
    const bench = await ProcessBench.start();
    const { processId } = await bench.exec();
    await bench.clock.advance(1_000);
    await bench.restart();
    expect(bench.job.signals).toEqual([SIGTERM]);
    expect(bench.processes.get(OWNER, processId).status).toMatchObject({ cause: "CANCELED", exitCode: 143 });
  });

  test("a process whose output is redacted is ended, because nobody knows its secrets any more", async () => {
    const bench = await ProcessBench.start({ killGraceMs: 0 });
    const secrets = { secretEnv: { S: "key" }, redactSecrets: true };
    const { processId } = await bench.exec({ ...DETACHED, ...secrets });
    await bench.clock.advance(1_000);
    const killed = Promise.withResolvers<void>();
    bench.job.onSignal = (signal) => signal === SIGKILL && killed.resolve();
    await bench.restart();
    expect(bench.job.signals[0]).toBe(SIGTERM);
    await killed.promise;
    await bench.clock.advance(2_000);
    expect(bench.processes.get(OWNER, processId).status).toMatchObject({
      cause: "ENGINE_LOST",
      exitCode: -1,
    });
    expect(bench.operations).toBe(0);
  });

  test("a process is not taken for an earlier one in its shell, whose end was not stored", async () => {
    const bench = await ProcessBench.start();
    bench.runner.inOneShell = true;
    const earlier = await bench.exec();
    await bench.clock.advance(1_000);
    bench.job.exit(0);
    const { processId } = await bench.exec(DETACHED);
    await bench.restart();
    expect(bench.job.signals).toEqual([]);
    expect(bench.processes.get(OWNER, earlier.processId).status).toMatchObject({
      cause: "ENGINE_LOST",
      message: "The service ended before it had stored how it ended.",
    });
    bench.job.exit(5);
    await settled();
    expect(bench.processes.get(OWNER, processId).status).toMatchObject({ cause: "EXITED", exitCode: 5 });
  });

  test("a process that was stored before an earlier one in its shell, because it waited, is not taken for that", async () => {
    const bench = await ProcessBench.start();
    bench.runner.inOneShell = true;
    const turn = Promise.withResolvers<void>();
    bench.runner.starting = () => turn.promise;
    const later = await bench.exec({ ...DETACHED, requestId: "r1", fingerprint: "f" });
    bench.runner.starting = async () => {};
    const earlier = await bench.exec();
    await bench.clock.advance(1_000);
    bench.job.exit(0);
    turn.resolve();
    await settled();
    await bench.restart();
    expect(bench.job.signals).toEqual([]);
    expect(bench.processes.get(OWNER, earlier.processId).status).toMatchObject({ cause: "ENGINE_LOST" });
    expect(bench.processes.get(OWNER, later.processId).status).toBeUndefined();
  });

  test("a process with a grace waits that long for its caller", async () => {
    const bench = await ProcessBench.start();
    await bench.exec({ disconnectGraceMs: 10_000 });
    await bench.clock.advance(1_000);
    await bench.restart();
    await bench.clock.advance(9_999);
    expect(bench.job.signals).toEqual([]);
    await bench.clock.advance(1);
    expect(bench.job.signals).toEqual([SIGTERM]);
  });

  test("the timeout of a process still counts from its start", async () => {
    const bench = await ProcessBench.start();
    const { processId } = await bench.exec({ ...DETACHED, timeoutMs: 60_000 });
    await bench.clock.advance(20_000);
    await bench.kill();
    await bench.clock.advance(10_000);
    await bench.begin();
    await bench.clock.advance(29_999);
    expect(bench.job.signals).toEqual([]);
    await bench.clock.advance(1);
    expect(bench.processes.get(OWNER, processId).status).toMatchObject({
      cause: "TIMED_OUT",
      durationMs: 60_000,
    });
  });

  test("a process that is found after its timeout ends as its pipes say, or at once if it still runs", async () => {
    const bench = await ProcessBench.start();
    const ended = await bench.exec({ ...DETACHED, timeoutMs: 60_000 });
    const endedJob = bench.job;
    const running = await bench.exec({ ...DETACHED, timeoutMs: 60_000 });
    await bench.clock.advance(1_000);
    await bench.kill();
    endedJob.exit(5);
    await bench.clock.advance(120_000);
    await bench.begin();
    await bench.clock.advance(0);
    const statusOf = (processId: string) => bench.processes.get(OWNER, processId).status;
    expect(statusOf(ended.processId)).toMatchObject({ cause: "EXITED", exitCode: 5 });
    expect(endedJob.signals).toEqual([]);
    expect(statusOf(running.processId)).toMatchObject({ cause: "TIMED_OUT", exitCode: 143 });
  });

  test("a process whose sandbox is gone is lost", async () => {
    const bench = await ProcessBench.start();
    const { processId } = await bench.exec(DETACHED);
    await bench.kill();
    await bench.vanish();
    await bench.begin();
    expect(bench.processes.get(OWNER, processId).status).toMatchObject({
      cause: "ENGINE_LOST",
      exitCode: -1,
      message: expect.stringContaining("its sandbox has ended"),
    });
    await bench.clock.advance(1_000);
    expect(bench.world.store.processes.ended()).toMatchObject([{ processId, endedAt: expect.any(Number) }]);
  });

  test("a process that still runs has lost its stdin and its terminal, but accepts signals", async () => {
    const bench = await ProcessBench.start();
    const { processId } = await bench.exec({ ...DETACHED, terminal: { columns: 80, rows: 24 } });
    await bench.restart();
    const process = bench.processes.get(OWNER, processId);
    const lost = { reason: "PROCESS_STATE", message: expect.stringContaining("was restarted") };
    const cut = { reason: "STDIN_LOST", message: expect.stringContaining("was restarted") };
    await expect(process.writeStdin(0, Buffer.from("x"), false, never)).rejects.toMatchObject(cut);
    await expect(process.resize({ columns: 1, rows: 1 })).rejects.toMatchObject(lost);
    bench.job.onSignal = () => {};
    await process.signal(2);
    expect(bench.job.signals).toEqual([2]);
  });

  test("stdin that the request carried says after how many bytes it was cut off", async () => {
    const bench = await ProcessBench.start();
    const save = saveOutput();
    let pieces = 0;
    bench.runner.reading = () => (pieces++ === 0 ? Promise.resolve() : new Promise(() => {}));
    const { processId } = await bench.exec({ ...DETACHED, stdin: Buffer.alloc(1_000_000) });
    await save();
    await bench.clock.advance(1_000);
    // As often as the service is restarted.
    for (let i = 0; i < 2; i++) {
      await bench.restart();
      await bench.clock.advance(1_000);
    }
    bench.job.exit(0);
    await settled();
    expect(bench.processes.get(OWNER, processId).status).toMatchObject({
      cause: "EXITED",
      message: expect.stringContaining("input after its first 262144 bytes"),
    });
  });

  test("stdin that was passed on whole was not cut off", async () => {
    const bench = await ProcessBench.start();
    const save = saveOutput();
    const { processId } = await bench.exec({ ...DETACHED, stdin: Buffer.from("whole") });
    await save();
    await bench.clock.advance(1_000);
    await bench.restart();
    bench.job.exit(0);
    await settled();
    expect(bench.processes.get(OWNER, processId).status).toMatchObject({
      message: "The service was restarted while it ran: output may be missing.",
    });
  });

  test("stdin that is kept open accepts again what was passed on, and refuses more because it is lost", async () => {
    const bench = await ProcessBench.start();
    const save = saveOutput();
    const { processId } = await bench.exec({ ...DETACHED, keepStdinOpen: true });
    await bench.processes.get(OWNER, processId).writeStdin(0, Buffer.from("12345"), false, never);
    await save();
    await bench.clock.advance(1_000);
    await bench.restart();
    const process = bench.processes.get(OWNER, processId);
    const lost = { reason: "STDIN_LOST", metadata: { written: "5" } };
    for (const offset of [7, 5, 3])
      await expect(process.writeStdin(offset, Buffer.from("678"), false, never)).rejects.toMatchObject(lost);
    expect(await process.writeStdin(0, Buffer.from("12345"), true, never)).toBe(5);
  });

  test("earlier OOM kills do not explain how a process ends", async () => {
    const bench = await ProcessBench.start();
    const { processId } = await bench.exec(DETACHED);
    bench.runner.oomKills = 1;
    await bench.restart();
    bench.job.exit(137);
    await settled();
    expect(bench.processes.get(OWNER, processId).status).toMatchObject({ cause: "SIGNALED", signal: 9 });
  });

  test("a process counts towards the limit of its sandbox", async () => {
    const bench = await ProcessBench.start({ maxProcesses: 1 });
    await bench.exec(DETACHED);
    await bench.restart();
    await expect((await bench.exec()).over).rejects.toMatchObject({ reason: "TOO_MANY_OPERATIONS" });
  });
});

describe("processes that ended before the service was killed", () => {
  const DAY_MS = 24 * 3600 * 1000;
  /** Runs a command to its end. */
  const run = async (bench: ProcessBench, output: string): Promise<string> => {
    const stream = await bench.exec();
    if (output !== "") bench.job.write(output);
    bench.job.exit(0);
    await stream.over;
    await bench.clock.advance(1_000);
    return stream.processId;
  };
  /** Changes how a process is stored, as only damage would. */
  const change = (bench: ProcessBench, processId: string, how: Partial<StoredProcess>): void => {
    const { processes } = bench.world.store;
    const stored = processes.get(processId);
    if (stored === undefined) throw new Error("the process is not stored");
    processes.put({ ...stored, ...how });
  };

  /** Writing to disk takes real time. What is on disk is stored after that. */
  const storedInFiles = async (bench: ProcessBench, count: number): Promise<void> => {
    const onDisk = async (): Promise<number> => {
      await bench.clock.advance(1_000);
      return bench.world.store.processes.ended().filter(({ files }) => files.length === 1).length;
    };
    await expect.poll(onDisk).toBe(count);
  };

  test("are listed, newest first, each with its output", async () => {
    const bench = await ProcessBench.start();
    const first = await run(bench, "first");
    const second = await run(bench, "second");
    await bench.restart();
    const { items: listed } = await bench.processes.list(bench.sandbox, true, WHOLE);
    expect(listed.map(({ id, status }) => [id, status?.stdoutBytes])).toEqual([
      [second, 6],
      [first, 5],
    ]);
    expect((await bench.processes.list(bench.sandbox, false, WHOLE)).items).toEqual([]);
    expect((await bench.attach(first)).stdout).toBe("first");
  });

  test("are read for a list in turns of the event loop, because some have much output", async () => {
    const bench = await ProcessBench.start();
    for (let i = 0; i < 4; i++) await run(bench, "output");
    await bench.restart();
    const order: string[] = [];
    const { processes } = bench.world.store;
    const get = processes.get.bind(processes);
    processes.get = (processId) => {
      order.push("read");
      const start = performance.now();
      while (performance.now() - start < 6);
      return get(processId);
    };
    let isListed = false;
    const turn = (): void => {
      order.push("turn");
      if (!isListed) setImmediate(turn);
    };
    setImmediate(turn);
    const { items } = await bench.processes.list(bench.sandbox, true, WHOLE);
    isListed = true;
    expect(items).toHaveLength(4);
    expect(order.join(" ")).not.toContain("read read");
    expect(order.filter((what) => what === "read")).toHaveLength(4);
  });

  test("are read when requested, so that a damaged one does not affect others", async () => {
    const bench = await ProcessBench.start();
    const [damaged, whole] = [await run(bench, "one"), await run(bench, "two")];
    change(bench, damaged, { facts: "no longer JSON" });
    await bench.restart();
    expect((await bench.attach(whole)).stdout).toBe("two");
    expect(() => bench.processes.get(OWNER, damaged)).toThrow(SyntaxError);
    await bench.clock.advance(DAY_MS);
    expect(() => bench.processes.get(OWNER, damaged)).toThrow("There is no process");
    await bench.clock.advance(1_000);
    expect(bench.stored).toEqual([]);
  });

  test("are removed after a day, with their files, whether they were read or not", async () => {
    const bench = await ProcessBench.start({ spill: true });
    const long = "x".repeat(100_000);
    const [read] = [await run(bench, long), await run(bench, long)];
    await storedInFiles(bench, 2);
    await bench.restart();
    expect(bench.files).toHaveLength(2);
    const stream = await bench.attach(read);
    await stream.over;
    expect(stream.stdout).toBe(long);
    await bench.clock.advance(DAY_MS);
    expect(() => bench.processes.get(OWNER, read)).toThrow("There is no process");
    await expect.poll(() => bench.files).toEqual([]);
  });

  test("that expire together are removed a few at a time, with their files, and none is read for that", async () => {
    const bench = await ProcessBench.start({ spill: true });
    const ids: string[] = [];
    while (ids.length < 40) ids.push(await run(bench, "x".repeat(10_000)));
    await storedInFiles(bench, 40);
    await bench.restart();
    const reads = vi.spyOn(bench.world.store.processes, "get");
    await bench.clock.advance(DAY_MS);
    const files = bench.files.length;
    // Each call removes a few, and finds none of the others.
    expect((await bench.processes.list(bench.sandbox, true, WHOLE)).items).toEqual([]);
    await bench.clock.advance(1_000);
    expect([files, bench.stored.length]).toEqual([40, 8]);
    for (const id of ids) expect(() => bench.processes.get(OWNER, id)).toThrow("There is no process");
    await bench.clock.advance(1_000);
    expect(bench.stored).toEqual([]);
    await expect.poll(() => bench.files).toEqual([]);
    expect(reads).not.toHaveBeenCalled();
  });

  test("that an earlier version stored can be read too, and are stored in the current form", async () => {
    const bench = await ProcessBench.start();
    const processId = await run(bench, "old");
    change(bench, processId, { summary: undefined });
    expect(bench.world.store.processes.ended()).toEqual([]);
    await bench.restart();
    expect((await bench.attach(processId)).stdout).toBe("old");
    await bench.clock.advance(1_000);
    expect(bench.world.store.processes.ended()).toMatchObject([{ processId, heldBytes: expect.any(Number) }]);
  });
});

describe("the same request after the service was killed", () => {
  const request = { ...DETACHED, requestId: "r1", fingerprint: "f" };

  test("gets the process that still runs", async () => {
    const bench = await ProcessBench.start();
    const { processId } = await bench.exec(request);
    await bench.restart();
    const again = await bench.exec(request);
    bench.job.exit(0);
    await again.over;
    expect(again).toMatchObject({ processId, status: { cause: "EXITED" } });
    expect(bench.runner.jobs).toHaveLength(1);
  });

  test("gets the end that its first caller got", async () => {
    const bench = await ProcessBench.start();
    const before = await bench.exec({ ...request, onDisconnect: "KILL" });
    bench.job.write("out");
    bench.job.exit(2);
    await before.over;
    await bench.restart();
    const again = await bench.exec({ ...request, onDisconnect: "KILL" });
    await again.over;
    expect(again.events).toEqual(before.events);
  });

  test("does not start a second process if the first was about to start", async () => {
    const bench = await ProcessBench.start();
    bench.runner.starting = () => new Promise(() => {});
    await bench.exec(request);
    const [processId] = bench.stored;
    await bench.restart();
    bench.runner.starting = async () => {};
    const again = await bench.exec(request);
    await again.over;
    expect(again).toMatchObject({ processId, status: { cause: "ENGINE_LOST", exitCode: -1 } });
    expect(again.status?.message).toContain("whether it ran is not known");
    expect(bench.runner.jobs).toEqual([]);
    expect(bench.operations).toBe(0);
  });
});

test("a service that stops leaves processes running, and the next one has their complete output", async () => {
  const bench = await ProcessBench.start();
  const before = await bench.exec(DETACHED);
  bench.job.write("one ");
  await bench.processes.detach();
  await before.over;
  expect(before.status).toMatchObject({ cause: "ENGINE_LOST" });
  expect(bench.job).toMatchObject({ runs: true, signals: [] });
  await bench.restart();
  const after = await bench.attach(before.processId);
  bench.job.write("two");
  bench.job.exit(0);
  await after.over;
  expect(after.stdout).toBe("one two");
  expect(after.status).toMatchObject({ cause: "EXITED", exitCode: 0 });
});

test("nothing is missing of what happens while a service that stops is storing", async () => {
  const bench = await ProcessBench.start({ spill: true });
  const [running, ending] = [await bench.exec(DETACHED), await bench.exec(DETACHED)];
  const [first, second] = bench.runner.jobs;
  const output = "x".repeat(50_000);
  first?.write(output);
  const detached = bench.processes.detach();
  // The disk takes its time.
  for (let i = 0; i < 5; i++) first?.write("more".repeat(1_000));
  second?.exit(3);
  await detached;
  await bench.restart();
  first?.exit(0);
  const after = await bench.attach(running.processId);
  await after.over;
  expect(after.events.filter(({ type }) => type === "gap")).toEqual([]);
  expect(after.stdout).toBe(output + "more".repeat(5_000));
  expect(bench.processes.get(OWNER, ending.processId).status).toMatchObject({ cause: "EXITED", exitCode: 3 });
});
