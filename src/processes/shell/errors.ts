import { rest } from "../../base/async.ts";
import { abortError, BerthError, hasReason, invalidArgument } from "../../base/errors.ts";
import type { LeasedSandbox } from "../../sandboxes/lease.ts";
import type { ProcessControl } from "../control.ts";

/** How long the report of a sandbox's end may take, after its processes have ended, and if it is seen to be ending. */
const SANDBOX_END_MS = 1_000;
const SEEN_END_MS = 30_000;
const LOOK_MS = 50;

/**
 * A shell inside a sandbox ended before it had done its task. The sandbox itself may still run: a command can kill
 * every shell that it is allowed to signal.
 */
export class ShellGoneError extends BerthError {
  /** @param output what the shell had written before, if anything. */
  constructor(output: string) {
    const why =
      output.trim() === "" ? "something in the sandbox killed it, or the sandbox ended." : output.trim();
    super("ENGINE_UNAVAILABLE", `A shell in the sandbox ended before it could start the command: ${why}`, {
      retryAfterMs: 1000,
    });
  }
}

/** The error for a shell whose streams ended: the engine's error if that was the cause. */
export function shellGone(output: string, lost: Error | undefined): BerthError {
  return lost instanceof BerthError ? lost : new ShellGoneError(output);
}

/**
 * The error of an operation in a sandbox: why the sandbox ended, if a shell or the container is gone because of that,
 * else the given error. Waits until that is reported.
 * @param signal the operation's signal, which aborts at the latest with the lease's. Its reason counts if it aborts.
 */
export async function orSandboxEnd(
  error: unknown,
  sandbox: LeasedSandbox,
  signal: AbortSignal,
  control: Pick<ProcessControl, "isEnding">,
): Promise<unknown> {
  if (error instanceof ShellGoneError || hasReason(error, "SANDBOX_TERMINATED"))
    await sandboxEnd(sandbox, signal, control);
  return signal.aborted ? abortError(signal) : error;
}

/**
 * Resolves when the signal aborts, as it does when the sandbox's end is reported, or when that is no longer expected:
 * the sandbox is not ending.
 */
export async function sandboxEnd(
  sandbox: LeasedSandbox,
  signal: AbortSignal,
  control: Pick<ProcessControl, "isEnding"> | undefined,
): Promise<void> {
  await rest(SANDBOX_END_MS, signal);
  const end = performance.now() + SEEN_END_MS;
  while (!signal.aborted && performance.now() < end && (await control?.isEnding(sandbox)))
    await rest(LOOK_MS, signal);
}

/** The error for a job that did not start in time. */
export function tooSlow(): BerthError {
  return new BerthError(
    "ENGINE_UNAVAILABLE",
    "The command did not start in time; whether it will run is not known.",
  );
}

/** The error for a working directory that cannot be entered. */
export function workingDirMissing(workingDir: string): BerthError {
  const path = JSON.stringify(workingDir);
  return invalidArgument("working_dir", `${path} is not a directory that the user may enter in the sandbox.`);
}

/** The error for a command that could not start because of the sandbox's limit of processes. */
export function noProcesses(cause?: unknown): BerthError {
  return new BerthError(
    "TOO_MANY_OPERATIONS",
    "The command could not start: the sandbox has reached its pids_limit. End some of its processes, for instance by ending the command that started them, or raise the limit.",
    { cause, retryAfterMs: 1000 },
  );
}
