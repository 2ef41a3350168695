import { setTimeout as sleep } from "node:timers/promises";
import type { AttachProcessResponse } from "../../gen/ts/berth/v1/process_pb.js";
import type { ServiceClient } from "./client.ts";
import { nameOf, type Place } from "./extract.ts";
import { isConnectionFailure } from "./failure.ts";

/** How often in a row it is tried to go on after a connection that broke. */
const MAX_RETRIES = 6;
const FIRST_RETRY_MS = 250;
const MAX_RETRY_MS = 4000;

/** What {@link readTranscript} is to do. */
export interface ReadTranscriptOptions {
  readonly processId: string;
  readonly from: Place;
  /** Where to stop; undefined: at the process's end. */
  readonly until: Place | undefined;
  /** Says that a connection broke and another is tried. */
  readonly onRetry: (error: unknown, attempt: number, most: number) => Promise<void>;
  readonly signal: AbortSignal;
}

/**
 * Reads what a process wrote, and writes, from a place on: `started` once,
 * output and gaps, and at the process's end `exited`. Where the connection
 * breaks, it goes on from there over another one.
 */
export async function* readTranscript(
  client: ServiceClient,
  { processId, from, until, onRetry, signal }: ReadTranscriptOptions,
): AsyncGenerator<AttachProcessResponse> {
  const at = { ...from };
  let started = false;
  for (let failures = 0; ; ) {
    // Leaving the loop below does not end the call; this does.
    const leave = new AbortController();
    try {
      if (until !== undefined && at.stdout >= until.stdout && at.stderr >= until.stderr) return;
      const request = { processId, stdoutOffset: at.stdout, stderrOffset: at.stderr };
      const call = client.processes.attachProcess(request, {
        signal: AbortSignal.any([signal, leave.signal]),
      });
      for await (const response of call) {
        const { event } = response;
        if (event.case === "started") {
          if (!started) yield response;
          started = true;
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
      if (signal.aborted || !isConnectionFailure(error, client.address) || failures === MAX_RETRIES)
        throw error;
      await onRetry(error, ++failures, MAX_RETRIES);
      await sleep(Math.min(FIRST_RETRY_MS * 2 ** (failures - 1), MAX_RETRY_MS), undefined, { signal });
    } finally {
      leave.abort();
    }
  }
}

/** Where the reader of a stream is after an event. */
function endOf(
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
