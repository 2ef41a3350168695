import type { Hold } from "../state/request-log.ts";

/** The command as the caller gave it. */
export type Command =
  | { readonly kind: "shell"; readonly line: string }
  | { readonly kind: "argv"; readonly args: readonly string[] };

/** The options of a process. Times in milliseconds. */
export interface ProcessOptions {
  readonly command: Command;
  readonly timeoutMs: number;
  readonly keepStdinOpen: boolean;
  /** What happens when the caller that started it disconnects. */
  readonly onDisconnect: "KILL" | "DETACH";
  readonly disconnectGraceMs: number;
  /** Undefined: no limit. */
  readonly outputLimitBytes: number | undefined;
  readonly runId: string;
}

/** The options of a start. */
export interface StartOptions extends ProcessOptions {
  /** Not stored, because stored options stay readable for a day. */
  readonly stdin: Uint8Array;
  /** Counts {@link stdin} until the process has it. Default: nothing does. */
  readonly hold?: Hold | undefined;
  /** How many bytes it may be ahead of the caller that started it. Default: as many as its transcript holds. */
  readonly aheadBytes?: number;
  /** Whether it waits for answers to its output, none of which is then held back for long. */
  readonly isDialogue?: boolean;
}

/** Why a process ended. */
export type ExitCause =
  | "EXITED"
  | "SIGNALED"
  | "TIMED_OUT"
  | "OUT_OF_MEMORY"
  | "OUTPUT_LIMIT"
  | "CANCELED"
  | "SANDBOX_TERMINATED"
  | "ENGINE_LOST";

/** How a process ended. */
export interface ExitStatus {
  readonly cause: ExitCause;
  /** 0-255; 128 + signal if a signal ended it; -1 when unknown. */
  readonly exitCode: number;
  /** 1-64; 0 if no signal ended it. */
  readonly signal: number;
  readonly durationMs: number;
  readonly stdoutBytes: number;
  readonly stderrBytes: number;
  /** One sentence if the cause alone does not say enough; otherwise empty. */
  readonly message: string;
}

/** The overhead of an argument in addition to its characters. */
const ARGUMENT_COST_BYTES = 32;

/** Approximately how much memory a command uses. */
export function commandBytes(command: Command): number {
  if (command.kind === "shell") return command.line.length;
  return command.args.reduce((sum, arg) => sum + ARGUMENT_COST_BYTES + arg.length, 0);
}

const SIGKILL = 9;
const LAST_SIGNAL = 64;

/**
 * The signal n for an exit code of 128 + n, else 0. A program may also exit with such a code by itself: see ADR 0003.
 */
export function signalOf(exitCode: number): number {
  const signal = exitCode - 128;
  return signal >= 1 && signal <= LAST_SIGNAL ? signal : 0;
}

/** Whether an exit code may be the result of an OOM kill. */
export function mayBeOutOfMemory(exitCode: number): boolean {
  return signalOf(exitCode) === SIGKILL;
}
