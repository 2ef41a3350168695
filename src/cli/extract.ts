import { type AttachProcessResponse, OutputStream } from "../../gen/ts/berth/v1/process_pb.js";

/** A place in each stream of a process's output, in bytes from its begin. */
export interface Place {
  readonly stdout: bigint;
  readonly stderr: bigint;
}

/** What is wanted of what a process writes. */
export interface Extract {
  /** The one stream that is wanted; undefined: both. */
  readonly only: keyof Place | undefined;
  readonly from: Place;
  /** Undefined: all that comes. */
  readonly until: Place | undefined;
}

/** A stream's name, as places have it. */
export function nameOf(stream: OutputStream): keyof Place {
  return stream === OutputStream.STDERR ? "stderr" : "stdout";
}

/** Cuts output and gaps down to what is wanted, in place. Returns whether anything is left; other events stay. */
export function cutDown({ event }: AttachProcessResponse, { only, from, until }: Extract): boolean {
  if (event.case !== "output" && event.case !== "gap") return true;
  const stream = nameOf(event.value.stream);
  if (only !== undefined && stream !== only) return false;
  const least = from[stream];
  const most = until?.[stream];
  if (event.case === "gap") {
    const gap = event.value;
    if (gap.fromOffset < least) gap.fromOffset = least;
    if (most !== undefined && gap.toOffset > most) gap.toOffset = most;
    return gap.fromOffset < gap.toOffset;
  }
  const output = event.value;
  if (most !== undefined && output.offset + BigInt(output.data.length) > most) {
    output.data = output.data.subarray(0, Math.max(0, Number(most - output.offset)));
  }
  if (output.offset < least) {
    output.data = output.data.subarray(Number(least - output.offset));
    output.offset = least;
  }
  return output.data.length > 0;
}
