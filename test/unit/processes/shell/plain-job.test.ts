import { expect, test } from "vitest";
import { stdinClosed } from "../../../../src/engine/pipe-streams.ts";
import type { Engine, OutputSink, SpawnedProcess } from "../../../../src/engine/port.ts";
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
