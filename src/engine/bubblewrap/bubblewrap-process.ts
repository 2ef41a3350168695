import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { constants } from "node:os";
import { setTimeout as sleep } from "node:timers/promises";
import { abortError, BerthError, canceled } from "../../core/errors.ts";
import type { OutputSink, SpawnedProcess, TerminalSize } from "../../core/ports/engine.ts";
import { type PipeEnds, PipeStreams } from "../pipe-streams.ts";
import { childrenOf, stateOf } from "./process-tree.ts";

/** How often a process that is waited for is looked at, for the one thing that tells nothing by itself. */
const STOPPED_LOOK_MS = 1000;

/** The parts of a {@link BubblewrapProcess}. */
export interface ProcessParts {
  /** Waits, outside, for the process inside, and ends as that does. */
  readonly attendant: ChildProcess;
  readonly ends: PipeEnds;
  /** Sets the size of its terminal; undefined without one. */
  readonly resizeTerminal: ((size: TerminalSize) => Promise<void>) | undefined;
}

/** A process inside, behind its pipes. Paused until {@link resume} is called. */
export class BubblewrapProcess implements SpawnedProcess {
  readonly #parts: ProcessParts;
  readonly #streams: PipeStreams;
  /** Resolves with its exit code. */
  readonly #exited: Promise<number>;

  constructor(parts: ProcessParts, sink: OutputSink) {
    this.#parts = parts;
    this.#streams = new PipeStreams(parts.ends, sink);
    this.#exited = exitOf(parts.attendant);
    void this.#exited.then(() => this.#streams.abandonStdin());
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

  writeStdin(data: Uint8Array): Promise<void> {
    return this.#streams.write(data);
  }

  closeStdin(): void {
    this.#streams.closeStdin();
  }

  async resize(size: TerminalSize): Promise<void> {
    const { attendant, resizeTerminal } = this.#parts;
    const ended = attendant.exitCode !== null || attendant.signalCode !== null;
    if (ended || resizeTerminal === undefined) {
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
    const watching = this.#rouse(over.signal);
    try {
      return await Promise.race([this.#exited, aborted.promise]);
    } finally {
      over.abort();
      signal?.removeEventListener("abort", onAbort);
      await watching;
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

  /**
   * The attendant stops when the process is stopped, and nothing but a signal
   * makes it go on when that went on or ended meanwhile.
   */
  async #rouse(signal: AbortSignal): Promise<void> {
    const { attendant } = this.#parts;
    while (!signal.aborted) {
      await sleep(STOPPED_LOOK_MS, undefined, { signal, ref: false }).catch(() => {});
      if (signal.aborted || attendant.pid === undefined || stateOf(attendant.pid) !== "T") continue;
      const [child] = childrenOf(attendant.pid);
      if (child === undefined || stateOf(child) !== "T") attendant.kill("SIGCONT");
    }
  }
}

async function exitOf(child: ChildProcess): Promise<number> {
  if (child.exitCode === null && child.signalCode === null) await once(child, "exit");
  return child.exitCode ?? 128 + constants.signals[child.signalCode ?? "SIGKILL"];
}
