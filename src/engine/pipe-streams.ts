import type { Writable } from "node:stream";
import { BerthError } from "../base/errors.ts";
import { PipeLoad } from "./large-pipes.ts";
import type { Leftovers } from "./orphaned-pipes.ts";
import type { PipeSocket } from "./pipe-socket.ts";
import type { OutputSink, OutputStream } from "./port.ts";

/** How long stdin stays open once its process has ended. */
const STDIN_GRACE_MS = 5_000;

/** This machine's ends of a process's pipes. */
export interface PipeEnds {
  /** Undefined if the process has no stdin. */
  readonly stdin: PipeSocket | undefined;
  readonly outputs: readonly { readonly stream: OutputStream; readonly socket: PipeSocket }[];
}

/** A process's standard streams as pipes to this service. Paused until {@link resume} is called. */
export class PipeStreams {
  readonly #ends: PipeEnds;
  readonly #stdinLoad: PipeLoad | undefined;
  readonly #leftovers: Leftovers;
  /** Resolves when no process holds its output pipes any more. Never rejects. */
  readonly silent: Promise<void>;
  /** Undefined once its `end` was called. */
  #sink: OutputSink | undefined;
  readonly #writers = new Writers();
  /** Stop the slow drains of the outputs. */
  #drains: (() => void)[] = [];
  #abandoned = false;
  #closed = false;

  /**
   * @param leftovers takes over the pipes once nobody reads them.
   * @param whyEnded returns the argument for the sink's `end` when the output has ended: an error, or undefined.
   */
  constructor(
    ends: PipeEnds,
    sink: OutputSink,
    leftovers: Leftovers,
    whyEnded: () => Promise<Error | undefined> = noError,
  ) {
    this.#ends = ends;
    this.#leftovers = leftovers;
    this.#sink = sink;
    this.#stdinLoad = ends.stdin && new PipeLoad(ends.stdin, leftovers.sandbox);
    ends.stdin?.on("close", () => this.#stdinLoad?.close());
    const closed = ends.outputs.map(({ stream, socket }) => {
      socket.pause();
      socket.on("data", (chunk: Buffer) => this.#sink?.data(stream, chunk));
      return new Promise<void>((resolve) => {
        if (socket.closed) resolve();
        else socket.once("close", () => resolve());
      });
    });
    this.silent = Promise.all(closed).then(async () => {
      // A pipe does not notify its writer when the last reader is gone.
      ends.stdin?.destroySoon();
      if (this.#sink !== undefined) this.end(await whyEnded());
    });
  }

  pause(): void {
    if (this.#closed) return;
    this.#stopDrains();
    for (const { socket } of this.#ends.outputs) socket.pause();
  }

  resume(): void {
    if (this.#closed) return;
    this.#stopDrains();
    for (const { socket } of this.#ends.outputs) socket.resume();
  }

  /** Drains output slowly, until {@link pause} or {@link resume} is called. */
  trickle(): void {
    if (this.#closed) return;
    this.#stopDrains();
    this.#drains = this.#ends.outputs.map(({ socket }) => this.#leftovers.drain(socket));
  }

  /** Resolves when the pipe has all of `data`. @throws `PROCESS_STATE` if no process reads stdin any more. */
  async write(data: Uint8Array): Promise<void> {
    const { stdin } = this.#ends;
    if (!stdin?.writable || this.#abandoned) throw stdinClosed();
    this.#stdinLoad?.add(data.length);
    await this.#writers.write(stdin, data);
    if (stdin.destroyed || this.#abandoned) throw stdinClosed();
  }

  closeStdin(): void {
    const { stdin } = this.#ends;
    if (stdin?.writable) stdin.end();
  }

  /** Closes stdin of an ended process, after a grace: the processes that still hold it may never read it. */
  abandonStdin(): void {
    const { stdin } = this.#ends;
    if (stdin !== undefined && !stdin.destroyed && !this.#abandoned) {
      const over = setTimeout(() => stdin.destroy(), STDIN_GRACE_MS).unref();
      stdin.once("close", () => clearTimeout(over));
    }
    this.#abandoned = true;
    this.#writers.giveUp();
  }

  /** Ends the sink: nothing more will come. Idempotent. */
  end(error?: Error): void {
    const sink = this.#sink;
    this.#sink = undefined;
    sink?.end(error);
  }

  /**
   * Detaches: ends stdin and keeps draining the outputs slowly, because a writer to a pipe that nobody reads blocks for
   * ever. Idempotent.
   */
  close(reason: Error): void {
    this.end(reason);
    this.closeStdin();
    this.abandonStdin();
    if (this.#closed) return;
    this.trickle();
    this.#closed = true;
    this.#leftovers.keep(this);
  }

  /** Closes the pipes without regard for processes that hold the other ends. */
  destroy(): void {
    this.#ends.stdin?.destroy();
    for (const { socket } of this.#ends.outputs) socket.destroy();
  }

  #stopDrains(): void {
    for (const stop of this.#drains.splice(0)) stop();
  }
}

/**
 * Those that write to a stdin. Each waits until the system has all that it wrote: a stream that holds it for less than
 * a limit of bytes would hold thousands of pieces of one byte, which take hundreds of bytes each.
 */
export class Writers {
  readonly #waiting = new Set<() => void>();

  /** Resolves when the system has all of `data`, the stream has closed, or {@link giveUp} is called. */
  write(stdin: Writable, data: Uint8Array): Promise<void> {
    return new Promise((resolve) => {
      const settle = (): void => {
        this.#waiting.delete(settle);
        resolve();
      };
      this.#waiting.add(settle);
      stdin.write(data, settle);
    });
  }

  giveUp(): void {
    for (const settle of this.#waiting) settle();
  }
}

async function noError(): Promise<undefined> {
  return undefined;
}

/** The error of a write to a stdin that nobody reads. */
export function stdinClosed(): BerthError {
  return new BerthError("PROCESS_STATE", "Nothing reads the process's stdin any longer.");
}
