import { constants } from "node:os";

/** Exit codes of the program itself. `run` and `exec` otherwise exit with the command's code. */
export const EXIT = {
  ok: 0,
  /** A call failed, or `doctor` found something missing. */
  failed: 1,
  /** The command line is wrong. */
  usage: 2,
  /** The command exceeded its timeout. */
  timedOut: 124,
  /** Berth failed, so there is no exit code of a command, or no result of a comparison. */
  noCommand: 125,
  /** The command ran out of memory and was killed. */
  outOfMemory: 137,
  /** The reader of the output is gone: the code for SIGPIPE. */
  outputClosed: 141,
} as const;

/** A shell's exit code for a program that was ended by a signal. */
export function exitCodeOf(signal: NodeJS.Signals): number {
  return 128 + constants.signals[signal];
}

/** A wrong command line. */
export class UsageError extends Error {}

/** A failure, described for the user. */
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
