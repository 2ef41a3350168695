import { constants } from "node:os";

/** Exit codes of the program itself. Those of `run` and `exec` are the command's. */
export const EXIT = {
  ok: 0,
  /** A call failed, or `doctor` misses something. */
  failed: 1,
  /** The command line is wrong. */
  usage: 2,
  /** The command ran into its timeout. */
  timedOut: 124,
  /** Berth failed, so that there is no exit code of a command, or no difference to tell. */
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
