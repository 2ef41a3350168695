/** The command as the caller gave it. */
export type Command =
  | { readonly kind: "shell"; readonly line: string }
  | { readonly kind: "argv"; readonly args: readonly string[] };

/** How a process runs. Times in milliseconds. */
export interface ProcessOptions {
  readonly command: Command;
  readonly timeoutMs: number;
  readonly keepStdinOpen: boolean;
  /** What happens when the caller that started it goes away. */
  readonly onDisconnect: "KILL" | "DETACH";
  readonly disconnectGraceMs: number;
  /** Undefined: no limit. */
  readonly outputLimitBytes: number | undefined;
  readonly runId: string;
}

/** How a process starts. */
export interface StartOptions extends ProcessOptions {
  /** Not stored: a process is readable for a day, and its input would be too. */
  readonly stdin: Uint8Array;
  /** How far it may be ahead of the caller that started it, in bytes. Default: as far as its transcript holds. */
  readonly aheadBytes?: number;
  /** Whether it waits for answers to what it writes: none of it is then held back for long. */
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
  /** 0-255; 128 + signal where a signal ended it; -1 when unknown. */
  readonly exitCode: number;
  /** 1-64; 0 if none ended it. */
  readonly signal: number;
  readonly durationMs: number;
  readonly stdoutBytes: number;
  readonly stderrBytes: number;
  /** One sentence where the cause alone does not say enough, else empty. */
  readonly message: string;
}

/** What an argument costs beside its characters. */
const ARGUMENT_COST_BYTES = 32;

/** About what a command takes in memory. */
export function commandBytes(command: Command): number {
  if (command.kind === "shell") return command.line.length;
  return command.args.reduce((sum, arg) => sum + ARGUMENT_COST_BYTES + arg.length, 0);
}

const SIGKILL = 9;
const LAST_SIGNAL = 64;

/** The signal an exit code of 128 + n stands for, or 0. A program may exit with such a code by itself: see ADR 0003. */
export function signalOf(exitCode: number): number {
  const signal = exitCode - 128;
  return signal >= 1 && signal <= LAST_SIGNAL ? signal : 0;
}

/** Whether an exit code is what an out-of-memory kill leaves behind. */
export function mayBeOutOfMemory(exitCode: number): boolean {
  return signalOf(exitCode) === SIGKILL;
}
