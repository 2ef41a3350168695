import type { MessageInitShape } from "@bufbuild/protobuf";
import type { CallOptions } from "@connectrpc/connect";
import { CommandResult } from "./command-result.ts";
import { type Connection, clientClosed, newRequestId } from "./connection.ts";
import { content, date, exitStatus, streamName, textDecoder } from "./convert.ts";
import { BerthError, ConnectionLostError, isBroken } from "./errors.ts";
import { Kept } from "./kept.ts";
import { Pauses } from "./retry.ts";
import { type SignalName, signalNumber } from "./signals.ts";
import type { Chunk, Content, ExitStatus, OutputCallback } from "./types.ts";
import {
  type AttachProcessRequestSchema,
  type AttachProcessResponse,
  type ExecRequestSchema,
  type ExecResponse,
  OnDisconnect,
} from "./v1/process_pb.js";

/** Bytes kept of each stream by default. */
export const DEFAULT_OUTPUT_BYTES = 1024 * 1024;
/** Bytes of stdin in one message. */
export const PIECE_BYTES = 1024 * 1024;
const SIGKILL = 9;
/** How long the request to end a command may take after its reader has left. */
const END_MS = 10_000;

/** Where output goes as it arrives. */
export interface OutputCallbacks {
  readonly onStdout?: OutputCallback | undefined;
  readonly onStderr?: OutputCallback | undefined;
}

/** Stdin that is too long for the message that starts a command. */
export interface RestOfStdin {
  readonly data: Uint8Array;
  /** Whether end of file follows. */
  readonly close: boolean;
}

/** What a {@link Process} follows: a command to start, or an existing one. */
export type Origin =
  | { readonly exec: MessageInitShape<typeof ExecRequestSchema>; readonly rest?: RestOfStdin | undefined }
  | { readonly attach: MessageInitShape<typeof AttachProcessRequestSchema> };

type Event = ExecResponse | AttachProcessResponse;

/** A call that streams events. */
interface Stream {
  readonly events: AsyncIterator<Event>;
  readonly stop: AbortController;
  /** The event that was last asked for. */
  next?: Promise<IteratorResult<Event>>;
}

/**
 * A running command: its output as it arrives, its stdin, and its end.
 *
 * Iterate over it to read its output. The loop starts the command, and leaving the loop early ends it:
 *
 *     for await (const chunk of sandbox.exec("make")) console.log(chunk.text);
 *
 * Or start it, to write to its stdin or look at its status. Then you must end it, with `end` or the end of the block:
 *
 *     await using process = await sandbox.exec("cat", { keepStdinOpen: true }).start();
 *     await process.write("hello\n");
 *     await process.closeStdin();
 *     const status = await process.wait({ onStdout: console.log });
 *
 * If the connection breaks, the client reconnects and the output continues at the byte where it stopped. If that fails,
 * {@link ConnectionLostError} says how much was received.
 *
 * A command that was attached, or started with `detach`, continues when its reader leaves.
 */
export class Process implements AsyncIterable<Chunk>, AsyncDisposable {
  /** Its id. Empty before it has started. */
  processId = "";
  /** When it started, by the service's clock. */
  startTime: Date | undefined;
  /** How it ended. Undefined until then, or if unknown. */
  status: ExitStatus | undefined;
  /** Bytes of each stream received so far: where a later reader would continue. */
  stdoutOffset = 0;
  stderrOffset = 0;
  /**
   * How many services had recovered the command when it was at these offsets: one that was killed may continue before
   * them. Undefined before it has started.
   */
  recoveries: number | undefined;

  readonly #connection: Connection;
  readonly #origin: Origin;
  readonly #reconnectMs: number;
  readonly #signal: AbortSignal | undefined;
  /** Whether its reader must end it. */
  readonly #owned: boolean;
  readonly #chunks: Chunk[] = [];
  readonly #decoders = { stdout: textDecoder(), stderr: textDecoder() };
  /** Of the current stream, or of the last one. */
  #options: CallOptions = {};
  #stream: Stream | undefined;
  #pulling: Promise<void> | undefined;
  #lost: Pauses | undefined;
  #held = false;
  #ended = false;
  /** Aborted at its end: whoever waits for its start stops, although {@link #abandon} still reads it. */
  readonly #left = new AbortController();
  #stdinOffset: bigint | undefined;
  #writing: Promise<unknown> = Promise.resolve();
  #rest: RestOfStdin | undefined;
  /** Why the rest of stdin could not be written. */
  #failure: { readonly error: unknown } | undefined;
  /** The request to end the command, which is made once. */
  #killing: Promise<unknown> | undefined;

  constructor(connection: Connection, origin: Origin, reconnectMs: number, signal: AbortSignal | undefined) {
    this.#connection = connection;
    this.#origin = "exec" in origin ? { exec: origin.exec } : origin;
    this.#reconnectMs = reconnectMs;
    this.#signal = signal;
    this.#owned = "exec" in origin && origin.exec.onDisconnect !== OnDisconnect.DETACH;
    if ("exec" in origin) {
      this.#stdinOffset = BigInt(origin.exec.stdin?.length ?? 0);
      this.#rest = origin.rest;
    } else {
      this.processId = origin.attach.processId ?? "";
      this.stdoutOffset = Number(origin.attach.stdoutOffset ?? 0);
      this.stderrOffset = Number(origin.attach.stderrOffset ?? 0);
      this.recoveries = origin.attach.recoveries;
    }
  }

  /**
   * Starts the command unless it has started, and keeps it until `end`. Throws BerthError if it cannot start. A command
   * with `detach` has all of its `stdin` then.
   */
  async start(): Promise<this> {
    this.#held = true;
    try {
      await this.#started();
    } catch (error) {
      await this.end();
      throw error;
    }
    if (!this.#owned && !this.#pulling) {
      // It continues without a reader, but a reader that does not read would block it. `read` connects again.
      this.#disconnect();
      this.#connection.release(this);
      await this.#writing;
      if (this.#failure) throw this.#failure.error;
    }
    return this;
  }

  /** The next piece of output as soon as there is some; undefined when the command has ended. */
  async read(): Promise<Chunk | undefined> {
    while (this.#chunks.length === 0 && this.status === undefined && !this.#ended) await this.#pull();
    return this.#chunks.shift();
  }

  /** Waits for the end, and passes on the output until then. */
  async wait({ onStdout, onStderr }: OutputCallbacks = {}): Promise<ExitStatus> {
    for await (const { stream, text } of this) {
      if (text !== "") await (stream === "stdout" ? onStdout : onStderr)?.(text);
    }
    return this.#end();
  }

  /** Waits for the end and collects the output, at most so many bytes of each stream: of a longer one, head and tail. Default, also for 0: 1 MiB. */
  async result({
    maxOutputBytes = 0,
    onStdout,
    onStderr,
  }: OutputCallbacks & { readonly maxOutputBytes?: number | undefined } = {}): Promise<CommandResult> {
    const most = maxOutputBytes || DEFAULT_OUTPUT_BYTES;
    const kept = { stdout: new Kept(most), stderr: new Kept(most) };
    for await (const chunk of this) {
      kept[chunk.stream].add(chunk);
      if (chunk.text !== "") await (chunk.stream === "stdout" ? onStdout : onStderr)?.(chunk.text);
    }
    const [stdout, stderr] = [kept.stdout.result(), kept.stderr.result()];
    return new CommandResult({
      stdoutBytes: stdout.bytes,
      stderrBytes: stderr.bytes,
      stdoutGap: stdout.gap,
      stderrGap: stderr.gap,
      status: this.#end(),
      processId: this.processId,
    });
  }

  /**
   * Writes to its stdin, and returns when the command has room for more. For commands started with `keepStdinOpen` or a
   * terminal. Throws PROCESS_STATE if stdin is closed or the command has ended, STDIN_LOST if a restart of the service cut
   * it off. The data is written once, no matter how often the connection breaks. A write that fails may have written part
   * of its data; the next write continues after that part.
   */
  async write(data: Content): Promise<void> {
    await this.#write(content(data), false);
  }

  /** Closes its stdin. Does nothing if it has ended. */
  async closeStdin(): Promise<void> {
    await unlessOver(this.#write(new Uint8Array(), true));
  }

  /** Its stdin as a web stream; closing the stream closes stdin. */
  stdin(): WritableStream<Content> {
    return new WritableStream({ write: (data) => this.write(data), close: () => this.closeStdin() });
  }

  /** Sends a signal to its process group, by its name, such as "SIGINT", or its number. */
  async signal(signal: SignalName | number): Promise<void> {
    const number = signalNumber(signal);
    await this.#started();
    const request = { requestId: newRequestId(), processId: this.processId, signal: number };
    await this.#connection.again((options) => this.#connection.processes.signalProcess(request, options));
  }

  /** Kills its process group. Does nothing if it has ended. */
  async kill(): Promise<void> {
    await unlessOver(this.signal(SIGKILL));
  }

  /** Resizes its terminal, in characters. */
  async resize(columns: number, rows: number): Promise<void> {
    await this.#started();
    const request = { requestId: newRequestId(), processId: this.processId, columns, rows };
    await this.#connection.again((options) => this.#connection.processes.resizeTerminal(request, options));
  }

  /** Stops reading; a command that is still running is killed unless it is detached or attached. Idempotent. */
  async end(): Promise<void> {
    if (this.#ended) {
      // Who closes the client must not cut off the request of another caller.
      await this.#killing;
      return;
    }
    this.#ended = true;
    if (this.#owned && this.processId === "") this.#abandon();
    this.#left.abort();
    try {
      await this.#killOwned();
    } finally {
      this.#disconnect();
      this.#connection.release(this);
    }
  }

  /** Kills the command if its reader must end it. If the service cannot be reached, it ends the command by itself. */
  async #killOwned(): Promise<void> {
    if (!this.#owned || this.status !== undefined || this.processId === "") return;
    const request = { processId: this.processId, signal: SIGKILL };
    this.#killing ??= this.#connection
      .once((options) => this.#connection.processes.signalProcess(request, options), undefined, END_MS)
      .catch(() => {});
    await this.#killing;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.end();
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Chunk, void, undefined> {
    try {
      for (let chunk = await this.read(); chunk !== undefined; chunk = await this.read()) yield chunk;
    } finally {
      if (!this.#held) await this.end();
    }
  }

  #end(): ExitStatus {
    if (this.status !== undefined) return this.status;
    if (this.#connection.closing) throw clientClosed();
    throw new Error("The reader left the command before its end: how it ended is not known.");
  }

  async #started(): Promise<void> {
    while (this.startTime === undefined && this.status === undefined) {
      if (this.#ended) throw new Error("The reader left the command before it started.");
      await this.#pull();
    }
  }

  /** Takes the next event. All concurrent callers wait for the same one. */
  #pull(): Promise<void> {
    this.#pulling ??= this.#next().finally(() => {
      this.#pulling = undefined;
    });
    return this.#pulling;
  }

  async #next(): Promise<void> {
    try {
      this.#signal?.throwIfAborted();
      if (this.#failure) throw this.#failure.error;
      this.#stream ??= this.#connect();
      const stream = this.#stream;
      stream.next = stream.events.next();
      // Later the abort ends the call itself.
      const { done, value } = await (this.processId === ""
        ? untilAborted(stream.next, this.#left.signal, this.#signal)
        : stream.next);
      if (this.#ended) return;
      if (done) throw new BerthError("The service ended the stream without saying how the command ended.");
      this.#lost = undefined;
      this.#take(value);
    } catch (cause) {
      this.#disconnect();
      if (this.#ended) return;
      if (this.#failure) {
        await this.end();
        throw this.#failure.error;
      }
      const error = this.#connection.failureOf(cause, this.#options, this.#signal);
      if (BerthError.is(error)) return await this.#recover(error);
      await this.end();
      throw error;
    }
  }

  #connect(): Stream {
    this.#connection.adopt(this);
    const stop = new AbortController();
    const signal = this.#signal ? AbortSignal.any([this.#signal, stop.signal]) : stop.signal;
    // The next read throws the reason, but perhaps nobody reads any more.
    signal.addEventListener(
      "abort",
      () => {
        if (!this.#signal?.aborted) return;
        if (this.#owned && this.processId === "") this.#abandon();
        else {
          void this.#killOwned();
          stop.abort();
        }
      },
      { once: true },
    );
    const options = this.#connection.options(stop.signal);
    this.#options = options;
    const { processes } = this.#connection;
    if (this.processId === "" && "exec" in this.#origin) {
      return { events: processes.exec(this.#origin.exec, options)[Symbol.asyncIterator](), stop };
    }
    const request = {
      processId: this.processId,
      stdoutOffset: BigInt(this.stdoutOffset),
      stderrOffset: BigInt(this.stderrOffset),
      ...(this.recoveries !== undefined && { recoveries: this.recoveries }),
    };
    return { events: processes.attachProcess(request, options)[Symbol.asyncIterator](), stop };
  }

  /**
   * Reads until the command has started, and kills it. Without its id nobody could, and the service would wait for its
   * reader to return.
   */
  #abandon(): void {
    const stream = this.#stream;
    this.#stream = undefined;
    if (stream?.next === undefined) return;
    const { next, stop } = stream;
    const late = setTimeout(() => stop.abort(), END_MS);
    this.#connection.later(async () => {
      try {
        const { done, value } = await next;
        if (done || value.event.case !== "started") return;
        this.processId = value.event.value.processId;
        await this.#killOwned();
      } finally {
        clearTimeout(late);
        stop.abort();
      }
    });
  }

  #disconnect(): void {
    this.#stream?.stop.abort();
    this.#stream = undefined;
  }

  /** Waits before reconnecting; throws if reconnecting makes no sense, or no longer does. */
  async #recover(error: BerthError): Promise<void> {
    const started = this.startTime !== undefined;
    const interrupted = this.#lost !== undefined;
    try {
      if (!isBroken(error)) throw error;
      this.#lost ??= new Pauses(started ? this.#reconnectMs : this.#connection.retryForMs);
      await this.#lost.wait(error, this.#signal);
    } catch (cause) {
      const lost = cause === error && started && (interrupted || isBroken(error));
      const thrown = lost ? this.#lostError(error) : cause;
      this.#connection.release(this);
      if (cause !== error) await this.end();
      throw thrown;
    }
  }

  #lostError(error: BerthError): ConnectionLostError {
    const { processId, stdoutOffset, stderrOffset, recoveries } = this;
    return new ConnectionLostError(
      `The connection to ${this.#connection.address} was lost after ${stdoutOffset} bytes of stdout and ` +
        `${stderrOffset} of stderr of ${processId}, and could not be restored within ${this.#reconnectMs} ms. If the ` +
        `command still runs or its record is kept, attach("${processId}", { stdoutOffset: ${stdoutOffset}, ` +
        `stderrOffset: ${stderrOffset}, recoveries: ${recoveries} }) reads on. [${error.message}]`,
      { processId, stdoutReceived: stdoutOffset, stderrReceived: stderrOffset, recoveries },
      { cause: error },
    );
  }

  #take({ event }: ExecResponse | AttachProcessResponse): void {
    // Anything else is a keepalive, or an event of a newer service.
    if (event.case === "output") {
      const { stream, offset, data } = event.value;
      this.#add(streamName(stream), Number(offset), data, 0);
    } else if (event.case === "gap") {
      const { stream, fromOffset, toOffset } = event.value;
      this.#add(streamName(stream), Number(toOffset), new Uint8Array(), Number(toOffset - fromOffset));
    } else if (event.case === "started") {
      const { recoveries, stdoutOffset, stderrOffset } = event.value;
      this.processId = event.value.processId;
      this.startTime = date(event.value.startTime);
      if (this.recoveries !== undefined && this.recoveries !== recoveries) {
        this.stdoutOffset = Number(stdoutOffset);
        this.stderrOffset = Number(stderrOffset);
      }
      this.recoveries = recoveries;
      this.#writeRest();
    } else if (event.case === "exited") {
      this.status = exitStatus(event.value);
      this.#disconnect();
      this.#connection.release(this);
      this.#finishText();
    }
  }

  #add(stream: "stdout" | "stderr", offset: number, data: Uint8Array, lost: number): void {
    this[`${stream}Offset`] = offset + data.length;
    const text = this.#decoders[stream].decode(data, { stream: lost === 0 });
    this.#chunks.push({ stream, offset, data, text, lost });
  }

  /** Returns characters that were never completed. */
  #finishText(): void {
    for (const stream of ["stdout", "stderr"] as const) {
      const text = this.#decoders[stream].decode();
      if (text !== "") {
        this.#chunks.push({ stream, offset: this[`${stream}Offset`], data: new Uint8Array(), text, lost: 0 });
      }
    }
  }

  /** Writes the rest of stdin while output is read. Nothing else is written before. */
  #writeRest(): void {
    const rest = this.#rest;
    this.#rest = undefined;
    if (rest === undefined) return;
    // With the patience of the command: its start is one act.
    const retryForMs = Math.max(this.#reconnectMs, this.#connection.retryForMs);
    const written = unlessOver(this.#write(rest.data, rest.close, retryForMs));
    // Who waits for it then knows whether it failed.
    this.#writing = written.catch((error: unknown) => {
      if (this.#ended) return;
      this.#failure = { error };
      this.#disconnect();
    });
  }

  #write(data: Uint8Array, close: boolean, retryForMs?: number): Promise<void> {
    this.#writeRest();
    const written = this.#writing.then(async () => {
      await this.#started();
      if (this.#failure) throw this.#failure.error;
      // An empty write returns the offset of stdin.
      let offset = this.#stdinOffset ?? (await this.#writePiece(0n, new Uint8Array(), false, retryForMs));
      // Unknown until this write succeeds: otherwise what a failed write has written would be subtracted from the next.
      this.#stdinOffset = undefined;
      for (let at = 0; at === 0 || at < data.length; at += PIECE_BYTES) {
        const last = at + PIECE_BYTES >= data.length;
        offset = await this.#writePiece(
          offset,
          data.subarray(at, at + PIECE_BYTES),
          close && last,
          retryForMs,
        );
      }
      this.#stdinOffset = offset;
    });
    this.#writing = written.catch(() => {});
    return written;
  }

  async #writePiece(offset: bigint, data: Uint8Array, close: boolean, retryForMs?: number): Promise<bigint> {
    const request = { requestId: newRequestId(), processId: this.processId, offset, data, close };
    const answer = await this.#connection.again(
      (options) => this.#connection.processes.writeStdin(request, options),
      this.#signal,
      retryForMs,
    );
    return answer.offset;
  }
}

async function unlessOver(call: Promise<void>): Promise<void> {
  try {
    await call;
  } catch (error) {
    if (!BerthError.is(error, "PROCESS_STATE")) throw error;
  }
}

/** The result of a promise, or the reason of a signal that is aborted before. */
function untilAborted<T>(promise: Promise<T>, ...signals: (AbortSignal | undefined)[]): Promise<T> {
  const either = AbortSignal.any(signals.filter((signal) => signal !== undefined));
  return new Promise((resolve, reject) => {
    const stop = (): void => reject(either.reason);
    either.addEventListener("abort", stop, { once: true });
    // One that is left keeps the joined signal as long as the others live.
    promise.then(resolve, reject).finally(() => either.removeEventListener("abort", stop));
  });
}
