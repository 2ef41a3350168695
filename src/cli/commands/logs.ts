import type { Command } from "commander";
import {
  type AttachProcessResponse,
  AttachProcessResponseSchema,
  type ExitStatus,
  type Process,
} from "../../../gen/ts/berth/v1/process_pb.js";
import { parseCount } from "../../config/values.ts";
import type { ServiceClient } from "../client.ts";
import { remarkLine } from "../colour.ts";
import { commandEnd } from "../command-end.ts";
import { examples } from "../examples.ts";
import { EXIT, UsageError } from "../exit.ts";
import { flagValue } from "../flags.ts";
import { messageJson } from "../format.ts";
import { type ClientFlags, type CommandHost, clientCommand, withClient } from "../host.ts";
import { type Io, write, writeJson } from "../io.ts";
import { cutDown, type Extract, endOf, nameOf, type Place, readTranscript } from "../read-transcript.ts";
import { tellRetry } from "../retry.ts";

interface LogsFlags extends ClientFlags {
  readonly follow?: boolean;
  readonly stdout?: boolean;
  readonly stderr?: boolean;
  readonly tail?: string;
  readonly offset?: string;
}

/** `berth logs`: shows the output of a process. */
export function logsCommand(host: CommandHost): Command {
  return clientCommand("logs")
    .summary("show the output of a process")
    .description(
      "Writes the output of a process byte for byte, its stdout to stdout and its stderr to stderr. If a part is no longer kept, " +
        "stderr says how many bytes are missing. `berth ps --all SANDBOX` lists processes and their ids. With -f the exit code is " +
        "the process's, as for `berth exec`.",
    )
    .option("-f, --follow", "follow the output until the process ends; reconnects if the connection breaks")
    .option("--stdout", "only its stdout")
    .option("--stderr", "only its stderr, written to stdout")
    .option("--tail <bytes>", "start that many bytes before the end of each stream")
    .option("--offset <n>", "skip the first n bytes of each stream")
    .argument("<process>", "id of the process")
    .addHelpText(
      "after",
      examples("berth logs PROCESS", "berth logs -f --tail 4096 PROCESS", "berth logs --stderr PROCESS"),
    )
    .action(
      host.action(async (processId: string, flags: LogsFlags) => {
        const choose = choiceOf(flags);
        const failureCode = flags.follow ? EXIT.noCommand : EXIT.failed;
        return withClient(host, flags, failureCode, async (client) => {
          const { signal } = host.interrupts;
          const { process } = await client.processes.getProcess({ processId }, { signal });
          if (process === undefined) throw new Error("the service answered without a process");
          const exited = await show(client, host, process, choose(process), flags.json === true);
          if (exited === undefined) return EXIT.ok;
          const { exitCode, remark } = commandEnd(exited);
          if (remark !== undefined) await write(host.io.stderr, remarkLine(remark));
          return exitCode;
        });
      }),
    );
}

/**
 * The part of a process's output that the flags select.
 * @throws UsageError for flags that cannot be used together
 */
function choiceOf({ follow, stdout, stderr, tail, offset }: LogsFlags): (process: Process) => Extract {
  if (stdout && stderr)
    throw new UsageError("--stdout and --stderr cannot be used together: leave both out to get both streams");
  if (tail !== undefined && offset !== undefined) {
    throw new UsageError("--tail and --offset cannot be used together: each says where to start");
  }
  const bytes = (text: string) => BigInt(parseCount(text, { min: 0, max: Number.MAX_SAFE_INTEGER }));
  const last = flagValue("--tail", tail, bytes);
  const skip = flagValue("--offset", offset, bytes) ?? 0n;
  const startOf = (written: bigint) => (last === undefined ? skip : written > last ? written - last : 0n);
  return ({ stdoutBytes, stderrBytes }) => ({
    only: stdout ? "stdout" : stderr ? "stderr" : undefined,
    from: { stdout: startOf(stdoutBytes), stderr: startOf(stderrBytes) },
    until: follow ? undefined : { stdout: stdoutBytes, stderr: stderrBytes },
  });
}

/** Writes the selected output of a process. If it waits for the end, returns how the process ended. */
async function show(
  client: ServiceClient,
  { io, interrupts: { signal } }: CommandHost,
  { processId, stdoutBytes, stderrBytes }: Process,
  extract: Extract,
  json: boolean,
): Promise<ExitStatus | undefined> {
  // The service refuses an offset beyond the output so far. For a stream that is not wanted, starts at the end, so that
  // it is not sent.
  const start = (stream: keyof Place, written: bigint) =>
    written < extract.from[stream] || (extract.only ?? stream) !== stream ? written : extract.from[stream];
  const events = readTranscript(client, {
    processId,
    from: { stdout: start("stdout", stdoutBytes), stderr: start("stderr", stderrBytes) },
    until: extract.until,
    onRetry: tellRetry(io, client.address, signal),
    signal,
  });
  // After a killed service, output may take earlier offsets. All of it is wanted unless something remains to skip.
  const toSkip = (stream: keyof Place, written: bigint) =>
    written < extract.from[stream] ? extract.from[stream] : 0n;
  const from = { stdout: toSkip("stdout", stdoutBytes), stderr: toSkip("stderr", stderrBytes) };
  for await (const response of events) {
    const place = endOf(response.event);
    const isWanted = cutDown(response, { ...extract, from });
    if (place !== undefined && place.offset >= from[place.stream]) from[place.stream] = 0n;
    if (!isWanted) continue;
    if (json) await writeJson(io.stdout, messageJson(AttachProcessResponseSchema, response), signal);
    else await writeOutput(io, response, extract.only !== undefined, signal);
    if (response.event.case === "exited") return response.event.value;
  }
  return undefined;
}

async function writeOutput(
  io: Io,
  { event }: AttachProcessResponse,
  toStdout: boolean,
  signal: AbortSignal,
): Promise<void> {
  if (event.case === "output") {
    const { stream, data } = event.value;
    await write(toStdout ? io.stdout : io[nameOf(stream)], data, signal);
  } else if (event.case === "gap") {
    const { fromOffset, toOffset } = event.value;
    await write(io.stderr, `[… ${toOffset - fromOffset} bytes are gone …]\n`, signal);
  }
}
