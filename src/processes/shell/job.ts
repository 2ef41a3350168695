import { posix } from "node:path";
import { type BerthError, invalidArgument } from "../../base/errors.ts";
import type { OutputStream, TerminalSize } from "../../engine/port.ts";
import type { LeasedSandbox } from "../../sandboxes/lease.ts";
import type { Redaction } from "../redaction.ts";

/** A command to run in a sandbox. */
export interface JobRequest {
  /** Program and arguments. Not empty, without NUL bytes. */
  readonly argv: readonly string[];
  /**
   * Whether `argv` is `/bin/sh -c TEXT`, and TEXT a script of Berth's own. A fork of a shell that no other process can
   * reach may then run it, instead of a new shell.
   */
  readonly isOwnScript?: boolean;
  /** All variables that Berth sets: the sandbox's and the command's. They are added to the image's. */
  readonly env: Readonly<Record<string, string>>;
  /** Variables, with the names of the secrets that are their values. They override `env`. */
  readonly secretEnv?: Readonly<Record<string, string>>;
  /** Whether the values of its secrets are removed from its output. */
  readonly redactSecrets?: boolean;
  /**
   * Called before the start with the redaction of its secrets, if it has any. For callers that redact the output
   * themselves, because a protocol frames it.
   */
  readonly onSecrets?: (redaction: Redaction) => void;
  /** Absolute. */
  readonly workingDir: string;
  /** Empty: the engine's default user. */
  readonly user: string;
  /** Whether stdin will be written to. Otherwise it is /dev/null. */
  readonly stdin: boolean;
  readonly terminal: TerminalSize | undefined;
  /**
   * Whether it waits for answers to its output, which is not text. The end of a job in a shell is found by a marker in
   * its output, so bytes that may begin the marker are held back until the next byte. For a dialogue they are held back
   * only for a moment.
   */
  readonly isDialogue?: boolean;
  /** Its timeout. It also limits how long the start may take: at most 30 s, which is the default. */
  readonly timeoutMs?: number;
  /** Aborted when nobody waits for its start any more. */
  readonly limit?: AbortSignal;
  /** Called with the job if it starts although {@link limit} was aborted. */
  readonly onLate?: (job: Job) => void;
}

/** How a job ended. */
export type JobEnd =
  /** The exit code is known. It is 128 + n if signal n ended the job. */
  | { readonly kind: "exited"; readonly code: number; readonly message?: string }
  /** The exit code is unknown: the engine lost it, or the sandbox ended. */
  | { readonly kind: "lost"; readonly error: BerthError };

/** Receives a job's output: all bytes, in the order of each stream. */
export type JobOutput = (stream: OutputStream, chunk: Buffer) => void;

/** Identifies, within a sandbox, the process that leads a job's process group and session. */
export interface LeaderId {
  readonly pid: number;
  /** When the kernel started it, as in /proc. Distinguishes it from a later process with the same pid. */
  readonly startTime: string;
}

/** A {@link LeaderId} to act on. */
export interface Leader extends LeaderId {
  /**
   * Whether the pid may belong to another process by now. Then the process is checked before anything is done to it.
   */
  readonly unsure: boolean;
}

/** What a later run of the service needs to find a job and to learn how it ends. */
export interface JobTrace {
  /** The {@link SpawnedProcess.handle} of the process it runs in. */
  readonly handle: string;
  /** The nonce that marks its end; undefined if it ends with that process. */
  readonly nonce: string | undefined;
}

/** A running job. */
export interface Job extends Leader {
  /** Undefined if the job cannot outlive the service. */
  readonly trace: JobTrace | undefined;
  /** Resolves when the command itself has ended and all its output has been passed on. Never rejects. */
  readonly end: Promise<JobEnd>;
  /** Soon stops the flow of output; the job then waits as on a full pipe. */
  pause(): void;
  resume(): void;
  /** Drains unwanted output slowly, until {@link pause} or {@link resume} is called. */
  trickle(): void;
  /** Resolves when more may be written. */
  writeStdin(data: Uint8Array): Promise<void>;
  /** Ends stdin. Idempotent. */
  closeStdin(): void;
  resize(size: TerminalSize): Promise<void>;
  /**
   * Reserves {@link Leader.pid} for this job, even past its end, until the returned function is called; undefined if
   * the job has ended. Hold a job while acting on its pid, so that a later job is not hit.
   */
  hold(): (() => void) | undefined;
  /** Detaches from the job without ending it; `end` settles soon. Idempotent. */
  close(): void;
}

/** Starts jobs. */
export interface JobRunner {
  /**
   * Starts a job; resolves when it exists. The signal ends the wait for a shell, and cancels a start that has not
   * reached the engine. A job that was already passed to a shell or the engine is still waited for and returned. If
   * that takes too long the start fails, and the job is ended if it starts later, so that nothing runs unnoticed.
   * @throws `INVALID_ARGUMENT` for a working directory or user that does not exist; the engine's errors.
   */
  start(sandbox: LeasedSandbox, request: JobRequest, output: JobOutput, signal: AbortSignal): Promise<Job>;
}

/** A sandbox's variables, without those that the command sets itself. */
export function withoutVariables<T>(
  variables: Readonly<Record<string, T>>,
  own: Readonly<Record<string, unknown>>,
): Record<string, T> {
  return Object.fromEntries(Object.entries(variables).filter(([name]) => !Object.hasOwn(own, name)));
}

/**
 * The directory that a command starts in: the sandbox's working directory, an absolute path, or a path relative to the
 * sandbox's working directory.
 * @throws `INVALID_ARGUMENT` for a relative path that leads out of it, and for /proc, through which a path can lead to
 *   files outside the sandbox.
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
