import { describe, expect, test } from "vitest";
import { BerthError } from "../../../src/base/errors.ts";
import { MemoryBudget } from "../../../src/base/memory-budget.ts";
import { WHOLE } from "../../../src/base/ordered-index.ts";
import type { CommandRequest } from "../../../src/processes/manager.ts";
import { settled } from "../../support/manual-clock.ts";
import { OWNER } from "../sandboxes/support.ts";
import { SIGKILL, SIGTERM } from "./fake-jobs.ts";
import { never, ProcessBench } from "./support.ts";

const DAY_MS = 24 * 3600 * 1000;

/** A promise that a test settles. */
const gate = () => Promise.withResolvers<void>();

describe("exec", () => {
  test("streams the start, the output in order, and the end", async () => {
    const bench = await ProcessBench.start();
    const stream = await bench.exec();
    expect(stream.events).toEqual([
      {
        type: "started",
        processId: stream.processId,
        startTimeMs: bench.clock.wallMs(),
        recoveries: 0,
        from: { stdout: 0, stderr: 0 },
      },
    ]);
    bench.job.write("out ");
    bench.job.write("err", "stderr");
    bench.job.write("more");
    await bench.clock.advance(250);
    bench.job.exit(3);
    await stream.over;
    expect(stream.events.slice(1)).toEqual([
      { type: "output", stream: "stdout", offset: 0, data: Buffer.from("out ") },
      { type: "output", stream: "stderr", offset: 0, data: Buffer.from("err") },
      { type: "output", stream: "stdout", offset: 4, data: Buffer.from("more") },
      {
        type: "exited",
        status: {
          cause: "EXITED",
          exitCode: 3,
          signal: 0,
          durationMs: 250,
          stdoutBytes: 8,
          stderrBytes: 3,
          message: "",
        },
      },
    ]);
  });

  test("runs a command with the sandbox's settings and its own", async () => {
    const bench = await ProcessBench.start();
    const spec = { env: { A: "sandbox", B: "sandbox" }, workingDir: "/work", user: "nobody" };
    const { sandboxId } = await bench.sandboxes.create(OWNER, spec, { signal: never });
    const more = { sandbox: { owner: OWNER, sandboxId }, env: { B: "command" } };
    await bench.exec({ ...more, command: { kind: "shell", line: "ls | wc" }, workingDir: "src" });
    expect(bench.job.request).toMatchObject({
      argv: ["/bin/sh", "-c", "ls | wc"],
      env: { A: "sandbox", B: "command" },
      workingDir: "/work/src",
      user: "nobody",
      stdin: false,
    });
    await bench.exec({ ...more, user: "root", terminal: { columns: 80, rows: 24 } });
    expect(bench.job.request).toMatchObject({
      argv: ["true"],
      env: { TERM: "xterm-256color" },
      workingDir: "/work",
      user: "root",
      stdin: true,
    });
  });

  test("holds a lease on the sandbox while the process runs, and no longer", async () => {
    const bench = await ProcessBench.start();
    const stream = await bench.exec();
    expect(bench.operations).toBe(1);
    bench.job.exit(0);
    await stream.over;
    expect(bench.operations).toBe(0);
  });

  test("that cannot start throws the cause, and keeps neither lease nor place", async () => {
    const bench = await ProcessBench.start({ maxProcesses: 1 });
    bench.runner.starting = () => Promise.reject(new BerthError("INVALID_ARGUMENT", "on purpose"));
    for (let i = 0; i < 2; i++) {
      const { over } = await bench.exec({ requestId: `${i}` });
      await expect(over).rejects.toMatchObject({ reason: "INVALID_ARGUMENT" });
    }
    expect(bench.operations).toBe(0);
    await bench.clock.advance(1_000);
    expect(bench.stored).toEqual([]);
  });

  test.each([
    ["an unknown sandbox", { sandboxId: "nothing" }, "SANDBOX_NOT_FOUND"],
    ["another owner's sandbox", { owner: "somebody else" }, "SANDBOX_NOT_FOUND"],
    ["another generation of the sandbox", { generation: 7 }, "SANDBOX_REPLACED"],
  ])("in %s is refused", async (_, wrong, reason) => {
    const bench = await ProcessBench.start();
    const { over } = await bench.exec({ sandbox: { ...bench.sandbox, ...wrong } });
    await expect(over).rejects.toMatchObject({ reason });
    expect(bench.runner.jobs).toEqual([]);
  });

  test("in a paused sandbox is refused", async () => {
    const bench = await ProcessBench.start();
    await bench.sandboxes.pause(bench.sandbox, never);
    const { over } = await bench.exec();
    await expect(over).rejects.toMatchObject({ reason: "SANDBOX_NOT_RUNNING" });
  });

  test("makes the process wait for a reader that does not keep up", async () => {
    const bench = await ProcessBench.start({ windowBytes: 12_000 });
    const events = bench.processes.exec(bench.request(), never);
    await events.next();
    bench.job.write("x".repeat(9_000));
    expect(bench.job.paused).toBe(false);
    bench.job.write("x".repeat(9_000));
    expect(bench.job.paused).toBe(true);
    let read = 0;
    while (read < 18_000) {
      const { value } = await events.next();
      if (value?.type !== "output") throw new Error(`not output: ${value?.type}`);
      read += value.data.length;
    }
    expect(bench.job.paused).toBe(false);
  });

  test("sends keepalives while there is nothing else", async () => {
    const bench = await ProcessBench.start({ keepaliveMs: 1 });
    const events = bench.processes.exec(bench.request(), never);
    expect((await events.next()).value).toMatchObject({ type: "started" });
    expect((await events.next()).value).toEqual({ type: "keepalive" });
    await events.return(undefined);
  });

  test("shows output at once, also if it arrives while the stream starts to wait", async () => {
    const bench = await ProcessBench.start({ keepaliveMs: 500 });
    const events = bench.processes.exec(bench.request(), never);
    await events.next();
    for (let turns = 0; turns < 8; turns++) {
      const next = events.next();
      for (let turn = 0; turn < turns; turn++) await Promise.resolve();
      bench.job.write(`${turns}`);
      expect((await next).value).toMatchObject({ type: "output", offset: turns });
    }
    await events.return(undefined);
  });

  test.each([
    ["a signal", 128 + SIGKILL, 0, "SIGNALED"],
    ["want of memory", 128 + SIGKILL, 1, "OUT_OF_MEMORY"],
    ["itself, though memory was short", 1, 1, "EXITED"],
  ])("reports that %s ended the process", async (_, code, oomKills, cause) => {
    const bench = await ProcessBench.start();
    const stream = await bench.exec();
    bench.runner.oomKills = oomKills;
    bench.job.exit(code);
    await stream.over;
    expect(stream.status).toMatchObject({ cause, exitCode: code, signal: Math.max(0, code - 128) });
  });

  test("explains only one end by an OOM kill", async () => {
    const bench = await ProcessBench.start();
    const [first, second] = [await bench.exec(), await bench.exec()];
    bench.runner.oomKills = 1;
    for (const job of bench.runner.jobs) {
      job.exit(128 + SIGKILL);
      await settled();
    }
    expect([first.status?.cause, second.status?.cause]).toEqual(["OUT_OF_MEMORY", "SIGNALED"]);
  });

  test("explains ends that follow each other by one OOM kill each", async () => {
    const bench = await ProcessBench.start();
    const streams = [await bench.exec(), await bench.exec(), await bench.exec()];
    bench.runner.oomKills = 2;
    for (const job of bench.runner.jobs) {
      job.exit(128 + SIGKILL);
      await settled();
    }
    expect(streams.map(({ status }) => status?.cause)).toEqual([
      "OUT_OF_MEMORY",
      "OUT_OF_MEMORY",
      "SIGNALED",
    ]);
  });

  test("does not explain an end by an OOM kill from before the start", async () => {
    const bench = await ProcessBench.start();
    bench.runner.starting = settled;
    bench.runner.oomKills = 1;
    const stream = await bench.exec();
    bench.job.exit(128 + SIGKILL);
    await stream.over;
    expect(stream.status?.cause).toBe("SIGNALED");
  });

  test.each([
    ["SANDBOX_TERMINATED", "SANDBOX_TERMINATED"],
    ["ENGINE_UNAVAILABLE", "ENGINE_LOST"],
  ] as const)("reports a job that is lost with %s as %s", async (reason, cause) => {
    const bench = await ProcessBench.start();
    const stream = await bench.exec();
    bench.job.lose(new BerthError(reason, "on purpose"));
    await stream.over;
    expect(stream.status).toMatchObject({ cause, exitCode: -1, message: "on purpose" });
  });

  test("ends a process that writes more than its limit at once, and keeps what fits", async () => {
    const bench = await ProcessBench.start({ killGraceMs: DAY_MS });
    const stream = await bench.exec({ outputLimitBytes: 10 });
    const { job } = bench;
    job.onSignal = (signal) => signal === SIGKILL && job.exit(137);
    job.write("12345678");
    job.write("abcdef");
    await stream.over;
    expect(stream.stdout).toBe("12345678ab");
    expect(stream.status).toMatchObject({ cause: "OUTPUT_LIMIT", stdoutBytes: 10 });
  });

  test("ends a process that exceeds its limit before it is known to run", async () => {
    const bench = await ProcessBench.start();
    bench.runner.starting = async (output) => output("stdout", Buffer.from("too much"));
    const stream = await bench.exec({ outputLimitBytes: 3 });
    await stream.over;
    expect(stream.stdout).toBe("too");
    expect(stream.status).toMatchObject({ cause: "OUTPUT_LIMIT" });
    expect(bench.job.runs).toBe(false);
  });
});

describe("run", () => {
  const run = (bench: ProcessBench, more: Partial<CommandRequest> = {}, maxBytes = 100, signal = never) => {
    const collected = bench.processes.run(bench.request(more), maxBytes, signal);
    collected.catch(() => {});
    return collected;
  };

  test("returns the output and the end", async () => {
    const bench = await ProcessBench.start();
    const result = run(bench);
    await settled();
    bench.job.write("out");
    bench.job.write("err", "stderr");
    bench.job.exit(0);
    const { processId, status, stdout, stderr } = await result;
    expect(bench.processes.get(OWNER, processId).status).toBe(status);
    expect(status).toMatchObject({ cause: "EXITED", exitCode: 0 });
    expect(stdout.result()).toEqual({ data: Buffer.from("out"), gap: undefined });
    expect(stderr.result()).toEqual({ data: Buffer.from("err"), gap: undefined });
  });

  test("returns head and tail of output that is too long", async () => {
    const bench = await ProcessBench.start();
    const result = run(bench, {}, 10);
    await settled();
    bench.job.write("head-");
    bench.job.write("x".repeat(500));
    bench.job.write("-tail");
    bench.job.exit(0);
    const { stdout, status } = await result;
    expect(stdout.result()).toEqual({ data: Buffer.from("head--tail"), gap: { from: 5, to: 505 } });
    expect(status.stdoutBytes).toBe(510);
  });

  test("takes memory until its call is over, and returns less if there is no more", async () => {
    const memory = new MemoryBudget(200_000, 0);
    const bench = await ProcessBench.start({ memory });
    const calls = [new AbortController(), new AbortController()];
    const results = calls.map(({ signal }) => run(bench, {}, 100_000, signal));
    await settled();
    for (const [index, job] of bench.runner.jobs.entries()) {
      job.write(`head of ${index}`.padEnd(50_000, "."));
      job.write(`tail of ${index}`.padStart(50_000, "."));
      job.exit(0);
    }
    const [whole, cut] = await Promise.all(results);
    expect(whole?.stdout.result()).toMatchObject({ data: { length: 100_000 }, gap: undefined });
    const { data, gap } = cut?.stdout.result() ?? {};
    expect(data?.toString()).toMatch(/^head of 1\.{16000,}tail of 1$/);
    expect(cut?.status).toMatchObject({ cause: "EXITED", exitCode: 0, stdoutBytes: 100_000 });
    expect(100_000 - (gap?.to ?? 0) + (gap?.from ?? 0)).toBe(data?.length);
    expect(memory.of(OWNER)).toBeGreaterThanOrEqual(50_000);
    for (const call of calls) call.abort();
    expect(memory.of(OWNER)).toBe(0);
  });

  test("counts dropped output as part of the gap", async () => {
    const bench = await ProcessBench.start({ windowBytes: 12_000 });
    const request = { requestId: "r1", fingerprint: "f" };
    const first = run(bench, request);
    await settled();
    for (let i = 0; i < 5; i++) {
      bench.job.write("x".repeat(9_000));
      await settled();
    }
    bench.job.exit(0);
    await first;
    const { stdout } = await run(bench, request, 30_000);
    const { data, gap } = stdout.result();
    expect(data).toHaveLength(18_000);
    expect(gap).toEqual({ from: 9_000, to: 36_000 });
  });

  test("whose caller leaves throws CANCELED, and stops the process", async () => {
    const bench = await ProcessBench.start();
    const caller = new AbortController();
    const result = run(bench, {}, 100, caller.signal);
    await settled();
    caller.abort();
    await expect(result).rejects.toMatchObject({ reason: "CANCELED" });
    await settled();
    expect(bench.job.signals).toEqual([SIGTERM]);
  });
});

describe("attach", () => {
  test("streams from the given offset, also after the end", async () => {
    const bench = await ProcessBench.start();
    const stream = await bench.exec();
    bench.job.write("0123456789");
    const during = await bench.attach(stream.processId, 4);
    bench.job.write("abc");
    bench.job.exit(0);
    await during.over;
    expect(during.events[0]).toMatchObject({ type: "started", processId: stream.processId });
    expect(during.stdout).toBe("456789abc");
    const after = await bench.attach(stream.processId, 11);
    await after.over;
    expect(after.stdout).toBe("bc");
    expect(after.status).toEqual(during.status);
  });

  test("at an offset beyond the bytes written is refused", async () => {
    const bench = await ProcessBench.start();
    const stream = await bench.exec();
    bench.job.write("0123");
    const { over } = await bench.attach(stream.processId, 5);
    await expect(over).rejects.toMatchObject({ reason: "OFFSET_OUT_OF_RANGE", metadata: { written: "4" } });
  });

  test("to another owner's process is refused", async () => {
    const bench = await ProcessBench.start();
    const stream = await bench.exec();
    const { over } = await bench.attach(stream.processId, 0, "somebody else");
    await expect(over).rejects.toMatchObject({ reason: "PROCESS_NOT_FOUND" });
  });

  test("never makes the process wait; a slow reader gets a gap", async () => {
    const bench = await ProcessBench.start({ windowBytes: 12_000 });
    const stream = await bench.exec();
    const slow = bench.processes.attach(OWNER, stream.processId, { stdout: 0, stderr: 0 }, never);
    await slow.next();
    for (let i = 0; i < 5; i++) {
      bench.job.write("x".repeat(9_000));
      await settled();
    }
    expect(bench.job.paused).toBe(false);
    bench.job.exit(0);
    await stream.over;
    const types: string[] = [];
    for await (const { type } of slow) types.push(type);
    expect(stream.stdout).toHaveLength(45_000);
    expect(types).toEqual(["output", "gap", "output", "exited"]);
  });

  test("that leaves does not end the process", async () => {
    const bench = await ProcessBench.start();
    const stream = await bench.exec();
    const follower = await bench.attach(stream.processId);
    follower.leave();
    await follower.over;
    bench.job.exit(0);
    await stream.over;
    expect(stream.status).toMatchObject({ cause: "EXITED" });
  });
});

describe("a request id", () => {
  const request = { requestId: "r1", fingerprint: "f" };

  test("joins concurrent requests to one process", async () => {
    const bench = await ProcessBench.start();
    const starting = gate();
    bench.runner.starting = () => starting.promise;
    const first = await bench.exec(request);
    const second = await bench.exec(request);
    starting.resolve();
    await settled();
    bench.job.write("once");
    bench.job.exit(0);
    await Promise.all([first.over, second.over]);
    expect(bench.runner.jobs).toHaveLength(1);
    expect([first.stdout, second.stdout]).toEqual(["once", "once"]);
    expect(second.processId).toBe(first.processId);
  });

  test("with a grace starts one process, even if its caller is lost during the start and comes back", async () => {
    const bench = await ProcessBench.start();
    const starting = gate();
    bench.runner.starting = () => starting.promise;
    const graceful = { ...request, disconnectGraceMs: 60_000 };
    const lost = await bench.exec(graceful);
    lost.leave();
    await settled();
    const back = await bench.exec(graceful);
    starting.resolve();
    await settled();
    bench.job.write("once");
    await bench.clock.advance(120_000);
    expect(bench.job.signals).toEqual([]);
    bench.job.exit(0);
    await back.over;
    expect(bench.runner.jobs).toHaveLength(1);
    expect(back.stdout).toBe("once");
  });

  test("with a grace starts a process that ends after it, if its caller is lost during the start", async () => {
    const bench = await ProcessBench.start();
    const starting = gate();
    bench.runner.starting = () => starting.promise;
    const lost = await bench.exec({ ...request, disconnectGraceMs: 60_000 });
    lost.leave();
    await settled();
    starting.resolve();
    await settled();
    await bench.clock.advance(59_999);
    expect(bench.job.signals).toEqual([]);
    await bench.clock.advance(1);
    expect(bench.job.signals).toEqual([SIGTERM]);
  });

  test("keeps the process while one of its callers is connected", async () => {
    const bench = await ProcessBench.start();
    const first = await bench.exec(request);
    const second = await bench.exec(request);
    first.leave();
    await settled();
    expect(bench.job.signals).toEqual([]);
    second.leave();
    await settled();
    expect(bench.job.signals).toEqual([SIGTERM]);
  });

  test("gets the same process again after its end", async () => {
    const bench = await ProcessBench.start();
    const first = await bench.exec(request);
    bench.job.write("once");
    bench.job.exit(4);
    await first.over;
    const again = await bench.exec(request);
    await again.over;
    expect(again.events).toEqual(first.events);
    expect(bench.runner.jobs).toHaveLength(1);
  });

  test("with other parameters is refused", async () => {
    const bench = await ProcessBench.start();
    await bench.exec(request);
    const { over } = await bench.exec({ ...request, fingerprint: "other" });
    await expect(over).rejects.toMatchObject({ reason: "REQUEST_ID_REUSED" });
  });

  test("of a start that failed runs again", async () => {
    const bench = await ProcessBench.start();
    bench.runner.starting = () => Promise.reject(new BerthError("ENGINE_UNAVAILABLE", "on purpose"));
    const { over } = await bench.exec(request);
    await expect(over).rejects.toMatchObject({ reason: "ENGINE_UNAVAILABLE" });
    bench.runner.starting = async () => {};
    const again = await bench.exec(request);
    expect(again.events).toMatchObject([{ type: "started" }]);
  });

  test("that is missing starts a process each time", async () => {
    const bench = await ProcessBench.start();
    const [first, second] = [await bench.exec(), await bench.exec()];
    expect(first.processId).not.toBe(second.processId);
  });
});

describe("the limit of processes in a sandbox", () => {
  test("holds for processes that start at once", async () => {
    const bench = await ProcessBench.start({ maxProcesses: 2 });
    const starting = gate();
    bench.runner.starting = () => starting.promise;
    const streams = await Promise.all([bench.exec(), bench.exec(), bench.exec()]);
    await expect(streams[2]?.over).rejects.toMatchObject({
      reason: "TOO_MANY_OPERATIONS",
      metadata: { limit: "2" },
    });
    starting.resolve();
    await settled();
    expect(bench.runner.jobs).toHaveLength(2);
    expect(bench.operations).toBe(2);
  });

  test("has room again when a process has ended", async () => {
    const bench = await ProcessBench.start({ maxProcesses: 1 });
    const first = await bench.exec();
    await expect((await bench.exec()).over).rejects.toMatchObject({ reason: "TOO_MANY_OPERATIONS" });
    bench.job.exit(0);
    await first.over;
    expect((await bench.exec()).events).toMatchObject([{ type: "started" }]);
  });

  test("is separate for each sandbox", async () => {
    const bench = await ProcessBench.start({ maxProcesses: 1 });
    await bench.exec();
    const { sandboxId } = await bench.sandboxes.create(OWNER, {}, { signal: never });
    const stream = await bench.exec({ sandbox: { owner: OWNER, sandboxId } });
    expect(stream.events).toMatchObject([{ type: "started" }]);
  });
});

describe("the list", () => {
  test("has a sandbox's processes newest first, in parts", async () => {
    const bench = await ProcessBench.start();
    const ids: string[] = [];
    for (let i = 0; i < 3; i++) {
      ids.unshift((await bench.exec()).processId);
      await bench.clock.advance(1);
    }
    const first = await bench.processes.list(bench.sandbox, true, { limit: 2 });
    expect(first.items.map(({ id }) => id)).toEqual(ids.slice(0, 2));
    const rest = await bench.processes.list(bench.sandbox, true, { limit: 2, after: first.next });
    expect(rest.items.map(({ id }) => id)).toEqual(ids.slice(2));
    expect(rest.next).toBeUndefined();
  });

  test("has ended processes if they are requested", async () => {
    const bench = await ProcessBench.start();
    const ended = await bench.exec();
    bench.job.exit(0);
    await ended.over;
    await bench.clock.advance(1);
    const { processId } = await bench.exec();
    const ids = async (showEnded: boolean) =>
      (await bench.processes.list(bench.sandbox, showEnded, WHOLE)).items.map(({ id }) => id);
    expect(await ids(false)).toEqual([processId]);
    expect(await ids(true)).toEqual([processId, ended.processId]);
  });

  test("of another owner's sandbox is refused", async () => {
    const bench = await ProcessBench.start();
    const list = bench.processes.list({ ...bench.sandbox, owner: "somebody else" }, true, WHOLE);
    await expect(list).rejects.toThrow("There is no sandbox");
  });

  test("forgets a process 24 hours after its end, in the store as well", async () => {
    const bench = await ProcessBench.start();
    const spec = { idleTimeoutMs: 3 * DAY_MS };
    const { sandboxId } = await bench.sandboxes.create(OWNER, spec, { signal: never });
    const stream = await bench.exec({ sandbox: { owner: OWNER, sandboxId } });
    bench.job.exit(0);
    await stream.over;
    await bench.clock.advance(DAY_MS - 1);
    expect(bench.processes.get(OWNER, stream.processId).status).toMatchObject({ cause: "EXITED" });
    expect(bench.stored).toEqual([stream.processId]);
    await bench.clock.advance(1);
    expect((await bench.processes.list({ owner: OWNER, sandboxId }, true, WHOLE)).items).toEqual([]);
    const { over } = await bench.attach(stream.processId);
    await expect(over).rejects.toMatchObject({ reason: "PROCESS_NOT_FOUND" });
    await bench.clock.advance(1_000);
    expect(bench.stored).toEqual([]);
  });

  test("does not store again a process that it has forgotten while its caller still read", async () => {
    const bench = await ProcessBench.start();
    const events = bench.processes.exec(bench.request({ requestId: "a", fingerprint: "a" }), never);
    const { value: first } = await events.next();
    const processId = first?.type === "started" ? first.processId : "";
    bench.job.exit(0);
    await settled();
    await bench.clock.advance(DAY_MS);
    expect(() => bench.processes.get(OWNER, processId)).toThrow("There is no process");
    await bench.clock.advance(1_000);
    expect(bench.stored).toEqual([]);
    expect((await events.next()).value).toMatchObject({ type: "exited" });
    await bench.clock.advance(1_000);
    expect(bench.stored).toEqual([]);
  });
});
