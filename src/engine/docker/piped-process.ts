import { BerthError, canceled } from "../../base/errors.ts";
import type { Leftovers } from "../orphaned-pipes.ts";
import { type PipeEnds, PipeStreams } from "../pipe-streams.ts";
import type { OutputSink, SpawnedProcess } from "../port.ts";
import type { ExecState } from "./exec-state.ts";
import { handleOf } from "./handle.ts";
import { Knocks } from "./knocks.ts";
import type { PipePaths } from "./pipe-names.ts";

/** A running `exec` whose standard streams are pipes of Berth's own. Paused until {@link resume} is called. */
export class PipedProcess implements SpawnedProcess {
  readonly handle: string;
  readonly #state: ExecState;
  readonly #streams: PipeStreams;
  readonly #knocks: Knocks;
  #dropped = false;

  /** @param pipes paths of its pipes, while they are there. */
  constructor(state: ExecState, pipes: PipePaths, ends: PipeEnds, sink: OutputSink, leftovers: Leftovers) {
    this.handle = handleOf(state.id, pipes);
    this.#state = state;
    this.#knocks = new Knocks(pipes.stdin);
    this.#streams = new PipeStreams(ends, sink, leftovers, () => state.whyEnded());
    void this.ended.then(() => this.#knocks.stop());
  }

  /** Settles, never rejects, when its output has ended. */
  get ended(): Promise<void> {
    return this.#streams.silent;
  }

  /** Whether the pipes were let go of while others may hold them. */
  get dropped(): boolean {
    return this.#dropped;
  }

  pause(): void {
    this.#streams.pause();
  }

  resume(): void {
    this.#streams.resume();
  }

  trickle(): void {
    this.#streams.trickle();
  }

  writeStdin(data: Uint8Array): Promise<void> {
    return this.#streams.write(data);
  }

  closeStdin(): void {
    this.#streams.closeStdin();
    this.#knocks.beginOnce();
  }

  async resize(): Promise<void> {
    throw new BerthError("PROCESS_STATE", "The process has no terminal.");
  }

  async wait(signal?: AbortSignal): Promise<number> {
    const code = await this.#state.exitCode(this.ended, signal);
    this.#streams.abandonStdin();
    return code;
  }

  close(): void {
    this.#streams.close(canceled());
    this.#knocks.begin();
  }

  /** Drops the pipes too. Who still writes, or has told its end, then waits until a later run of the service reads on. */
  destroy(): void {
    this.#dropped = true;
    this.#knocks.stop();
    this.#streams.close(canceled());
    this.#streams.destroy();
  }
}
