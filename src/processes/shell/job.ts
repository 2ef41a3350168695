import { posix } from "node:path";
import { type BerthError, invalidArgument } from "../../base/errors.ts";
import type { OutputStream, TerminalSize } from "../../engine/port.ts";
import type { LeasedSandbox } from "../../sandboxes/lease.ts";
import type { Redaction } from "../redaction.ts";

/** A command to run in a sandbox. */
export interface JobRequest {
  /** Program and arguments; not empty, none holds NUL. */
  readonly argv: readonly string[];
  /** The whole environment that Berth sets: the sandbox's and the command's. The image's own comes below it. */
  readonly env: Readonly<Record<string, string>>;
  /** Variables and the names of the secrets that are their values; over `env`. */
  readonly secretEnv?: Readonly<Record<string, string>>;
  /** Whether the values of its secrets are taken out of its output. */
  readonly redactSecrets?: boolean;
  /** Takes what redacts its secrets, where there are any, before it starts: for output that a protocol divides. */
  readonly onSecrets?: (redaction: Redaction) => void;
  /** Absolute. */
  readonly workingDir: string;
  /** Empty: the engine's default. */
  readonly user: string;
  /** Whether stdin will be written to; otherwise it is /dev/null. */
  readonly stdin: boolean;
  readonly terminal: TerminalSize | undefined;
  /**
   * Whether it waits for answers to bytes that are no text. The end of a job in a shell is found in its output, and what
   * might begin the marker of that end is held back until the next byte: of a dialogue for a moment only.
   */
  readonly isDialogue?: boolean;
  /** Its timeout, which also bounds how long it may take to start: 30 s at most, and by default. */
  readonly timeoutMs?: number;
  /** Aborted when nobody waits for it to start any more. */
  readonly limit?: AbortSignal;
}

/** How a job ended. */
export type JobEnd =
  /** Its exit code is known; 128 + n where signal n ended it. */
  | { readonly kind: "exited"; readonly code: number; readonly message?: string }
  /** Not known: the engine lost it, or its sandbox ended. */
  | { readonly kind: "lost"; readonly error: BerthError };

/** Takes what a job writes, exactly and in the order of each stream. */
export type JobOutput = (stream: OutputStream, chunk: Buffer) => void;

/** Identifies, in its sandbox, the process that leads a job's process group and session. */
export interface LeaderId {
  readonly pid: number;
  /** When the kernel started it, as in /proc: distinguishes it from a later process with the same pid. */
  readonly startTime: string;
}

/** A {@link LeaderId} to act on. */
export interface Leader extends LeaderId {
  /** Whether the pid may be another process's by now: then it is checked before anything is done to it. */
  readonly unsure: boolean;
}

/** How a later run of the service finds a job, and learns how it ends. */
export interface JobTrace {
  /** The {@link SpawnedProcess.handle} of the process it runs in. */
  readonly handle: string;
  /** Marks its end; undefined where its end is that of the process. */
  readonly nonce: string | undefined;
}

/** A running job. */
export interface Job extends Leader {
  /** Undefined where it cannot outlive the service. */
  readonly trace: JobTrace | undefined;
  /** Resolves when the command itself has ended and all it wrote has been passed on. Never rejects. */
  readonly end: Promise<JobEnd>;
  /** Soon stops the flow of output; the job then waits as on a full pipe. */
  pause(): void;
  resume(): void;
  /** Lets unwanted output flow slowly until {@link pause} or {@link resume} is called. */
  trickle(): void;
  /** Resolves when more may be written. */
  writeStdin(data: Uint8Array): Promise<void>;
  /** Ends stdin. Idempotent. */
  closeStdin(): void;
  resize(size: TerminalSize): Promise<void>;
  /**
   * Reserves {@link Leader.pid} for this job, even past its end, until the returned
   * function is called; undefined when it has ended. Hold a job while acting on its
   * pid, so that a later job is not hit.
   */
  hold(): (() => void) | undefined;
  /** Detaches from the job without ending it; `end` settles soon. Idempotent. */
  close(): void;
}

/** Starts jobs in one way or another. */
export interface JobRunner {
  /**
   * Starts a job; resolves when it exists. The signal ends the wait for a
   * shell, and a start that has not reached the engine; a job that has been
   * handed to either starts all the same, and is returned, so that nothing runs
   * unnoticed.
   * @throws `INVALID_ARGUMENT` for a working directory or user that does not exist; the engine's errors.
   */
  start(sandbox: LeasedSandbox, request: JobRequest, output: JobOutput, signal: AbortSignal): Promise<Job>;
}

/** Variables of a sandbox without those that what runs in it sets itself. */
export function withoutVariables<T>(
  variables: Readonly<Record<string, T>>,
  own: Readonly<Record<string, unknown>>,
): Record<string, T> {
  return Object.fromEntries(Object.entries(variables).filter(([name]) => !Object.hasOwn(own, name)));
}

/**
 * Where a command starts: the sandbox's directory, an absolute path, or one
 * below the sandbox's directory.
 * @throws `INVALID_ARGUMENT` for a relative path that leaves it, and for /proc,
 *   through which a path can name what is not the sandbox's own.
 */
export function resolveWorkingDir(sandboxDir: string, asked: string | undefined): string {
  if (asked === undefined) return sandboxDir;
  const path = posix.resolve(sandboxDir, asked);
  if (
    !asked.startsWith("/") &&
    path !== sandboxDir &&
    !path.startsWith(`${sandboxDir === "/" ? "" : sandboxDir}/`)
  ) {
    throw invalidArgument(
      "working_dir",
      `${JSON.stringify(asked)} leaves the sandbox's directory. Give an absolute path instead.`,
    );
  }
  if (path === "/proc" || path.startsWith("/proc/")) {
    throw invalidArgument("working_dir", "a command cannot start below /proc.");
  }
  return path;
}
