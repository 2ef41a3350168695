import { setTimeout as sleep } from "node:timers/promises";
import { abortError, BerthError, invalidArgument } from "../../base/errors.ts";
import type { Lease } from "../../sandboxes/lease.ts";

/** How long the end of a sandbox may take to be reported after its processes have gone. */
const SANDBOX_END_MS = 1_000;

/**
 * A shell inside a sandbox ended before it did what it was asked to. The sandbox
 * may well live: a command can kill every shell that it may signal.
 */
export class ShellGoneError extends BerthError {
  /** @param output what the shell wrote before, if anything. */
  constructor(output: string) {
    const why =
      output.trim() === "" ? "something in the sandbox killed it, or the sandbox ended." : output.trim();
    super("ENGINE_UNAVAILABLE", `A shell in the sandbox ended before it could start the command: ${why}`, {
      retryAfterMs: 1000,
    });
  }
}

/** The error for a shell whose streams ended: the engine's own where that was the reason. */
export function shellGone(output: string, lost: Error | undefined): BerthError {
  return lost instanceof BerthError ? lost : new ShellGoneError(output);
}

/** The end of the sandbox where that is why a shell is gone, as is reported soon; else the error itself. */
export async function orSandboxEnd(error: unknown, lease: Lease): Promise<unknown> {
  if (!(error instanceof ShellGoneError)) return error;
  await sandboxEnd(lease);
  return lease.signal.aborted ? abortError(lease.signal) : error;
}

/** Resolves when the sandbox's end is reported, which aborts the signal, or is no longer expected. */
export async function sandboxEnd({ signal }: Pick<Lease, "signal">): Promise<void> {
  await sleep(SANDBOX_END_MS, undefined, { signal, ref: false }).catch(() => {});
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

/** The error for a command that found no room for another process. */
export function noProcesses(cause?: unknown): BerthError {
  return new BerthError(
    "TOO_MANY_OPERATIONS",
    "The command could not start: the sandbox has reached its pids_limit. End some of its processes, for instance by ending the command that started them, or raise the limit.",
    { cause, retryAfterMs: 1000 },
  );
}
