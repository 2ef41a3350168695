import type { Socket } from "node:net";
import { BerthError } from "../base/errors.ts";
import type { Leftovers } from "./orphaned-pipes.ts";
import type { OutputSink, OutputStream } from "./port.ts";

/** How long what was written to stdin may still be read once its process is over. */
const STDIN_GRACE_MS = 5_000;

/** This machine's ends of a process's pipes. */
export interface PipeEnds {
  /** Undefined where it gets none. */
  readonly stdin: Socket | undefined;
  readonly outputs: readonly { readonly stream: OutputStream; readonly socket: Socket }[];
}

/** A process's standard streams as pipes that end here. Paused until {@link resume} is called. */
export class PipeStreams {
  readonly #ends: PipeEnds;
  readonly #leftovers: Leftovers;
  /** Settles, never rejects, when nobody holds its output pipes any more. */
  readonly silent: Promise<void>;
  /** Where output goes; undefined once the sink has been told of the end. */
  #sink: OutputSink | undefined;
  /** Writers that wait for room. */
  readonly #writers = new Set<() => void>();
  /** End what reads the outputs slowly. */
  #drains: (() => void)[] = [];
  #abandoned = false;
  #closed = false;

  /**
   * @param leftovers takes over what others hold once nobody listens.
   * @param whyEnded what to tell the sink when the output has ended: an error, or undefined.
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
    const wake = (): void => this.#wake();
    ends.stdin
      ?.on("error", () => {})
      .on("drain", wake)
      .on("close", wake);
    const closed = ends.outputs.map(({ stream, socket }) => {
      socket.pause();
      socket.on("error", () => {});
      socket.on("data", (chunk: Buffer) => this.#sink?.data(stream, chunk));
      return new Promise<void>((resolve) => {
        if (socket.closed) resolve();
        else socket.once("close", () => resolve());
      });
    });
    this.silent = Promise.all(closed).then(async () => {
      // Nothing tells who only writes that nobody reads any more.
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

  /** Lets output flow slowly, as nobody wants it, until {@link pause} or {@link resume} is called. */
  trickle(): void {
    if (this.#closed) return;
    this.#stopDrains();
    this.#drains = this.#ends.outputs.map(({ socket }) => this.#leftovers.drain(socket));
  }

  /** Resolves when more may be written. @throws `PROCESS_STATE` where nobody reads any more. */
  async write(data: Uint8Array): Promise<void> {
    const { stdin } = this.#ends;
    if (!stdin?.writable || this.#abandoned) throw stdinClosed();
    if (stdin.write(data)) return;
    await new Promise<void>((resolve) => this.#writers.add(resolve));
    if (!stdin.writable || stdin.writableNeedDrain) throw stdinClosed();
  }

  closeStdin(): void {
    const { stdin } = this.#ends;
    if (stdin?.writable) stdin.end();
  }

  /** Says that the process is over: nobody waits any more for whoever still holds stdin, who may never read it. */
  abandonStdin(): void {
    const { stdin } = this.#ends;
    if (stdin !== undefined && !stdin.destroyed && !this.#abandoned) {
      const over = setTimeout(() => stdin.destroy(), STDIN_GRACE_MS).unref();
      stdin.once("close", () => clearTimeout(over));
    }
    this.#abandoned = true;
    this.#wake();
  }

  /** Tells the sink that nothing more will come. Idempotent. */
  end(error?: Error): void {
    const sink = this.#sink;
    this.#sink = undefined;
    sink?.end(error);
  }

  /**
   * Lets go: ends stdin and keeps reading into nothing, slowly, since who writes to a pipe that nobody reads waits for
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

  /** Drops the pipes, whatever that makes of those who hold the other ends. */
  destroy(): void {
    this.#ends.stdin?.destroy();
    for (const { socket } of this.#ends.outputs) socket.destroy();
  }

  #stopDrains(): void {
    for (const stop of this.#drains.splice(0)) stop();
  }

  #wake(): void {
    for (const resolve of this.#writers) resolve();
    this.#writers.clear();
  }
}

async function noError(): Promise<undefined> {
  return undefined;
}

function stdinClosed(): BerthError {
  return new BerthError("PROCESS_STATE", "Nobody reads the process's stdin any more.");
}
