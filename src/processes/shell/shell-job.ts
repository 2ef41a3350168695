import { setTimeout as sleep } from "node:timers/promises";
import { BerthError, invalidArgument } from "../../base/errors.ts";
import type { SpawnedProcess } from "../../engine/port.ts";
import { signalOf } from "../record.ts";
import type { JobEnd, JobRequest } from "./job.ts";

/** How long a shell may take to begin a job. */
export const BEGIN_TIMEOUT_MS = 30_000;
/** A job that ends soon tells so itself; the engine is asked about longer ones only. */
export const ASK_ENGINE_AFTER_MS = 1_000;
/** How long markers may take after the engine has said that the shell ended. */
const LATE_OUTPUT_MS = 500;

/**
 * Learns from the engine how the shell around a job ended: where no marker
 * tells, because the shell was killed or the connection broke. Undefined when
 * the signal is aborted meanwhile.
 * @param hasEnded called when the shell has ended and its markers may be on their way.
 */
export async function endAsEngineTells(
  spawned: SpawnedProcess,
  streamsOver: () => boolean,
  signal: AbortSignal,
  hasEnded = (): void => {},
): Promise<JobEnd | undefined> {
  try {
    const code = await spawned.wait(signal);
    hasEnded();
    if (!streamsOver()) await sleep(LATE_OUTPUT_MS, undefined, { signal, ref: false });
    return { kind: "exited", code };
  } catch (cause) {
    if (signal.aborted) return undefined;
    if (cause instanceof BerthError) return { kind: "lost", error: cause };
    return {
      kind: "lost",
      error: new BerthError("ENGINE_UNAVAILABLE", "The engine lost the process.", { cause }),
    };
  }
}

/**
 * Whether a shell that tells the end of a job, with this code, and never told
 * its beginning could make no child for it. Else a signal ended that at once.
 */
export function isChildless(code: number): boolean {
  return signalOf(code) === 0;
}

/** The error for a job that did not begin in time. */
export function tooSlow(): BerthError {
  return new BerthError(
    "ENGINE_UNAVAILABLE",
    "The command did not begin in time; whether it will run is not known.",
  );
}

/** The error for a working directory that cannot be entered. */
export function workingDirMissing(request: JobRequest): BerthError {
  const path = JSON.stringify(request.workingDir);
  return invalidArgument("working_dir", `${path} is no directory that the user may enter in the sandbox.`);
}
