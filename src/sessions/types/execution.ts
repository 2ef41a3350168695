import { MarkerScanner, newMarkerNonce } from "../../base/markers.ts";
import { withRoom } from "../../base/with-room.ts";
import type { OutputStream } from "../../engine/port.ts";

/** The end of an execution, as the interpreter prints it. */
export interface ExecutionEnd {
  /** What follows `E` or `S` in its marker: the exit status, if the interpreter is a shell. */
  readonly status: string;
  /** What the interpreter printed besides the output. */
  readonly payload: Buffer;
}

/** POSIX's PIPE_BUF on Linux. */
export const ATOMIC_BYTES = 4096;

/** What the bytes of a stream mean up to its next marker. */
type Phase =
  | "output"
  /** Before and between parts of the payload. */
  | "payload"
  /** Between an end that does not count and the one that does. */
  | "ignored"
  | "over";

interface StreamState {
  scanner: MarkerScanner;
  phase: Phase;
  /** Whether a part of a payload comes. It is never output. */
  isPart: boolean;
}

/**
 * One execution of code by an interpreter, read from two streams. The output comes first, unchanged. Then each stream
 * has a marker: the nonce of this execution and `E<status>`. On stdout the parts of the payload follow, each between the
 * markers `D` and `G`, and then the marker `P`. The interpreter reads the nonce only after the code has run, so the code
 * cannot forge a marker.
 *
 * What the code has left running may write at any moment. Pipes keep a write of up to {@link ATOMIC_BYTES} in one piece,
 * so a part that is written with its markers at once contains nothing else. What comes outside of parts is dropped.
 *
 * An interrupted interpreter may lose the rest of the line that it was sent. So after each interruption Berth sends it
 * another end, `S<number>`. The execution is over at the newest of these.
 */
export class Execution {
  readonly nonce = newMarkerNonce();
  readonly #output: (stream: OutputStream, chunk: Buffer) => void;
  #maxPayloadBytes: number;
  readonly #onHeld: (bytes: number) => void;
  readonly #end = Promise.withResolvers<ExecutionEnd>();
  readonly #streams: Record<OutputStream, StreamState>;
  #payload = Buffer.alloc(0);
  #payloadBytes = 0;
  #status = "";
  /** The number of the last interruption. 0: none. */
  #interruption = 0;

  /**
   * @param maxPayloadBytes more than the interpreter prints besides the output. The rest is cut off.
   * @param onHeld called with the memory that the payload takes, whenever that changes.
   */
  constructor(
    output: (stream: OutputStream, chunk: Buffer) => void,
    maxPayloadBytes: number,
    onHeld: (bytes: number) => void = () => {},
  ) {
    this.#output = output;
    this.#maxPayloadBytes = maxPayloadBytes;
    this.#onHeld = onHeld;
    this.#streams = { stdout: this.#newState("stdout"), stderr: this.#newState("stderr") };
  }

  /** Resolves when the execution is over. Never resolves if the interpreter ends first. */
  get end(): Promise<ExecutionEnd> {
    return this.#end.promise;
  }

  /** Counts an interruption. Returns the tag of the end to send to the interpreter. */
  interrupt(): string {
    this.#interruption++;
    return `S${this.#interruption}`;
  }

  data(stream: OutputStream, chunk: Buffer): void {
    const state = this.#streams[stream];
    let rest: Buffer | undefined = chunk;
    while (rest !== undefined && rest.length > 0 && state.phase !== "over") {
      const marker = state.scanner.push(rest);
      if (marker === undefined) return;
      rest = marker.rest;
      state.scanner = this.#newScanner(stream);
      this.#mark(stream, marker.text);
    }
  }

  /** At the end of the streams: passes on bytes held back as a possible start of a marker. */
  flush(): void {
    for (const { scanner } of Object.values(this.#streams)) scanner.flush();
  }

  /** Drops the payload and all that comes of it. */
  dropPayload(): void {
    this.#maxPayloadBytes = 0;
    this.#payloadBytes = 0;
    this.#payload = Buffer.alloc(0);
  }

  #mark(stream: OutputStream, text: string): void {
    const state = this.#streams[stream];
    if (text === "D" || text === "G") {
      state.isPart = text === "D";
    } else if (text === "P") {
      if (state.phase === "payload") state.phase = "over";
    } else {
      if (stream === "stdout" && text.startsWith("E")) this.#status = text.slice(1);
      state.isPart = false;
      const counts = this.#interruption === 0 || text === `S${this.#interruption}`;
      if (!counts) state.phase = "ignored";
      else state.phase = stream === "stdout" ? "payload" : "over";
      if (stream === "stdout") this.#payloadBytes = 0;
    }
    this.#settle();
  }

  #settle(): void {
    const { stdout, stderr } = this.#streams;
    if (stdout.phase !== "over" || stderr.phase !== "over") return;
    this.#end.resolve({ status: this.#status, payload: this.#payload.subarray(0, this.#payloadBytes) });
  }

  #newState(stream: OutputStream): StreamState {
    return { scanner: this.#newScanner(stream), phase: "output", isPart: false };
  }

  #newScanner(stream: OutputStream): MarkerScanner {
    return new MarkerScanner(this.nonce, (chunk) => this.#take(stream, chunk));
  }

  #take(stream: OutputStream, chunk: Buffer): void {
    const { phase, isPart } = this.#streams[stream];
    if (phase === "output" && !isPart) this.#output(stream, chunk);
    else if (phase === "payload" && isPart) this.#addToPayload(chunk);
  }

  /** Copies a part of the payload: a short one must not keep all that was read with it in memory. */
  #addToPayload(part: Buffer): void {
    const from = this.#payloadBytes;
    const bytes = Math.min(from + part.length, this.#maxPayloadBytes);
    const before = this.#payload.length;
    this.#payload = withRoom(this.#payload, from, bytes, this.#maxPayloadBytes);
    part.copy(this.#payload, from, 0, bytes - from);
    this.#payloadBytes = bytes;
    if (this.#payload.length !== before) this.#onHeld(this.#payload.length);
  }
}
