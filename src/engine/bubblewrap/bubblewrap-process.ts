import { setTimeout as sleep } from "node:timers/promises";
import { abortError, BerthError, canceled } from "../../base/errors.ts";
import type { Leftovers } from "../orphaned-pipes.ts";
import { type PipeEnds, PipeStreams } from "../pipe-streams.ts";
import type { OutputSink, SpawnedProcess, TerminalSize } from "../port.ts";
import { stateOf } from "./process-tree.ts";
import type { Started } from "./reports.ts";

/** How often it is looked at whether an attendant is left that can tell an end. */
const LOOK_MS = 1000;

/** The parts of a {@link BubblewrapProcess}. */
export interface ProcessParts {
  /** Waits, outside, for the process inside, and reports its end. */
  readonly attendant: Started;
  readonly ends: PipeEnds;
  /** Sets the size of its terminal; undefined without one. */
  readonly resizeTerminal: ((size: TerminalSize) => Promise<void>) | undefined;
}

/** A process inside, behind its pipes. Paused until {@link resume} is called. */
export class BubblewrapProcess implements SpawnedProcess {
  /** It ends with the service. */
  readonly handle = undefined;
  readonly #parts: ProcessParts;
  readonly #streams: PipeStreams;
  /** Resolves with its exit code. */
  readonly #exited: Promise<number>;
  #hasExited = false;

  constructor(parts: ProcessParts, sink: OutputSink, leftovers: Leftovers) {
    this.#parts = parts;
    this.#streams = new PipeStreams(parts.ends, sink, leftovers);
    this.#exited = parts.attendant.code;
    void this.#exited.then(() => {
      this.#hasExited = true;
      this.#streams.abandonStdin();
    });
  }

  /** Settles, never rejects, when nobody holds its output pipes any more. */
  get silent(): Promise<void> {
    return this.#streams.silent;
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
  }

  async resize(size: TerminalSize): Promise<void> {
    const { resizeTerminal } = this.#parts;
    if (this.#hasExited || resizeTerminal === undefined) {
      throw new BerthError("PROCESS_STATE", "The process has ended or has no terminal.");
    }
    await resizeTerminal(size);
  }

  async wait(signal?: AbortSignal): Promise<number> {
    const over = new AbortController();
    const aborted = Promise.withResolvers<never>();
    const onAbort = () => signal && aborted.reject(abortError(signal));
    signal?.addEventListener("abort", onAbort, { once: true });
    if (signal?.aborted) onAbort();
    try {
      return await Promise.race([this.#exited, aborted.promise, this.#attendantLost(over.signal)]);
    } finally {
      over.abort();
      signal?.removeEventListener("abort", onAbort);
    }
  }

  close(): void {
    this.#streams.close(canceled());
  }

  /** Lets go of the pipes, whatever that makes of those who write to them. */
  destroy(): void {
    this.close();
    this.#streams.destroy();
  }

  /** Resolves, as for a process that was killed, when there is nobody any more who could report its end. */
  async #attendantLost(signal: AbortSignal): Promise<number> {
    const { pid } = this.#parts.attendant;
    for (let missing = 0; missing < 2 && !signal.aborted; ) {
      await sleep(LOOK_MS, undefined, { signal, ref: false }).catch(() => {});
      // A report that is under way comes before the second look.
      missing = /[ZX]/.test(stateOf(pid) ?? "X") ? missing + 1 : 0;
    }
    return 137;
  }
}
