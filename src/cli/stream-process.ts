import { fstatSync, statSync } from "node:fs";
import type { Readable } from "node:stream";
import { isatty } from "node:tty";
import type { MessageInitShape } from "@bufbuild/protobuf";
import { Code, ConnectError } from "@connectrpc/connect";
import {
  type ExecRequestSchema,
  type ExecResponse,
  ExecResponseSchema,
  type ExitStatus,
  OutputStream,
} from "../../gen/ts/berth/v1/process_pb.js";
import type { ServiceClient } from "./client.ts";
import { messageJson } from "./format.ts";
import { type Io, write, writeJson } from "./io.ts";

interface StreamProcessOptions {
  readonly request: MessageInitShape<typeof ExecRequestSchema>;
  /** Sent to the process until it or the process ends. Undefined: the process has an empty stdin. */
  readonly stdin: Readable | undefined;
  /** Whether to write every event to stdout as JSON instead of the output itself. */
  readonly json: boolean;
  readonly signal: AbortSignal;
}

/**
 * Runs a process and copies its output, byte for byte, to stdout and stderr. A slow reader slows the process down.
 * Aborting the signal ends the process.
 */
export async function streamProcess(
  client: ServiceClient,
  io: Io,
  { request, stdin, json, signal }: StreamProcessOptions,
): Promise<ExitStatus> {
  // Leaving the loop does not end the call, so abort it.
  const leave = new AbortController();
  const ended = AbortSignal.any([signal, leave.signal]);
  let feedFailure: unknown;
  const call = client.processes.exec({ ...request, keepStdinOpen: stdin !== undefined }, { signal: ended });
  try {
    for await (const response of call) {
      const { event } = response;
      if (event.case === "started" && stdin) {
        feed(client, event.value.processId, stdin, ended).catch((error: unknown) => {
          feedFailure = error;
          leave.abort();
        });
      }
      if (json) await writeJson(io.stdout, messageJson(ExecResponseSchema, response), signal);
      else await writeOutput(io, response, signal);
      if (event.case === "exited") return event.value;
    }
    throw new Error("the service ended the stream without saying how the process ended");
  } catch (error) {
    throw feedFailure ?? error;
  } finally {
    leave.abort();
    stdin?.destroy();
  }
}

async function writeOutput(io: Io, { event }: ExecResponse, signal: AbortSignal): Promise<void> {
  if (event.case === "output") {
    await write(event.value.stream === OutputStream.STDERR ? io.stderr : io.stdout, event.value.data, signal);
  } else if (event.case === "gap") {
    const { fromOffset, toOffset } = event.value;
    await write(io.stderr, `berth: ${toOffset - fromOffset} bytes of the output are lost\n`, signal);
  }
}

/** Forwards stdin. Sends each piece after the service has accepted the previous one. */
async function feed(
  client: ServiceClient,
  processId: string,
  stdin: Readable,
  signal: AbortSignal,
): Promise<void> {
  const stop = () => stdin.destroy();
  signal.addEventListener("abort", stop, { once: true });
  try {
    let offset = 0n;
    for await (const data of stdin as AsyncIterable<Buffer>) {
      ({ offset } = await client.processes.writeStdin({ processId, offset, data }, { signal }));
    }
    await client.processes.writeStdin({ processId, offset, close: true }, { signal });
  } catch (error) {
    // A process need not read all of its stdin: `head` does not.
    if (!signal.aborted && !isUnread(error)) throw error;
  } finally {
    signal.removeEventListener("abort", stop);
  }
}

/** Whether stdin could not be written because nothing reads it any more. WriteStdin has this code for nothing else. */
function isUnread(error: unknown): boolean {
  return error instanceof ConnectError && error.code === Code.FailedPrecondition;
}

/**
 * The stdin for a command: the program's own, if it may have any data. A terminal only counts on request, and
 * `/dev/null` never does.
 */
export function stdinFor(io: Io, interactive: boolean): Readable | undefined {
  // Only opens stdin if it is used.
  const isUsed = isatty(0) ? interactive : mayHaveData(0);
  return isUsed ? io.stdin : undefined;
}

/** Whether a descriptor is open, and not `/dev/null`. */
function mayHaveData(fd: number): boolean {
  try {
    const stats = fstatSync(fd);
    return !stats.isCharacterDevice() || stats.rdev !== statSync("/dev/null").rdev;
  } catch {
    return false;
  }
}
