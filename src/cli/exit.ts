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
  /** Berth failed, so that there is no exit code of a command. */
  noCommand: 125,
  /** The command was killed for want of memory. */
  outOfMemory: 137,
  /** Whoever read the output has gone: as if SIGPIPE had ended the program. */
  outputClosed: 141,
} as const;

/** What a shell makes of a signal that ended a program. */
export function exitCodeOf(signal: NodeJS.Signals): number {
  return 128 + constants.signals[signal];
}

/** A wrong command line. */
export class UsageError extends Error {}

/** A failure with what to do about it. */
export class HintedError extends Error {
  readonly hint: string | undefined;

  constructor(message: string, hint?: string, cause?: unknown) {
    super(message, { cause });
    this.hint = hint;
  }
}

/** The program was told to stop. */
export class Interrupted extends Error {
  readonly exitCode: number;

  constructor(message: string, exitCode: number) {
    super(message);
    this.exitCode = exitCode;
  }
}
