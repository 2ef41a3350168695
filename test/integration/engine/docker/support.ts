import { randomBytes } from "node:crypto";
import { afterAll, expect } from "vitest";
import type { BerthError, ErrorReason } from "../../../../src/base/errors.ts";
import type { Logger } from "../../../../src/base/logger.ts";
import { DockerEngine, type DockerEngineOptions } from "../../../../src/engine/docker/engine.ts";
import type { Engine, EngineSandboxSpec, OutputSink, SpawnRequest } from "../../../../src/engine/port.ts";
import { removeContainers } from "../../../support/docker.ts";
import { TEST_IMAGE } from "../../../support/images.ts";
import { ScriptPython } from "../../../support/script-python.ts";
import type { ScriptRunner } from "../../../support/script-runner.ts";
import { ScriptShell } from "../../../support/script-shell.ts";
import { newInstance } from "../../../support/settings.ts";

export const silent: Logger = { debug() {}, info() {}, warn() {}, error() {} };

/** An engine with its own instance, whose containers are removed after the file's tests. */
export function useEngine(options: Partial<DockerEngineOptions> = {}): {
  engine: DockerEngine;
  instance: string;
} {
  const instance = newInstance();
  const engine = new DockerEngine({ instance, logger: silent, ...options });
  afterAll(async () => {
    await engine.close();
    await removeContainers(instance);
  });
  return { engine, instance };
}

export function spec(changes: Partial<EngineSandboxSpec> = {}): EngineSandboxSpec {
  return {
    sandboxId: `sbx_${randomBytes(5).toString("hex")}`,
    generation: 1,
    owner: "tester",
    image: TEST_IMAGE,
    env: {},
    workingDir: "/workspace",
    user: "",
    resources: { memoryBytes: 256 << 20, cpuMillis: 1000, pidsLimit: 64, diskBytes: undefined },
    network: "NONE",
    mounts: [],
    runtime: "",
    ...changes,
  };
}

export interface Outcome {
  readonly exitCode: number;
  readonly stdout: Buffer;
  readonly stderr: Buffer;
  /** The argument of the sink's end. */
  readonly broken: Error | undefined;
}

/** Runs a process to its end and to the end of its output. */
export async function run(
  engine: Engine,
  ref: string,
  argv: readonly string[],
  options: Partial<SpawnRequest> & { readonly input?: Uint8Array } = {},
): Promise<Outcome> {
  const { input, ...request } = options;
  const chunks = { stdout: [] as Buffer[], stderr: [] as Buffer[] };
  const ended = Promise.withResolvers<Error | undefined>();
  const spawned = await engine.spawn(
    ref,
    { argv, stdin: input !== undefined, ...request },
    { data: (stream, chunk) => chunks[stream].push(chunk), end: ended.resolve },
  );
  if (input !== undefined) {
    await spawned.writeStdin(input);
    spawned.closeStdin();
  }
  const exitCode = await spawned.wait();
  const broken = await ended.promise;
  return { exitCode, stdout: Buffer.concat(chunks.stdout), stderr: Buffer.concat(chunks.stderr), broken };
}

/** Runs a shell command that must succeed. Returns its stdout. */
export async function sh(engine: Engine, ref: string, command: string, user?: string): Promise<string> {
  const { exitCode, stdout, stderr } = await run(engine, ref, ["sh", "-c", command], user ? { user } : {});
  expect(exitCode, `${command}: ${stderr}`).toBe(0);
  return stdout.toString();
}

/** A shell in a sandbox. */
export async function openShell(
  engine: Engine,
  ref: string,
): Promise<{ readonly shell: ScriptShell; close(): void }> {
  const shell = new ScriptShell((data) => spawned.writeStdin(data));
  const spawned = await engine.spawn(ref, { argv: ["/bin/sh"], stdin: true }, sinkOf(shell));
  return { shell, close: () => spawned.close() };
}

/** A Python interpreter in a sandbox. */
export async function openPython(
  engine: Engine,
  ref: string,
): Promise<{ readonly python: ScriptPython; close(): void }> {
  const python = new ScriptPython((data) => spawned.writeStdin(data));
  const spawned = await engine.spawn(ref, { argv: ScriptPython.argv, stdin: true }, sinkOf(python));
  return { python, close: () => spawned.close() };
}

function sinkOf(runner: ScriptRunner): OutputSink {
  return { data: (stream, chunk) => runner.take(stream, chunk), end: () => runner.end() };
}

/** Expects a promise to reject with a reason. Returns the error. */
export async function failure(promise: Promise<unknown>, reason: ErrorReason): Promise<BerthError> {
  const error = await promise.then(
    () => undefined,
    (thrown: unknown) => thrown as BerthError,
  );
  expect(error, "it should have failed").toMatchObject({ name: "BerthError", reason });
  return error as BerthError;
}

/** Starts processes up to the limit, which stay until its stdin ends. Its exit code is that of their starter. */
export const FORK_BOMB = [
  "/bin/sh",
  "-c",
  `exec 3<&0
sh -c 'for i in $(seq 200); do read x <&3 & done'
code=$?
read x
exit $code`,
];
