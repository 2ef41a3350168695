import type { Clock } from "../base/clock.ts";
import type { Logger } from "../base/logger.ts";
import type { ProcessControl } from "./control.ts";
import type { JobRunner } from "./shell/job.ts";
import type { Spill } from "./spill.ts";
import type { TranscriptLimits } from "./transcript.ts";
import type { TranscriptBudget } from "./transcript-budget.ts";

/** What was run, as the caller said it. */
export type Command =
  | { readonly kind: "shell"; readonly line: string }
  | { readonly kind: "argv"; readonly args: readonly string[] };

/** How a process is to be run. Times in milliseconds. */
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

/** How a process is to be started. */
export interface StartOptions extends ProcessOptions {
  /** Not kept: a process is remembered for a day, and what it read would be too. */
  readonly stdin: Uint8Array;
}

/** What processes are built of. */
export interface ProcessParts {
  readonly runner: JobRunner;
  readonly control: ProcessControl;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly transcript: Omit<TranscriptLimits, "keepRead" | "aheadBytes">;
  /** What the transcripts of all processes may hold. */
  readonly transcripts: TranscriptBudget;
  /** Where the output of a process goes that memory is not to hold; undefined: nowhere. */
  readonly openSpill: (() => Spill) | undefined;
  /** How long a process tree has between SIGTERM and SIGKILL. */
  readonly killGraceMs: number;
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

const SIGKILL = 9;
const LAST_SIGNAL = 64;

/** The signal an exit code of 128 + n stands for, or 0. A program may exit with such a code by itself: see docs/adr/0003. */
export function signalOf(exitCode: number): number {
  const signal = exitCode - 128;
  return signal >= 1 && signal <= LAST_SIGNAL ? signal : 0;
}

/** Whether an exit code is what a kill for want of memory leaves behind. */
export function mayBeOutOfMemory(exitCode: number): boolean {
  return signalOf(exitCode) === SIGKILL;
}
