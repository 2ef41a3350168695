import type { ClientReadableStream } from "@grpc/grpc-js";
import type { ExitStatus, Gap, ProcessEvent } from "./wire.ts";

/** The content of a process's stream. */
export interface ExecutionResult {
  readonly stdout: Buffer;
  readonly stderr: Buffer;
  readonly gaps: readonly Gap[];
  readonly exit: ExitStatus;
}

type Stream = "stdout" | "stderr";

/**
 * Follows a process's stream, from Exec or AttachProcess, and checks that it is as documented: `started` first, bytes
 * without holes except for gaps, `exited` last.
 */
export class Execution {
  readonly call: ClientReadableStream<ProcessEvent>;
  readonly #started = Promise.withResolvers<string>();
  readonly #result = Promise.withResolvers<ExecutionResult>();
  readonly #chunks: Record<Stream, Buffer[]> = { stdout: [], stderr: [] };
  readonly #offsets: Record<Stream, number>;
  readonly #gaps: Gap[] = [];
  readonly #waiting = new Set<() => void>();
  #begun = false;
  #exit: ExitStatus | undefined;

  constructor(call: ClientReadableStream<ProcessEvent>, from = { stdout: 0, stderr: 0 }) {
    this.call = call;
    this.#offsets = { ...from };
    // The failure is for callers that want it; there may be none.
    this.#started.promise.catch(() => {});
    this.#result.promise.catch(() => {});
    call.on("data", (event: ProcessEvent) => {
      try {
        this.#take(event);
      } catch (error) {
        this.#fail(error);
        call.cancel();
      }
    });
    call.on("error", (error) => this.#fail(error));
    call.on("end", () => {
      if (this.#exit === undefined) this.#fail(new Error("the stream ended without exited"));
      else this.#result.resolve({ ...this.output, gaps: this.#gaps, exit: this.#exit });
    });
  }

  /** The process's id, once it exists. */
  get processId(): Promise<string> {
    return this.#started.promise;
  }

  /** Everything, when the stream has ended. */
  get result(): Promise<ExecutionResult> {
    return this.#result.promise;
  }

  /** The output so far. */
  get output(): Record<Stream, Buffer> {
    return { stdout: Buffer.concat(this.#chunks.stdout), stderr: Buffer.concat(this.#chunks.stderr) };
  }

  /** The current offset of a stream. */
  offset(stream: Stream): number {
    return this.#offsets[stream];
  }

  /** Waits until stdout contains the text. Fails if the stream ends before. */
  async until(text: string): Promise<void> {
    while (!this.output.stdout.includes(text)) {
      const { promise, resolve } = Promise.withResolvers<void>();
      this.#waiting.add(resolve);
      await Promise.race([promise, this.#result.promise]);
      this.#waiting.delete(resolve);
      if (this.#exit !== undefined && !this.output.stdout.includes(text)) {
        throw new Error(`the process ended before it wrote ${JSON.stringify(text)}: ${this.output.stdout}`);
      }
    }
  }

  /** Leaves, like a caller that has lost interest. */
  cancel(): void {
    this.call.cancel();
  }

  #take(event: ProcessEvent): void {
    if (this.#exit !== undefined) throw new Error(`${event.event} came after exited`);
    if (!this.#begun && event.event !== "started") throw new Error(`${event.event} came before started`);
    switch (event.event) {
      case "started":
        if (this.#begun) throw new Error("started came twice");
        this.#begun = true;
        this.#started.resolve(event.started?.process_id ?? "");
        break;
      case "output": {
        const { stream, offset, data } = event.output as NonNullable<ProcessEvent["output"]>;
        const name = nameOf(stream);
        if (data.length === 0) throw new Error("an output is empty");
        this.#moveOn(name, offset, offset + data.length);
        this.#chunks[name].push(data);
        break;
      }
      case "gap": {
        const gap = event.gap as Gap;
        if (gap.to_offset <= gap.from_offset) throw new Error(`an empty gap at ${gap.from_offset}`);
        this.#moveOn(nameOf(gap.stream), gap.from_offset, gap.to_offset);
        this.#gaps.push(gap);
        break;
      }
      case "exited":
        this.#exit = event.exited;
        break;
    }
    for (const resolve of this.#waiting) resolve();
  }

  #moveOn(stream: Stream, from: number, to: number): void {
    if (from !== this.#offsets[stream]) {
      throw new Error(`${stream} went on at ${from} where ${this.#offsets[stream]} was due`);
    }
    this.#offsets[stream] = to;
  }

  #fail(error: unknown): void {
    this.#started.reject(error);
    this.#result.reject(error);
  }
}

function nameOf(stream: string): Stream {
  switch (stream) {
    case "OUTPUT_STREAM_STDOUT":
      return "stdout";
    case "OUTPUT_STREAM_STDERR":
      return "stderr";
    default:
      throw new Error(`output of the stream ${stream}`);
  }
}
