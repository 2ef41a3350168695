import { spawn as spawnHere } from "node:child_process";
import { once } from "node:events";
import { expect, test } from "vitest";
import { canceled } from "../../../../src/base/errors.ts";
import { stdinClosed } from "../../../../src/engine/pipe-streams.ts";
import type { Engine, OutputSink, SpawnedProcess, SpawnRequest } from "../../../../src/engine/port.ts";
import { ShellGoneError } from "../../../../src/processes/shell/errors.ts";
import type { JobRequest } from "../../../../src/processes/shell/job.ts";
import { PlainRunner } from "../../../../src/processes/shell/plain-job.ts";
import type { LeasedSandbox } from "../../../../src/sandboxes/lease.ts";

const sandbox = { ref: "ref", sandboxId: "sbx", user: "" } as LeasedSandbox;
const request: JobRequest = {
  ...{ argv: ["true"], env: {}, workingDir: "/", user: "", stdin: true },
  terminal: { columns: 80, rows: 24 },
};

test("a shell with a terminal that ends before its job fails as a shell that has ended", async () => {
  const spawn = async (_ref: string, _request: unknown, sink: OutputSink): Promise<SpawnedProcess> => {
    setImmediate(() => sink.end());
    return { writeStdin: () => Promise.reject(stdinClosed()), close() {} } as unknown as SpawnedProcess;
  };
  const runner = new PlainRunner({ spawn } as unknown as Engine);
  const starting = runner.start(sandbox, request, () => {}, new AbortController().signal);
  await expect(starting).rejects.toBeInstanceOf(ShellGoneError);
});

test.each([
  ["a terminal", request.terminal],
  ["pipes", undefined],
])("a start with %s that the engine gives up halfway runs nothing", async (_, terminal) => {
  const codes: unknown[] = [];
  // The engine has started the shell and passed on what it has. Then the shell loses its stdin.
  const spawn = async (_ref: string, { argv, env, input = Buffer.of() }: SpawnRequest): Promise<never> => {
    const [file = "", ...args] = argv;
    const shell = spawnHere(file, args, {
      env: { PATH: process.env.PATH, ...env },
      stdio: ["pipe", "ignore", "ignore"],
    });
    shell.stdin.end(input);
    codes.push(...(await once(shell, "exit")).slice(0, 1));
    throw canceled();
  };
  const runner = new PlainRunner({ spawn } as unknown as Engine);
  const job: JobRequest = { ...request, argv: ["/bin/sh", "-c", "exit 7"], terminal };
  await expect(runner.start(sandbox, job, () => {}, new AbortController().signal)).rejects.toThrow();
  expect(codes).toEqual([1]);
});
