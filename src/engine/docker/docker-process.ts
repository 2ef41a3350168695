import { once } from "node:events";
import type { Duplex } from "node:stream";
import type { Exec } from "dockerode";
import { BerthError, canceled } from "../../base/errors.ts";
import type { Leftovers } from "../orphaned-pipes.ts";
import type { OutputSink, SpawnedProcess, TerminalSize } from "../port.ts";
import type { Daemon } from "./daemon.ts";
import { Demux } from "./demux.ts";
import { answerTo, translateError } from "./errors.ts";
import { ExecState } from "./exec-state.ts";
import { handleOf } from "./handle.ts";

/** A running `exec` behind its hijacked connection. Paused until {@link resume} is called. */
export class DockerProcess implements SpawnedProcess {
  readonly handle: string;
  readonly #daemon: Daemon;
  readonly #exec: Exec;
  readonly #state: ExecState;
  readonly #socket: Duplex;
  readonly #takesStdin: boolean;
  /** Settles, never rejects, when the connection has ended. */
  readonly ended: Promise<void>;
  /** Where output goes; undefined once the sink has been told of the end. */
  #sink: OutputSink | undefined;
  readonly #leftovers: Leftovers;
  /** Ends what reads the output slowly. */
  #stopDrain = (): void => {};
  #closed = false;

  constructor(
    daemon: Daemon,
    exec: Exec,
    socket: Duplex,
    options: { readonly tty: boolean; readonly stdin: boolean },
    sink: OutputSink,
    leftovers: Leftovers,
  ) {
    this.handle = handleOf(exec.id);
    this.#daemon = daemon;
    this.#exec = exec;
    this.#state = new ExecState(daemon, exec.id);
    this.#socket = socket;
    this.#takesStdin = options.stdin;
    this.#sink = sink;
    this.#leftovers = leftovers;
    socket.pause();
    const demux = new Demux((stream, chunk) => this.#sink?.data(stream, chunk));
    const { promise, resolve } = Promise.withResolvers<void>();
    this.ended = promise;
    const finish = async () => {
      socket.off("end", finish).off("close", finish);
      // What is still to be written has no reader.
      socket.destroy();
      this.#end(await this.#whyEnded(demux.insideFrame));
      resolve();
    };
    socket.on(
      "data",
      options.tty ? (chunk) => this.#sink?.data("stdout", chunk) : (chunk) => demux.push(chunk),
    );
    if (socket.closed || socket.readableEnded) void finish();
    else socket.on("end", finish).on("close", finish);
  }

  pause(): void {
    if (this.#closed) return;
    this.#stopDrain();
    this.#socket.pause();
  }

  resume(): void {
    if (this.#closed) return;
    this.#stopDrain();
    this.#socket.resume();
  }

  trickle(): void {
    if (this.#closed) return;
    this.#stopDrain();
    this.#stopDrain = this.#leftovers.drain(this.#socket);
  }

  async writeStdin(data: Uint8Array): Promise<void> {
    if (!this.#takesStdin || !this.#socket.writable) throw stdinClosed();
    if (this.#socket.write(data)) return;
    const drained = once(this.#socket, "drain").catch(() => {});
    await Promise.race([drained, this.ended]);
    if (!this.#socket.writable) throw stdinClosed();
  }

  closeStdin(): void {
    if (this.#takesStdin && this.#socket.writable) this.#socket.end();
  }

  async resize(size: TerminalSize): Promise<void> {
    try {
      await this.#daemon.call("resizing a terminal", (_, abortSignal) =>
        this.#exec.resize({ w: size.columns, h: size.rows, abortSignal }),
      );
    } catch (error) {
      if (!answerTo(error)) throw error;
      throw new BerthError("PROCESS_STATE", "The process has ended or has no terminal.", { cause: error });
    }
  }

  async wait(signal?: AbortSignal): Promise<number> {
    return this.#trusted(await this.#state.exitCode(this.ended, signal));
  }

  /** Undefined where the connection brought all there was. */
  async #whyEnded(insideFrame: boolean): Promise<Error | undefined> {
    if (this.#socket.readableEnded && !insideFrame) return this.#state.whyEnded();
    return translateError(this.#socket.errored, "streaming a process's output");
  }

  /** Docker gives this code to a process whose output it could not deliver, too. */
  #trusted(exitCode: number): number {
    if (exitCode !== 126 || this.#socket.readableEnded || !this.#socket.destroyed) return exitCode;
    throw new BerthError(
      "ENGINE_UNAVAILABLE",
      "The connection to the process broke, and with it how it ended is lost.",
    );
  }

  /**
   * Keeps reading, into nothing: a process that writes to a connection that is
   * gone ends with a false exit code for Docker.
   */
  close(): void {
    this.#end(canceled());
    this.closeStdin();
    if (this.#closed) return;
    this.trickle();
    this.#closed = true;
    this.#leftovers.keep({ silent: this.ended, destroy: () => this.#socket.destroy() });
  }

  /** Drops the connection, whatever that makes of the exit code. */
  destroy(): void {
    this.close();
    this.#socket.destroy();
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
