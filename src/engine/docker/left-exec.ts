import { BerthError } from "../../base/errors.ts";
import type { SpawnedProcess } from "../port.ts";
import type { ExecState } from "./exec-state.ts";
import { handleOf } from "./handle.ts";

/**
 * A process that an earlier run of the service started through the daemon's
 * streams, or whose pipes are gone. What it writes is lost; how it ends Docker
 * tells, for some minutes after that.
 */
export class LeftExec implements SpawnedProcess {
  readonly handle: string;
  readonly ended = Promise.resolve();
  readonly #state: ExecState;

  constructor(state: ExecState) {
    this.handle = handleOf(state.id);
    this.#state = state;
  }

  pause(): void {}

  resume(): void {}

  trickle(): void {}

  async writeStdin(): Promise<void> {
    throw new BerthError("PROCESS_STATE", "Nobody reads the process's stdin any more.");
  }

  closeStdin(): void {}

  async resize(): Promise<void> {
    throw new BerthError("PROCESS_STATE", "The process's terminal is lost.");
  }

  async wait(signal?: AbortSignal): Promise<number> {
    const code = await this.#state.exitCode(new Promise(() => {}), signal);
    // Docker gives this code to a process whose output it could not deliver, too.
    if (code !== 126) return code;
    throw new BerthError("ENGINE_UNAVAILABLE", "How the process ended is lost with its connection.");
  }

  close(): void {}

  destroy(): void {}
}
