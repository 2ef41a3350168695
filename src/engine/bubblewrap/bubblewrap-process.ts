import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import type { Socket } from "node:net";
import { constants } from "node:os";
import { setTimeout as sleep } from "node:timers/promises";
import { abortError, BerthError, canceled } from "../../core/errors.ts";
import type { OutputSink, OutputStream, SpawnedProcess, TerminalSize } from "../../core/ports/engine.ts";
import { childrenOf, stateOf } from "./process-tree.ts";

/** How often a process that is waited for is looked at, for the one thing that tells nothing by itself. */
const STOPPED_LOOK_MS = 1000;

/** The parts of a {@link BubblewrapProcess}. */
export interface ProcessParts {
  /** Waits, outside, for the process inside, and ends as that does. */
  readonly attendant: ChildProcess;
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
  /** Resolves when nobody holds its output pipes any more. */
  readonly #silent: Promise<void>;
  /** Where output goes; undefined once the sink has been told of the end. */
  #sink: OutputSink | undefined;

  constructor(parts: ProcessParts, sink: OutputSink) {
    this.#parts = parts;
    this.#sink = sink;
    const { attendant, stdin, outputs } = parts;
    this.#exited = exitOf(attendant);
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

  #end(error?: Error): void {
    const sink = this.#sink;
    this.#sink = undefined;
    sink?.end(error);
  }
}

async function exitOf(child: ChildProcess): Promise<number> {
  if (child.exitCode === null && child.signalCode === null) await once(child, "exit");
  return child.exitCode ?? 128 + constants.signals[child.signalCode ?? "SIGKILL"];
}

function stdinClosed(): BerthError {
  return new BerthError("PROCESS_STATE", "Nobody reads the process's stdin any more.");
}
