import { type AttachProcessResponse, OutputStream } from "../../gen/ts/berth/v1/process_pb.js";
import type { ServiceClient } from "./client.ts";
import { beforeRetry, type OnRetry } from "./retry.ts";

/** A position in each stream of a process's output, in bytes from its start. */
export interface Place {
  readonly stdout: bigint;
  readonly stderr: bigint;
}

/** The part of a process's output to read. */
export interface Extract {
  /** The only stream to read. Undefined: both. */
  readonly only: keyof Place | undefined;
  readonly from: Place;
  /** Undefined: no limit. */
  readonly until: Place | undefined;
}

/** A stream's name in {@link Place}. */
export function nameOf(stream: OutputStream): keyof Place {
  return stream === OutputStream.STDERR ? "stderr" : "stdout";
}

/** Cuts output and gaps to the wanted part, in place. Returns whether anything is left. Keeps other events. */
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

interface ReadTranscriptOptions {
  readonly processId: string;
  readonly from: Place;
  /** Where to stop. Undefined: at the end of the process. */
  readonly until: Place | undefined;
  readonly onRetry: OnRetry;
  readonly signal: AbortSignal;
}

/**
 * Reads the output of a process, past and future, from a position on: `started` once, output and gaps, and `exited` at
 * the end. If the connection breaks, continues over another one.
 */
export async function* readTranscript(
  client: ServiceClient,
  { processId, from, until, onRetry, signal }: ReadTranscriptOptions,
): AsyncGenerator<AttachProcessResponse> {
  const at = { ...from };
  /** That of the stream that `at` is from. */
  let recoveries: number | undefined;
  for (let failures = 0; ; ) {
    // Leaving the loop does not end the call, so abort it.
    const leave = new AbortController();
    try {
      if (until !== undefined && at.stdout >= until.stdout && at.stderr >= until.stderr) return;
      const offsets = { stdoutOffset: at.stdout, stderrOffset: at.stderr };
      const request = { processId, ...offsets, ...(recoveries !== undefined && { recoveries }) };
      const call = client.processes.attachProcess(request, {
        signal: AbortSignal.any([signal, leave.signal]),
      });
      for await (const response of call) {
        const { event } = response;
        if (event.case === "started") {
          const { recoveries: now, stdoutOffset, stderrOffset } = event.value;
          if (recoveries === undefined) yield response;
          else if (now !== recoveries) Object.assign(at, { stdout: stdoutOffset, stderr: stderrOffset });
          recoveries = now;
          continue;
        }
        failures = 0;
        const place = endOf(event);
        if (place !== undefined) at[place.stream] = place.offset;
        yield response;
        if (event.case === "exited") return;
        if (until !== undefined && at.stdout >= until.stdout && at.stderr >= until.stderr) return;
      }
      throw new Error("the service ended the stream without saying how the process ended");
    } catch (error) {
      await beforeRetry(error, ++failures, { address: client.address, onRetry, signal });
    } finally {
      leave.abort();
    }
  }
}

/** The position in a stream after an event. */
export function endOf(
  event: AttachProcessResponse["event"],
): { readonly stream: keyof Place; readonly offset: bigint } | undefined {
  switch (event.case) {
    case "output": {
      const { stream, offset, data } = event.value;
      return { stream: nameOf(stream), offset: offset + BigInt(data.length) };
    }
    case "gap":
      return { stream: nameOf(event.value.stream), offset: event.value.toOffset };
    default:
      return undefined;
  }
}
