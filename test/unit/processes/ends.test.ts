import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import { settled } from "../../support/manual-clock.ts";
import { OWNER } from "../sandboxes/support.ts";
import { SIGKILL, SIGTERM } from "./fake-jobs.ts";
import { never, ProcessBench } from "./support.ts";

/** A promise that a test settles. */
const gate = () => Promise.withResolvers<void>();

describe("the timeout", () => {
  test("ends the process at its time", async () => {
    const bench = await ProcessBench.start();
    const stream = await bench.exec({ timeoutMs: 5_000 });
    await bench.clock.advance(4_999);
    expect(bench.job.signals).toEqual([]);
    bench.job.write("partial");
    await bench.clock.advance(1);
    await stream.over;
    expect(bench.job.signals).toEqual([SIGTERM]);
    expect(stream.stdout).toBe("partial");
    expect(stream.status).toMatchObject({ cause: "TIMED_OUT", exitCode: 143, durationMs: 5_000 });
    expect(bench.operations).toBe(0);
  });

  test("is the sandbox's if the command has none", async () => {
    const bench = await ProcessBench.start();
    const spec = { commandTimeoutMs: 7_000 };
    const { sandboxId } = await bench.sandboxes.create(OWNER, spec, { signal: never });
    const stream = await bench.exec({ sandbox: { owner: OWNER, sandboxId } });
    await bench.clock.advance(6_999);
    expect(stream.status).toBeUndefined();
    await bench.clock.advance(1);
    expect(stream.status).toMatchObject({ cause: "TIMED_OUT" });
  });

  test("kills a process that ignores SIGTERM", async () => {
    const bench = await ProcessBench.start({ killGraceMs: 1 });
    const stream = await bench.exec({ timeoutMs: 5_000 });
    const { job } = bench;
    job.onSignal = (signal) => signal === SIGKILL && job.exit(137);
    await bench.clock.advance(5_000);
    await stream.over;
    expect(job.signals).toEqual([SIGTERM, SIGKILL]);
    expect(stream.status).toMatchObject({ cause: "TIMED_OUT", exitCode: 137, signal: SIGKILL });
  });

  test("is over soon even if nothing reports the end of the process", async () => {
    const bench = await ProcessBench.start({ killGraceMs: 0 });
    const stream = await bench.exec({ timeoutMs: 5_000 });
    const killed = gate();
    bench.job.onSignal = (signal) => signal === SIGKILL && killed.resolve();
    await bench.clock.advance(5_000);
    await killed.promise;
    await bench.clock.advance(2_000);
    await stream.over;
    expect(stream.status).toMatchObject({ cause: "TIMED_OUT", exitCode: -1 });
    expect(bench.operations).toBe(0);
  });

  test("leaves a killed process time to report how it ended, also after a kill that took long", async () => {
    const bench = await ProcessBench.start({ killGraceMs: 0 });
    const killing = gate();
    bench.runner.killing = () => killing.promise;
    const stream = await bench.exec({ timeoutMs: 5_000 });
    bench.job.onSignal = () => {};
    await bench.clock.advance(10_000);
    killing.resolve();
    await settled();
    await bench.clock.advance(400);
    bench.job.exit(128 + SIGKILL);
    await stream.over;
    expect(stream.status).toMatchObject({ cause: "TIMED_OUT", exitCode: 137, signal: SIGKILL });
  });

  test("frees what a process that left the tree writes to the output of the killed one", async () => {
    const bench = await ProcessBench.start({ killGraceMs: 0, windowBytes: 10_000 });
    const caller = new AbortController();
    const events = bench.processes.exec(bench.request({ timeoutMs: 5_000 }), caller.signal);
    const started = (await events.next()).value;
    const process = bench.processes.get(OWNER, started?.type === "started" ? started.processId : "");
    const { job } = bench;
    const killed = gate();
    job.onSignal = (signal) => signal === SIGKILL && killed.resolve();
    job.write("x".repeat(18_000));
    expect(job.paused).toBe(true);
    await bench.clock.advance(5_000);
    await killed.promise;
    await settled();
    expect(job.paused).toBe(false);
    const megabyte = "y".repeat(2 ** 20);
    for (let written = 0; written < 40; written++) job.write(megabyte);
    expect(job.paused).toBe(false);
    expect(process.transcript.heldBytes).toBeLessThan(20 * 2 ** 20);
    job.exit(128 + SIGKILL);
    expect(await process.ended).toMatchObject({ cause: "TIMED_OUT", exitCode: 137 });
    caller.abort();
    await events.return(undefined);
  });

  test("stays the cause of an end whose caller leaves meanwhile", async () => {
    const bench = await ProcessBench.start();
    const killing = gate();
    bench.runner.killing = () => killing.promise;
    const stream = await bench.exec({ timeoutMs: 5_000 });
    const process = bench.processes.get(OWNER, stream.processId);
    await bench.clock.advance(5_000);
    stream.leave();
    await settled();
    killing.resolve();
    expect(await process.ended).toMatchObject({ cause: "TIMED_OUT" });
    expect(bench.job.signals).toEqual([SIGTERM]);
  });

  test("and the grace leave no timers behind once the process has ended", async () => {
    const bench = await ProcessBench.start();
    await bench.clock.advance(1_000);
    const before = bench.clock.pending;
    const stream = await bench.exec({ disconnectGraceMs: 10_000 });
    stream.leave();
    bench.job.exit(0);
    await bench.clock.advance(1_000);
    expect(bench.clock.pending).toBe(before);
  });

  test("is reported when the whole tree is gone", async () => {
    const bench = await ProcessBench.start();
    const killing = gate();
    bench.runner.killing = () => killing.promise;
    const stream = await bench.exec({ timeoutMs: 5_000 });
    await bench.clock.advance(5_000);
    expect(bench.job.runs).toBe(false);
    expect(stream.status).toBeUndefined();
    killing.resolve();
    await stream.over;
    expect(stream.status).toMatchObject({ cause: "TIMED_OUT", exitCode: 143 });
  });

  test("includes the time that the start took", async () => {
    const bench = await ProcessBench.start();
    const starting = gate();
    bench.runner.starting = () => starting.promise;
    const stream = await bench.exec({ timeoutMs: 5_000 });
    await bench.clock.advance(4_000);
    starting.resolve();
    await bench.clock.advance(999);
    expect(bench.job.runs).toBe(true);
    await bench.clock.advance(1);
    expect(stream.status).toMatchObject({ cause: "TIMED_OUT", durationMs: 5_000 });
  });
});

describe("a caller that leaves", () => {
  test("ends its process", async () => {
    const bench = await ProcessBench.start();
    const stream = await bench.exec();
    const process = bench.processes.get(OWNER, stream.processId);
    stream.leave();
    await stream.over;
    expect(await process.ended).toMatchObject({ cause: "CANCELED", signal: SIGTERM });
    expect(stream.status).toBeUndefined();
  });

  test("ends its process even while its stream is not read", async () => {
    const bench = await ProcessBench.start();
    const caller = new AbortController();
    await bench.processes.exec(bench.request(), caller.signal).next();
    caller.abort();
    await settled();
    expect(bench.job.signals).toEqual([SIGTERM]);
  });

  test.each(["", "r1"])(
    "before its process has started ends it as it starts (request id %j)",
    async (requestId) => {
      const bench = await ProcessBench.start();
      const starting = gate();
      bench.runner.starting = () => starting.promise;
      const stream = await bench.exec({ requestId });
      stream.leave();
      await settled();
      starting.resolve();
      await settled();
      expect(bench.job.signals).toEqual([SIGTERM]);
      expect(bench.operations).toBe(0);
    },
  );

  test("ends its process after the grace", async () => {
    const bench = await ProcessBench.start();
    const stream = await bench.exec({ disconnectGraceMs: 10_000 });
    stream.leave();
    await bench.clock.advance(9_999);
    expect(bench.job.signals).toEqual([]);
    await bench.clock.advance(1);
    expect(bench.job.signals).toEqual([SIGTERM]);
  });

  test("and attaches again delays the end of its process until it leaves again", async () => {
    const bench = await ProcessBench.start();
    const stream = await bench.exec({ disconnectGraceMs: 10_000 });
    stream.leave();
    await bench.clock.advance(9_000);
    const again = await bench.attach(stream.processId);
    await bench.clock.advance(60_000);
    expect(bench.job.signals).toEqual([]);
    again.leave();
    await bench.clock.advance(9_999);
    expect(bench.job.signals).toEqual([]);
    await bench.clock.advance(1);
    expect(bench.job.signals).toEqual([SIGTERM]);
  });

  test("leaves a detached process running", async () => {
    const bench = await ProcessBench.start();
    const stream = await bench.exec({ onDisconnect: "DETACH" });
    bench.job.write("before ");
    stream.leave();
    await bench.clock.advance(10_000);
    bench.job.write("after");
    const again = await bench.attach(stream.processId);
    bench.job.exit(0);
    await again.over;
    expect(again.stdout).toBe("before after");
    expect(again.status).toMatchObject({ cause: "EXITED", exitCode: 0 });
  });
});

test("a detached process does not wait for a reader that has left", async () => {
  const bench = await ProcessBench.start({ windowBytes: 10_000 });
  const caller = new AbortController();
  await bench.processes.exec(bench.request({ onDisconnect: "DETACH" }), caller.signal).next();
  bench.job.write("x".repeat(18_000));
  expect(bench.job.paused).toBe(true);
  caller.abort();
  expect(bench.job.paused).toBe(false);
});

describe("the end of a sandbox", () => {
  test("by a delete ends its processes after the grace, with the reason", async () => {
    const bench = await ProcessBench.start();
    const stream = await bench.exec();
    bench.job.write("partial");
    const deleted = bench.sandboxes.delete(bench.sandbox, 3_000);
    await bench.clock.advance(2_999);
    expect(stream.status).toBeUndefined();
    await bench.clock.advance(1);
    await Promise.all([stream.over, deleted]);
    expect(stream.status).toMatchObject({
      cause: "SANDBOX_TERMINATED",
      exitCode: -1,
      message: "The sandbox was deleted.",
    });
    const after = await bench.attach(stream.processId);
    expect(after.stdout).toBe("partial");
  });

  test("by a delete waits for processes that end within the grace", async () => {
    const bench = await ProcessBench.start();
    const stream = await bench.exec();
    const deleted = bench.sandboxes.delete(bench.sandbox, 3_000);
    await bench.clock.advance(1_000);
    bench.job.exit(0);
    await Promise.all([stream.over, deleted]);
    expect(stream.status).toMatchObject({ cause: "EXITED", durationMs: 1_000 });
  });

  test("by itself ends its processes", async () => {
    const bench = await ProcessBench.start();
    const stream = await bench.exec({ onDisconnect: "DETACH" });
    await bench.vanish();
    await stream.over;
    expect(stream.status).toMatchObject({ cause: "SANDBOX_TERMINATED", exitCode: -1 });
  });

  test("is why a process was killed with it, however late it is reported", async () => {
    const bench = await ProcessBench.start();
    const stream = await bench.exec();
    bench.runner.isEnding = true;
    bench.job.exit(128 + SIGKILL);
    await sleep(1_500);
    expect(stream.status).toBeUndefined();
    await bench.vanish();
    await stream.over;
    expect(stream.status).toMatchObject({ cause: "SANDBOX_TERMINATED", exitCode: -1 });
  });

  test("is why a process was killed with it, although its timeout passes before the report", async () => {
    const bench = await ProcessBench.start();
    const stream = await bench.exec({ timeoutMs: 5_000 });
    bench.runner.isEnding = true;
    bench.job.exit(128 + SIGKILL);
    await bench.clock.advance(5_000);
    await bench.vanish();
    await stream.over;
    expect(stream.status).toMatchObject({ cause: "SANDBOX_TERMINATED" });
  });

  test("during the start of a process ends that one too", async () => {
    const bench = await ProcessBench.start();
    const starting = gate();
    bench.runner.starting = () => starting.promise;
    const stream = await bench.exec();
    await bench.vanish();
    starting.resolve();
    await stream.over;
    expect(stream.status).toMatchObject({ cause: "SANDBOX_TERMINATED", exitCode: -1 });
  });

  test("does not change why a process is ending", async () => {
    const bench = await ProcessBench.start();
    const stream = await bench.exec({ timeoutMs: 5_000 });
    bench.job.onSignal = () => {};
    await bench.clock.advance(5_000);
    await bench.vanish();
    await stream.over;
    expect(stream.status).toMatchObject({ cause: "TIMED_OUT", exitCode: -1 });
  });
});

describe("the end of a run", () => {
  test("ends its processes and no others, and waits for them", async () => {
    const bench = await ProcessBench.start();
    bench.running.add("r");
    const tied = await bench.exec({ runId: "r", onDisconnect: "DETACH" });
    const other = await bench.exec();
    bench.running.delete("r");
    await bench.processes.endRun("somebody else", "r");
    expect(bench.processes.get(OWNER, tied.processId).status).toBeUndefined();
    await bench.processes.endRun(OWNER, "r");
    expect(bench.processes.get(OWNER, tied.processId).status).toMatchObject({ cause: "CANCELED" });
    expect(bench.processes.get(OWNER, other.processId).status).toBeUndefined();
  });

  test("resumes a paused sandbox, in which no process can end", async () => {
    const bench = await ProcessBench.start();
    bench.running.add("r");
    await bench.exec({ runId: "r" });
    await bench.sandboxes.pause(bench.sandbox, never);
    await bench.processes.endRun(OWNER, "r");
    expect(bench.sandboxes.get(bench.sandbox).state).toBe("RUNNING");
    expect(bench.job.signals).toEqual([SIGTERM]);
  });

  test("during the start of a process ends that one too", async () => {
    const bench = await ProcessBench.start();
    const starting = gate();
    bench.running.add("r");
    bench.runner.starting = () => starting.promise;
    const stream = await bench.exec({ runId: "r" });
    bench.running.delete("r");
    await bench.processes.endRun(OWNER, "r");
    starting.resolve();
    await settled();
    await stream.over;
    expect(stream.status).toMatchObject({ cause: "CANCELED" });
  });

  test("makes later commands of the run fail with RUN_STATE, without a lease", async () => {
    const bench = await ProcessBench.start();
    const { over } = await bench.exec({ runId: "r" });
    await expect(over).rejects.toMatchObject({ reason: "RUN_STATE" });
    expect(bench.operations).toBe(0);
  });
});
