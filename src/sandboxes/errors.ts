import { BerthError } from "../base/errors.ts";
import type { SandboxRecord } from "./record.ts";

/** Refuses an id that is taken. */
export function exists({ sandboxId }: SandboxRecord): BerthError {
  return new BerthError(
    "SANDBOX_EXISTS",
    `sandbox_id: a sandbox with the id ${JSON.stringify(sandboxId)} exists. Delete it, or choose another id.`,
    { metadata: { sandbox_id: sandboxId } },
  );
}

/** Refuses an id that names nothing, or another owner's sandbox. */
export function notFound(sandboxId: string): BerthError {
  return new BerthError("SANDBOX_NOT_FOUND", `There is no sandbox ${JSON.stringify(sandboxId)}.`, {
    metadata: { sandbox_id: sandboxId },
  });
}

/** @throws `SANDBOX_REPLACED` where the caller knows another generation. */
export function assertGeneration(record: SandboxRecord, name: { readonly generation?: number }): void {
  if (name.generation === undefined || name.generation === record.generation) return;
  throw new BerthError(
    "SANDBOX_REPLACED",
    `generation: the sandbox is in generation ${record.generation} now, not ${name.generation}: its container was replaced, with an empty disk. Read it again before you go on.`,
    { metadata: { sandbox_id: record.sandboxId, generation: String(record.generation) } },
  );
}

/** Refuses to use a sandbox that is in no state for it, and says what would help. */
export function notRunning({ phase, sandboxId }: SandboxRecord): BerthError {
  const metadata = { sandbox_id: sandboxId, state: phase.state };
  const advice = {
    CREATING: "It is still being created.",
    PAUSED: "It is paused: resume it first.",
    RUNNING: "It is running.",
    DELETING: "It is being deleted.",
    TERMINATED: phase.state === "TERMINATED" ? `It has ended: ${phase.termination.message}` : "",
  }[phase.state];
  return new BerthError("SANDBOX_NOT_RUNNING", `The sandbox cannot be used. ${advice}`, { metadata });
}
