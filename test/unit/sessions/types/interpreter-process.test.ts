import { afterEach, expect, test, vi } from "vitest";
import type { OutputStream } from "../../../../src/engine/port.ts";
import type { LeasedSandbox } from "../../../../src/sandboxes/lease.ts";
import { HeldMemory } from "../../../../src/sessions/types/held-memory.ts";
import {
  type InterpreterHost,
  type InterpreterLanguage,
  InterpreterProcess,
} from "../../../../src/sessions/types/interpreter-process.ts";
import { keptBytes } from "../../../support/kept-bytes.ts";

afterEach(() => vi.restoreAllMocks());

const MIB = 1024 * 1024;
const SANDBOX = { user: "", owner: "owner" } as LeasedSandbox;
const PLACE = { sessionId: "s", env: {}, secretEnv: {}, redactSecrets: false, workingDir: "/" };
const PIPES = { stdout: "/proc/self/fd/1", stderr: "/proc/self/fd/2" };
const NEVER = new AbortController().signal;

test("an interpreter that does not answer is a failed start, not a canceled call", async () => {
  const timeout = AbortSignal.timeout.bind(AbortSignal);
  vi.spyOn(AbortSignal, "timeout").mockImplementation((ms) => timeout(ms === 30_000 ? 1 : ms));
  let isClosed = false;
  const job = {
    end: new Promise(() => {}),
    writeStdin: async () => {},
    ...{ resume: () => {}, trickle: () => {}, closeStdin: () => {}, hold: () => undefined },
    close: () => {
      isClosed = true;
    },
  };
  const memory = new HeldMemory();
  const host = { runner: { start: async () => job }, memory } as unknown as InterpreterHost;
  const language: InterpreterLanguage = {
    ...{ argv: ["bash"], boot: "", pipes: PIPES, maxPayloadBytes: 100 },
    ...{ run: () => "", printEnd: () => "", pidsOf: () => ({ own: 0, seen: [] }) },
  };
  const started = InterpreterProcess.start(host, language, SANDBOX, PLACE, NEVER);
  await expect(started).rejects.toMatchObject({
    reason: "SESSION_START_FAILED",
    message: "bash did not answer within 30 s.",
  });
  expect(isClosed).toBe(true);
});

test("executions that leave processes running keep nothing of themselves", async () => {
  let say: (stream: OutputStream, chunk: Buffer) => void = () => {};
  const job = {
    ...{ pid: 1, end: new Promise(() => {}), hold: () => undefined },
    ...{ pause: () => {}, resume: () => {}, trickle: () => {}, closeStdin: () => {}, close: () => {} },
    writeStdin: async (nonce: Buffer) => {
      say("stdout", Buffer.from(`${nonce}E0;${nonce}P;`));
      say("stderr", Buffer.from(`${nonce}E0;`));
    },
  };
  const start = async (_sandbox: unknown, _request: unknown, output: typeof say) => {
    say = output;
    return job;
  };
  const shells = { ask: async () => "n" };
  const host = {
    runner: { start },
    shells,
    memory: new HeldMemory(),
  } as unknown as InterpreterHost;
  // Each execution leaves another process, which does not hold the pipes.
  let lastPid = 1;
  const language: InterpreterLanguage = {
    ...{ argv: ["bash"], boot: "", pipes: PIPES, maxPayloadBytes: 100 },
    ...{ run: (_, nonce) => nonce, printEnd: (nonce) => nonce },
    pidsOf: () => ({ own: 1, seen: [++lastPid] }),
  };
  const interpreter = await InterpreterProcess.start(host, language, SANDBOX, PLACE, NEVER);
  const run = async (times: number): Promise<void> => {
    const bounds = { stop: NEVER, output: () => undefined };
    for (let i = 0; i < times; i++) await interpreter.run("", bounds);
  };
  await run(100);
  const before = await keptBytes();
  await run(1_000);
  expect((await keptBytes()) - before).toBeLessThan(300_000);
});

/** Starts an interpreter that says `report` at the end of code, and completes it unless the code is "stall". */
async function startReporter(report: Buffer, memory = new HeldMemory()) {
  let say: (stream: OutputStream, chunk: Buffer) => void = () => {};
  const ended = Promise.withResolvers<{ readonly kind: "exited"; readonly code: number }>();
  const job = {
    ...{ pid: 1, end: ended.promise, hold: () => () => {} },
    ...{ pause: () => {}, resume: () => {}, trickle: () => {}, closeStdin: () => {}, close: () => {} },
    writeStdin: async (request: Buffer) => {
      const [nonce = "", code] = request.toString().split(" ");
      say("stdout", Buffer.from(`${nonce}E0;${nonce}D;`));
      if (code !== undefined) say("stdout", report);
      if (code === "stall") return;
      say("stdout", Buffer.from(`${nonce}G;${nonce}P;`));
      say("stderr", Buffer.from(`${nonce}E0;`));
    },
  };
  const start = async (_sandbox: unknown, _request: unknown, output: typeof say) => {
    say = output;
    return job;
  };
  const control = { killTree: async () => ended.resolve({ kind: "exited", code: 137 }) };
  const host = { ...{ runner: { start }, control, memory }, shells: { ask: async () => "n" } };
  const language: InterpreterLanguage = {
    ...{ argv: ["python3"], boot: "", pipes: PIPES, maxPayloadBytes: 4 * MIB },
    ...{ run: (code, nonce) => `${nonce} ${code}`, printEnd: (nonce) => nonce },
    pidsOf: () => ({ own: 1, seen: [1] }),
  };
  return InterpreterProcess.start(host as unknown as InterpreterHost, language, SANDBOX, PLACE, NEVER);
}

test("interpreters whose reports are unfinished share memory, and beyond it one is lost", async () => {
  const memory = new HeldMemory(3 * MIB);
  const report = Buffer.alloc(2 * MIB, "x");
  const bounds = { stop: NEVER, output: () => undefined };
  const [first, second] = [await startReporter(report, memory), await startReporter(report, memory)];
  // One that is complete takes nothing.
  for (const each of [first, second]) expect(await each.run("done", bounds)).toMatchObject({ kind: "done" });
  const [lost] = [first, second].map((each) => each.run("stall", bounds).catch((error: unknown) => error));
  await expect.poll(() => [first.alive, second.alive]).toEqual([false, true]);
  expect(await lost).toMatchObject({
    reason: "SESSION_LOST",
    message: expect.stringContaining("its report was unfinished when the server had no room for more"),
  });
});

test("an interpreter that rests keeps nothing of its report in memory", async () => {
  const report = Buffer.alloc(3 * MIB, "x");
  const before = await keptBytes();
  const resting = await Promise.all(
    Array.from({ length: 10 }, async () => {
      const interpreter = await startReporter(report);
      await interpreter.run("done", { stop: NEVER, output: () => undefined });
      return interpreter;
    }),
  );
  expect((await keptBytes()) - before).toBeLessThan(2 * MIB);
  expect(resting.every(({ alive }) => alive)).toBe(true);
});
