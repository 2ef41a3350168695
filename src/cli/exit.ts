import { constants } from "node:os";
import { durationMs } from "@bufbuild/protobuf/wkt";
import { ExitCause, type ExitStatus } from "../../gen/ts/berth/v1/process_pb.js";
import { formatDuration } from "./format.ts";

/** Exit codes of the program itself. Those of `run` and `exec` are the command's. */
export const EXIT = {
  ok: 0,
  /** A call failed, or `doctor` misses something. */
  failed: 1,
  /** The command line is wrong. */
  usage: 2,
  /** The command ran into its timeout. */
  timedOut: 124,
  /** Berth failed, so that there is no exit code of a command. */
  noCommand: 125,
  /** The command ran out of memory and was killed. */
  outOfMemory: 137,
  /** The reader of the output has gone: as if SIGPIPE had ended the program. */
  outputClosed: 141,
} as const;

/** What a shell makes of a signal that ended a program. */
export function exitCodeOf(signal: NodeJS.Signals): number {
  return 128 + constants.signals[signal];
}

/** A wrong command line. */
export class UsageError extends Error {}

/** What the program could not do, in words for its user. */
export class Failed extends Error {
  /** What to do about it. */
  readonly hint: string | undefined;
  readonly exitCode: number;

  constructor(
    message: string,
    options: {
      readonly hint?: string | undefined;
      readonly exitCode?: number;
      readonly cause?: unknown;
    } = {},
  ) {
    super(message, { cause: options.cause });
    this.hint = options.hint;
    this.exitCode = options.exitCode ?? EXIT.failed;
  }
}

/** The program was asked to stop. */
export class Interrupted extends Error {
  readonly exitCode: number;

  constructor(message: string, exitCode: number) {
    super(message);
    this.exitCode = exitCode;
  }
}

/** How the program ends after a command, and what it prints on stderr. */
interface CommandEnd {
  readonly exitCode: number;
  readonly remark: string | undefined;
}

/** What a command's end means for the program that ran it. */
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
        remark: `the command ran into its timeout and was killed${ran}.${detail}`,
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
        remark: `the command wrote more than it may and was killed.${detail}`,
      };
    case ExitCause.CANCELED:
      return { exitCode: EXIT.noCommand, remark: `the command was canceled.${detail}` };
    case ExitCause.SANDBOX_TERMINATED:
      return { exitCode: EXIT.noCommand, remark: `the sandbox ended while the command ran.${detail}` };
    default:
      return { exitCode: EXIT.noCommand, remark: `how the command ended is not known.${detail}` };
  }
}
