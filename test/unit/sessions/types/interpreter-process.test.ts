import { afterEach, expect, test, vi } from "vitest";
import type { LeasedSandbox } from "../../../../src/sandboxes/lease.ts";
import {
  type InterpreterHost,
  type InterpreterLanguage,
  InterpreterProcess,
} from "../../../../src/sessions/types/interpreter-process.ts";

afterEach(() => vi.restoreAllMocks());

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
  const pipes = { stdout: "/proc/self/fd/1", stderr: "/proc/self/fd/2" };
  const language: InterpreterLanguage = {
    ...{ argv: ["bash"], boot: "", pipes, maxPayloadBytes: 100 },
    ...{ run: () => "", printEnd: () => "", pidsOf: () => ({ own: 0, seen: [] }) },
  };
  const place = { sessionId: "s", env: {}, secretEnv: {}, redactSecrets: false, workingDir: "/" };
  const { signal } = new AbortController();
  const started = InterpreterProcess.start(host, language, { user: "" } as LeasedSandbox, place, signal);
  await expect(started).rejects.toMatchObject({
    reason: "SESSION_START_FAILED",
    message: "bash did not answer within 30 s.",
  });
  expect(isClosed).toBe(true);
});
