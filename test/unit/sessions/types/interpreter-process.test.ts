import { afterEach, expect, test, vi } from "vitest";
import type { OutputStream } from "../../../../src/engine/port.ts";
import type { LeasedSandbox } from "../../../../src/sandboxes/lease.ts";
import {
  type InterpreterHost,
  type InterpreterLanguage,
  InterpreterProcess,
} from "../../../../src/sessions/types/interpreter-process.ts";
import { keptBytes } from "../../../support/kept-bytes.ts";

afterEach(() => vi.restoreAllMocks());

const SANDBOX = { user: "" } as LeasedSandbox;
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
  const host = { runner: { start: async () => job } } as unknown as InterpreterHost;
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
  const host = { runner: { start }, shells } as unknown as InterpreterHost;
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
