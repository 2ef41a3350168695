import { once } from "node:events";
import type { Socket } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { abortError, BerthError, canceled } from "../../core/errors.ts";
import type { OutputSink, OutputStream, SpawnedProcess, TerminalSize } from "../../core/ports/engine.ts";
import { stateOf } from "./process-tree.ts";
import type { Started } from "./reports.ts";

/** How often it is looked at whether an attendant is left that can tell an end. */
const LOOK_MS = 1000;

/** The parts of a {@link BubblewrapProcess}. */
export interface ProcessParts {
  /** Waits, outside, for the process inside, and reports its end. */
  readonly attendant: Started;
  readonly stdin: Socket | undefined;
  readonly outputs: readonly { readonly stream: OutputStream; readonly socket: Socket }[];
  /** Sets the size of its terminal; undefined without one. */
  readonly resizeTerminal: ((size: TerminalSize) => Promise<void>) | undefined;
}

/** A process inside, behind its pipes. Paused until {@link resume} is called. */
export class BubblewrapProcess implements SpawnedProcess {
  readonly #parts: ProcessParts;
  /** Resolves with its exit code. */
  readonly #exited: Promise<number>;
  #hasExited = false;
  /** Resolves when nobody holds its output pipes any more. */
  readonly #silent: Promise<void>;
  /** Where output goes; undefined once the sink has been told of the end. */
  #sink: OutputSink | undefined;

  constructor(parts: ProcessParts, sink: OutputSink) {
    this.#parts = parts;
    this.#sink = sink;
    const { attendant, stdin, outputs } = parts;
    this.#exited = attendant.code;
    void this.#exited.then(() => {
      this.#hasExited = true;
    });
    stdin?.on("error", () => {});
    const ends = outputs.map(({ stream, socket }) => {
      socket.pause();
      socket.on("data", (chunk: Buffer) => this.#sink?.data(stream, chunk));
      return new Promise<void>((resolve) => {
        if (socket.closed) resolve();
        else socket.once("close", resolve);
      });
    });
    this.#silent = Promise.all(ends).then(() => this.#end());
  }

  pause(): void {
    for (const { socket } of this.#parts.outputs) socket.pause();
  }

  resume(): void {
    for (const { socket } of this.#parts.outputs) socket.resume();
  }

  async writeStdin(data: Uint8Array): Promise<void> {
    const { stdin } = this.#parts;
    if (!stdin?.writable) throw stdinClosed();
    if (stdin.write(data)) return;
    const drained = once(stdin, "drain").catch(() => {});
    const closed = once(stdin, "close").catch(() => {});
    // Whoever left the pipe open in the background may never read it.
    await Promise.race([drained, closed, this.#exited]);
    if (!stdin.writable || stdin.writableNeedDrain) throw stdinClosed();
  }

  closeStdin(): void {
    const { stdin } = this.#parts;
    if (stdin?.writable) stdin.end();
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

  /** Keeps reading, into nothing: whoever writes to a pipe that nobody reads is ended by it. */
  close(): void {
    this.#end(canceled());
    this.closeStdin();
    this.resume();
  }

  /** Lets go of the pipes, whatever that makes of those who write to them. */
  destroy(): void {
    this.close();
    this.#parts.stdin?.destroy();
    for (const { socket } of this.#parts.outputs) socket.destroy();
  }

  /** Settles, never rejects, when its output has ended. */
  get silent(): Promise<void> {
    return this.#silent;
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

  #end(error?: Error): void {
    const sink = this.#sink;
    this.#sink = undefined;
    sink?.end(error);
  }
}

function stdinClosed(): BerthError {
  return new BerthError("PROCESS_STATE", "Nobody reads the process's stdin any more.");
}
