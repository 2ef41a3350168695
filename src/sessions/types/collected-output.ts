import { isUtf8 } from "node:buffer";
import { untilAborted } from "../../base/async.ts";
import type { JsonObject } from "../../base/json.ts";
import type { OutputStream } from "../../engine/port.ts";
import { HeadAndTail } from "../../processes/head-and-tail.ts";
import type { Attachment, ToolCall } from "../backend.ts";

/** How much of each stream the result contains: head and tail. */
const MAX_BYTES = 512 * 1024;
/** How much of output that is not text is shown as text. All of it is attached. */
const MAX_MANGLED_BYTES = 64 * 1024;

/** The output of a tool's program: passed on as it is written, and kept for the result. */
export class CollectedOutput {
  readonly #call: ToolCall;
  /** Aborted when the program is being stopped. */
  readonly #stop: AbortSignal;
  readonly #kept = { stdout: new HeadAndTail(MAX_BYTES), stderr: new HeadAndTail(MAX_BYTES) };
  /** Whether the reader has not caught up. */
  #isBehind = false;

  constructor(call: ToolCall) {
    this.#call = call;
    this.#stop = AbortSignal.any([call.signal, call.timeout]);
  }

  /**
   * Takes output. Returns a promise if the caller should wait before it reads more. A program that is being stopped
   * waits for nobody, because its end comes after its output: what the reader has no room for then is not passed on.
   */
  write(stream: OutputStream, chunk: Buffer): Promise<void> | undefined {
    this.#kept[stream].append(chunk);
    if (this.#isBehind && this.#stop.aborted) return undefined;
    const room = this.#call.output.write(stream, chunk);
    if (room === undefined) return undefined;
    this.#isBehind = true;
    const caughtUp = room.then(() => {
      this.#isBehind = false;
    });
    return untilAborted(caughtUp, this.#stop).catch(() => {});
  }

  /** Records bytes that are missing. */
  skip(stream: OutputStream, bytes: number): void {
    this.#kept[stream].skip(bytes);
  }

  /**
   * `stdout`, `stderr` and `truncated`, with the position of missing bytes. Output that is not UTF-8 is also attached,
   * byte by byte.
   */
  result(): { readonly data: JsonObject; readonly attachments: Attachment[] } {
    const attachments: Attachment[] = [];
    const gaps: Record<string, JsonObject> = {};
    const text = (stream: OutputStream): string => {
      const { data, gap } = this.#kept[stream].result();
      if (gap !== undefined) gaps[`${stream}_gap`] = { ...gap };
      if (isUtf8(data)) return data.toString();
      // Text that was cut in the middle of a character is still text.
      if (gap !== undefined && isTextAround(data, gap.from)) return data.toString();
      attachments.push({ name: stream, mediaType: "application/octet-stream", content: data });
      return data.toString("utf8", 0, MAX_MANGLED_BYTES);
    };
    const stdout = text("stdout");
    const stderr = text("stderr");
    return {
      data: { stdout, stderr, truncated: Object.keys(gaps).length > 0, ...gaps },
      attachments,
    };
  }
}

/** Whether bytes are text, apart from characters that the cut at `cut` split. */
function isTextAround(data: Buffer, cut: number): boolean {
  const MAX_SPLIT = 3;
  for (let before = 0; before <= MAX_SPLIT; before++) {
    if (!isUtf8(data.subarray(0, cut - before))) continue;
    for (let after = 0; after <= MAX_SPLIT; after++) {
      if (isUtf8(data.subarray(cut + after))) return true;
    }
  }
  return false;
}
