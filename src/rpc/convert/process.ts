import type { MessageInitShape } from "@bufbuild/protobuf";
import { BinaryWriter, WireType } from "@bufbuild/protobuf/wire";
import {
  type ExecRequest,
  type ExecResponseSchema,
  type ExitStatusSchema,
  type GapSchema,
  OnDisconnect,
  type ProcessSchema,
  type RunCommandRequest,
  type Terminal,
  ExitCause as WireCause,
  OutputStream as WireStream,
} from "../../../gen/ts/berth/v1/process_pb.js";
import { invalidArgument } from "../../base/errors.ts";
import type { OutputStream, TerminalSize } from "../../engine/port.ts";
import type { ProcessEvent } from "../../processes/manager.ts";
import type { Process } from "../../processes/process.ts";
import type { Command, ExitCause, ExitStatus } from "../../processes/record.ts";
import { type Encoded, withEncoding } from "../../server/framing.ts";
import { jsonAround } from "../../server/json-text.ts";
import { checkText, msToDuration, msToTimestamp } from "../validate/fields.ts";

/** The kernel's limit for one argument: 32 pages, including the NUL. */
const MAX_ARGUMENT_BYTES = 131_071;
/** With the most variables, they fit into the values that a message may have. */
const MAX_ARGUMENTS = 50_000;
const MAX_ARGV_BYTES = 1024 * 1024;
const MAX_TERMINAL_SIDE = 10_000;

const CAUSES: Record<ExitCause, WireCause> = {
  EXITED: WireCause.EXITED,
  SIGNALED: WireCause.SIGNALED,
  TIMED_OUT: WireCause.TIMED_OUT,
  OUT_OF_MEMORY: WireCause.OUT_OF_MEMORY,
  OUTPUT_LIMIT: WireCause.OUTPUT_LIMIT,
  CANCELED: WireCause.CANCELED,
  SANDBOX_TERMINATED: WireCause.SANDBOX_TERMINATED,
  ENGINE_LOST: WireCause.ENGINE_LOST,
};

const STREAMS: Record<OutputStream, WireStream> = { stdout: WireStream.STDOUT, stderr: WireStream.STDERR };

export function fromWireCommand(command: ExecRequest["command"] | RunCommandRequest["command"]): Command {
  switch (command.case) {
    case "shell":
      if (command.value === "") throw invalidArgument("shell", "the command is empty. Say what to run.");
      return { kind: "shell", line: checkText("shell", command.value, MAX_ARGUMENT_BYTES) };
    case "argv":
      return { kind: "argv", args: checkArgv(command.value.args) };
    default:
      throw invalidArgument(
        "command",
        "it is missing. Give shell (a line for /bin/sh) or argv (a program and its arguments).",
      );
  }
}

export function fromWireTerminal(terminal: Terminal | undefined): TerminalSize | undefined {
  return terminal && fromWireSize("terminal.", terminal.columns || 80, terminal.rows || 24);
}

export function fromWireSize(prefix: string, columns: number, rows: number): TerminalSize {
  for (const [field, value] of Object.entries({ columns, rows })) {
    if (value < 1 || value > MAX_TERMINAL_SIDE) {
      throw invalidArgument(`${prefix}${field}`, `${value} is not between 1 and ${MAX_TERMINAL_SIDE}.`);
    }
  }
  return { columns, rows };
}

export function fromWireOnDisconnect(value: OnDisconnect): "KILL" | "DETACH" {
  switch (value) {
    case OnDisconnect.UNSPECIFIED:
    case OnDisconnect.KILL:
      return "KILL";
    case OnDisconnect.DETACH:
      return "DETACH";
    default:
      throw invalidArgument("on_disconnect", `${value} is not a known value.`);
  }
}

/** The same for every stream of a process. */
export function toWireEvent(event: ProcessEvent): {
  event: MessageInitShape<typeof ExecResponseSchema>["event"];
} {
  switch (event.type) {
    case "output": {
      const stream = STREAMS[event.stream];
      const { offset } = event;
      const data = event.data as Uint8Array<ArrayBuffer>;
      const message = { event: { case: "output" as const, value: { stream, offset: BigInt(offset), data } } };
      return withEncoding(message, {
        proto: () => encodeOutput(stream, offset, data),
        json: () => jsonOutput(event.stream, offset, data),
      });
    }
    case "started":
      return {
        event: {
          case: "started",
          value: {
            processId: event.processId,
            startTime: msToTimestamp(event.startTimeMs),
            recoveries: event.recoveries,
            stdoutOffset: BigInt(event.from.stdout),
            stderrOffset: BigInt(event.from.stderr),
          },
        },
      };
    case "gap":
      return { event: { case: "gap", value: toWireGap(event.stream, event) } };
    case "exited":
      return { event: { case: "exited", value: toWireStatus(event.status) } };
    case "keepalive":
      return { event: { case: "keepalive", value: {} } };
  }
}

export function toWireGap(
  stream: OutputStream,
  gap: { from: number; to: number },
): MessageInitShape<typeof GapSchema> {
  return { stream: STREAMS[stream], fromOffset: BigInt(gap.from), toOffset: BigInt(gap.to) };
}

export function toWireStatus(status: ExitStatus): MessageInitShape<typeof ExitStatusSchema> {
  return {
    cause: CAUSES[status.cause],
    exitCode: status.exitCode,
    signal: status.signal,
    duration: msToDuration(status.durationMs),
    stdoutBytes: BigInt(status.stdoutBytes),
    stderrBytes: BigInt(status.stderrBytes),
    message: status.message,
  };
}

export function toWireProcess(process: Process): MessageInitShape<typeof ProcessSchema> {
  const { command, runId } = process.options;
  const { stdout, stderr } = process.transcript.written;
  return {
    processId: process.id,
    sandboxId: process.sandbox.sandboxId,
    command:
      command.kind === "shell"
        ? { case: "shell", value: command.line }
        : { case: "argv", value: { args: [...command.args] } },
    startTime: msToTimestamp(process.startTimeMs),
    exitStatus: process.status && toWireStatus(process.status),
    stdoutBytes: BigInt(stdout),
    stderrBytes: BigInt(stderr),
    hasTerminal: process.hasTerminal,
    runId,
  };
}

function checkArgv(args: readonly string[]): readonly string[] {
  const first = args[0];
  if (first === undefined)
    throw invalidArgument("argv.args", "it is empty. Its first element is the program to run.");
  if (first === "") throw invalidArgument("argv.args[0]", "the program's name is empty.");
  if (args.length > MAX_ARGUMENTS)
    throw invalidArgument("argv.args", `there are ${args.length}; at most ${MAX_ARGUMENTS} are allowed.`);
  let bytes = 0;
  args.forEach((arg, index) => {
    checkText(`argv.args[${index}]`, arg, MAX_ARGUMENT_BYTES);
    bytes += Buffer.byteLength(arg) + 1;
  });
  if (bytes > MAX_ARGV_BYTES) {
    throw invalidArgument(
      "argv.args",
      `together they have ${bytes} bytes; at most ${MAX_ARGV_BYTES} are allowed. Pass more through stdin or a file.`,
    );
  }
  return args;
}

/** Field numbers in `process.proto`: `output` in the events of each stream, and the fields of `Output`. */
const OUTPUT = 2;
const STREAM = 1;
const OFFSET = 2;
const DATA = 3;

/**
 * The encoding of an event with output. Does not copy the data: most of what Berth sends is output, and the generated
 * code would copy it three times.
 */
export function encodeOutput(stream: number, offset: number, data: Uint8Array): Encoded {
  const fields = new BinaryWriter().tag(STREAM, WireType.Varint).int32(stream);
  if (offset > 0) fields.tag(OFFSET, WireType.Varint).int64(BigInt(offset));
  const inner = fields.tag(DATA, WireType.LengthDelimited).uint32(data.length).finish();
  const head = new BinaryWriter()
    .tag(OUTPUT, WireType.LengthDelimited)
    .uint32(inner.length + data.length)
    .raw(inner)
    .finish();
  return [head, data];
}

/** The JSON of an event with output. The library takes up to five times as long for a short one. */
export function jsonOutput(stream: OutputStream, offset: number, data: Uint8Array): Encoded {
  const name = `OUTPUT_STREAM_${stream.toUpperCase()}`;
  return [jsonAround(`{"output":{"stream":"${name}","offset":"${offset}","data":"`, data, '"}}')];
}
