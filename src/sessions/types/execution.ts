import { MarkerScanner, newMarkerNonce } from "../../base/markers.ts";
import type { OutputStream } from "../../engine/port.ts";

/** The end of an execution, as the interpreter prints it. */
export interface ExecutionEnd {
  /** What follows `E` or `S` in its marker: for a shell the exit status. */
  readonly status: string;
  /** What it printed beside its output. */
  readonly payload: Buffer;
}

/** The meaning of a stream's bytes up to its next marker. */
type Phase =
  | "output"
  /** What is printed beside the output. */
  | "payload"
  /** What comes between an end that does not count and the one that does. */
  | "ignored"
  | "over";

interface StreamState {
  scanner: MarkerScanner;
  phase: Phase;
}

/**
 * One execution of code by an interpreter, read from its two streams. Output
 * comes first, as it is; then on each stream a marker, `E<status>` after the nonce of this
 * execution, then on stdout the payload and the marker `P`. The interpreter reads the
 * nonce only when it is done with what it ran, so nothing that this writes is
 * taken for a marker.
 *
 * An interpreter that is interrupted may lose the rest of a line that it was
 * sent. So after each interruption it is sent another end, `S<number>`, and the
 * execution is over with the newest of these.
 */
export class Execution {
  readonly nonce = newMarkerNonce();
  readonly #output: (stream: OutputStream, chunk: Buffer) => void;
  readonly #maxPayloadBytes: number;
  readonly #end = Promise.withResolvers<ExecutionEnd>();
  readonly #streams: Record<OutputStream, StreamState>;
  #payload: Buffer[] = [];
  #payloadBytes = 0;
  #status = "";
  /** The newest interruption; 0: none. */
  #interruption = 0;

  /** @param maxPayloadBytes more than the interpreter prints beside its output; the rest is cut */
  constructor(output: (stream: OutputStream, chunk: Buffer) => void, maxPayloadBytes: number) {
    this.#output = output;
    this.#maxPayloadBytes = maxPayloadBytes;
    this.#streams = { stdout: this.#newState("stdout"), stderr: this.#newState("stderr") };
  }

  /** Resolves when it is over; never where the interpreter ends before. */
  get end(): Promise<ExecutionEnd> {
    return this.#end.promise;
  }

  /** Counts an interruption; returns the tag of the end to send the interpreter. */
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

  /** Nothing more will come: passes on what could have been the start of a marker. */
  flush(): void {
    for (const { scanner } of Object.values(this.#streams)) scanner.flush();
  }

  #mark(stream: OutputStream, text: string): void {
    const state = this.#streams[stream];
    if (text === "P") {
      if (state.phase === "payload") state.phase = "over";
    } else {
      if (stream === "stdout" && text.startsWith("E")) this.#status = text.slice(1);
      const counts = this.#interruption === 0 || text === `S${this.#interruption}`;
      if (!counts) state.phase = "ignored";
      else state.phase = stream === "stdout" ? "payload" : "over";
      if (stream === "stdout") {
        this.#payload = [];
        this.#payloadBytes = 0;
      }
    }
    this.#settle();
  }

  #settle(): void {
    const { stdout, stderr } = this.#streams;
    if (stdout.phase !== "over" || stderr.phase !== "over") return;
    this.#end.resolve({ status: this.#status, payload: Buffer.concat(this.#payload) });
  }

  #newState(stream: OutputStream): StreamState {
    return { scanner: this.#newScanner(stream), phase: "output" };
  }

  #newScanner(stream: OutputStream): MarkerScanner {
    return new MarkerScanner(this.nonce, (chunk) => this.#take(stream, chunk));
  }

  #take(stream: OutputStream, chunk: Buffer): void {
    const { phase } = this.#streams[stream];
    if (phase === "output") this.#output(stream, chunk);
    else if (phase === "payload" && this.#payloadBytes < this.#maxPayloadBytes) {
      const part = chunk.subarray(0, this.#maxPayloadBytes - this.#payloadBytes);
      this.#payload.push(part);
      this.#payloadBytes += part.length;
    }
  }
}
