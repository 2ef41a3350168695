import { durationMs } from "@bufbuild/protobuf/wkt";
import { ExitCause, type ExitStatus } from "../../gen/ts/berth/v1/process_pb.js";
import { EXIT } from "./exit.ts";
import { formatDuration } from "./format.ts";

/** How the program ends after a command, and what it prints to stderr. */
interface CommandEnd {
  readonly exitCode: number;
  readonly remark: string | undefined;
}

/** Converts the exit status of a command to the end of the program that ran it. */
export function commandEnd(status: ExitStatus): CommandEnd {
  const detail = status.message === "" ? "" : ` ${status.message}`;
  switch (status.cause) {
    case ExitCause.EXITED:
      return { exitCode: status.exitCode, remark: status.message || undefined };
    case ExitCause.SIGNALED:
      return { exitCode: 128 + status.signal, remark: status.message || undefined };
    case ExitCause.TIMED_OUT: {
      const ran = status.duration ? ` after ${formatDuration(durationMs(status.duration))}` : "";
      return {
        exitCode: EXIT.timedOut,
        remark: `the command exceeded its timeout and was killed${ran}.${detail}`,
      };
    }
    case ExitCause.OUT_OF_MEMORY:
      return {
        exitCode: EXIT.outOfMemory,
        remark: `the command was killed: the sandbox is out of memory.${detail}`,
      };
    case ExitCause.OUTPUT_LIMIT:
      return {
        exitCode: EXIT.noCommand,
        remark: `the command exceeded its output limit and was killed.${detail}`,
      };
    case ExitCause.CANCELED:
      return { exitCode: EXIT.noCommand, remark: `the command was canceled.${detail}` };
    case ExitCause.SANDBOX_TERMINATED:
      return { exitCode: EXIT.noCommand, remark: `the sandbox ended while the command ran.${detail}` };
    default:
      return { exitCode: EXIT.noCommand, remark: `how the command ended is not known.${detail}` };
  }
}
