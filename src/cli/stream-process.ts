import { fstatSync } from "node:fs";
import type { Readable } from "node:stream";
import type { MessageInitShape } from "@bufbuild/protobuf";
import { ErrorReason } from "../../gen/ts/berth/v1/error_pb.js";
import {
  type ExecRequestSchema,
  type ExecResponse,
  ExecResponseSchema,
  type ExitStatus,
  OutputStream,
} from "../../gen/ts/berth/v1/process_pb.js";
import type { ServiceClient } from "./client.ts";
import { reasonOf } from "./failure.ts";
import { messageJson } from "./format.ts";
import { type Io, write, writeJson } from "./io.ts";

/** What {@link streamProcess} is to do. */
interface StreamProcessOptions {
  readonly request: MessageInitShape<typeof ExecRequestSchema>;
  /** Goes to the process until it or the process ends; undefined: its stdin is empty. */
  readonly stdin: Readable | undefined;
  /** Whether to write every event to stdout as JSON, instead of the output itself. */
  readonly json: boolean;
  readonly signal: AbortSignal;
}

/**
 * Runs a process and writes what it writes, byte for byte, to stdout and
 * stderr. A slow reader there slows the process down. The process ends with
 * the signal.
 */
export async function streamProcess(
  client: ServiceClient,
  io: Io,
  { request, stdin, json, signal }: StreamProcessOptions,
): Promise<ExitStatus> {
  // Leaving the loop below does not end the call; this does.
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

/** Passes stdin on, each piece when the service has taken the one before. */
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
    // A process need not read its stdin to the end, as `head` does not.
    if (!signal.aborted && reasonOf(error) !== ErrorReason.PROCESS_STATE) throw error;
  } finally {
    signal.removeEventListener("abort", stop);
  }
}

/**
 * The stdin that a command is to have: the program's own, where something may
 * come from it. A terminal counts only where it is asked for, `/dev/null` never.
 */
export function stdinFor(io: Io, interactive: boolean): Readable | undefined {
  if (io.stdin.isTTY) return interactive ? io.stdin : undefined;
  try {
    const stat = fstatSync(0);
    return stat.isCharacterDevice() ? undefined : io.stdin;
  } catch {
    return undefined;
  }
}
