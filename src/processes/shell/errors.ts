import { setTimeout as sleep } from "node:timers/promises";
import { abortError, BerthError } from "../../base/errors.ts";
import type { Lease } from "../../sandboxes/lease.ts";

/** How long the end of a sandbox may take to be told after its processes have gone. */
const SANDBOX_END_MS = 1_000;

/**
 * A shell inside a sandbox ended before it did what it was told. The sandbox
 * may well live: a command can kill every shell that it may signal.
 */
export class ShellGoneError extends BerthError {
  /** @param said what it wrote before, if anything. */
  constructor(said: string) {
    const why =
      said.trim() === "" ? "something in the sandbox killed it, or the sandbox ended." : said.trim();
    super("ENGINE_UNAVAILABLE", `The shell that was to do it ended before it began: ${why}`, {
      retryAfterMs: 1000,
    });
  }
}

/** The error for a shell whose streams ended: the engine's own where that was the reason. */
export function shellGone(said: string, lost: Error | undefined): BerthError {
  return lost instanceof BerthError ? lost : new ShellGoneError(said);
}

/** The end of the sandbox where that is why a shell is gone, as is told soon; else the error itself. */
export async function orSandboxEnd(error: unknown, lease: Lease): Promise<unknown> {
  if (!(error instanceof ShellGoneError)) return error;
  await sandboxEnd(lease);
  return lease.signal.aborted ? abortError(lease.signal) : error;
}

/** Resolves when the sandbox's end is told, which aborts the signal, or when that is not to be expected any more. */
export async function sandboxEnd({ signal }: Pick<Lease, "signal">): Promise<void> {
  await sleep(SANDBOX_END_MS, undefined, { signal, ref: false }).catch(() => {});
}
