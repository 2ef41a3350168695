import { BerthError } from "../base/errors.ts";
import type { EngineEvent } from "../engine/port.ts";
import type { TerminationCause } from "./sandbox.ts";

/** Why a sandbox ended. */
interface EngineEnd {
  readonly cause: TerminationCause;
  readonly message: string;
  /** For the metadata of errors. */
  readonly facts?: Readonly<Record<string, string>>;
}

/** Says why a sandbox ended, from the engine's event. */
export function endOf(event: EngineEvent): EngineEnd {
  if (event.type === "removed")
    return { cause: "REMOVED_EXTERNALLY", message: "Its container was removed outside Berth." };
  const { exitCode, outOfMemory, cause, isRemoved, lostNode } = event.end;
  if (lostNode !== undefined)
    return { cause: "ENGINE_LOST", message: `Its node ${lostNode} was lost.`, facts: { node: lostNode } };
  if (outOfMemory)
    return { cause: "OUT_OF_MEMORY", message: "The kernel killed its main process: out of memory." };
  if (cause !== undefined)
    return { cause: isRemoved ? "REMOVED_EXTERNALLY" : "EXITED", message: `${cause.replace(/\.$/, "")}.` };
  return { cause: "EXITED", message: `Its main process ended with code ${exitCode}.` };
}

/** Notices the ends of sandboxes that are being created or claimed. */
export interface EndWatch extends Disposable {
  /** `SANDBOX_START_FAILED` if the sandbox with this ref has ended since the watch began; otherwise undefined. */
  errorOf(ref: string): BerthError | undefined;
}

/**
 * Ends of sandboxes that are being created or claimed. Until such a sandbox is registered, an event of the engine finds
 * no record of it, and the engine reports each end only once.
 */
export class EarlyEnds {
  /** The ends that each watch has seen, by ref, and the ids that it watches. */
  readonly #watches = new Map<Map<string, EngineEvent>, ReadonlySet<string>>();

  /** Watches sandboxes with these ids from now on. Other owners and earlier generations may have the same ids. */
  watch(...sandboxIds: readonly string[]): EndWatch {
    const ends = new Map<string, EngineEvent>();
    this.#watches.set(ends, new Set(sandboxIds));
    return {
      errorOf: (ref) => {
        const event = ends.get(ref);
        if (event === undefined) return undefined;
        const { message, facts: metadata = {} } = endOf(event);
        const text = `The sandbox ended before it was ready: ${message}`;
        return new BerthError("SANDBOX_START_FAILED", text, { metadata });
      },
      [Symbol.dispose]: () => this.#watches.delete(ends),
    };
  }

  onEvent(event: EngineEvent): void {
    for (const [ends, sandboxIds] of this.#watches) {
      // The first event says why it ended; a removal may follow.
      if (sandboxIds.has(event.sandboxId) && !ends.has(event.ref)) ends.set(event.ref, event);
    }
  }
}
