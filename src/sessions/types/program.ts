import { within } from "../../base/async.ts";
import type { BerthError } from "../../base/errors.ts";
import type { Logger } from "../../base/logger.ts";
import type { ProcessControl } from "../../processes/control.ts";
import { mayBeOutOfMemory } from "../../processes/record.ts";
import { type Job, type JobEnd, type JobRunner, withoutVariables } from "../../processes/shell/job.ts";
import type { LeasedSandbox } from "../../sandboxes/lease.ts";
import { backendLost, outOfMemory } from "./common.ts";
import type { HeldMemory } from "./held-memory.ts";

export interface ProgramHost {
  readonly runner: JobRunner;
  readonly control: ProcessControl;
  readonly logger: Logger;
  readonly memory: HeldMemory;
}

interface ProgramRequest {
  readonly sessionId: string;
  /** Its name in the error for its loss, for example `desktop`. */
  readonly name: string;
  readonly argv: readonly string[];
  /** Overrides the variables of the sandbox and its secrets. */
  readonly env: Readonly<Record<string, string>>;
  /** Absolute. */
  readonly workingDir: string;
  /** How long it may take to end after EOF on stdin. Then it is killed, with everything it started. */
  readonly closeMs: number;
  /** Receives its stdout. See {@link Program.pause} for flow control. */
  readonly output: (chunk: Buffer) => void;
  /** A script for sh that removes the files in `path`, which it may leave behind if it is killed. */
  readonly removal?: { readonly script: string; readonly path: string };
}

/** Between SIGTERM and SIGKILL. */
const KILL_GRACE_MS = 300;
/** How long it may take to end after SIGKILL. */
const AFTER_KILL_MS = 500;
/** How long the removal of its files may take. */
const REMOVE_MS = 5_000;
/** How many bytes from the end of its stderr are kept. */
const SAID_BYTES = 4 * 1024;

/**
 * A program that serves a session for its whole life. It reads requests from stdin and answers on stdout, in its own
 * protocol. It ends at EOF on stdin, or is killed with everything it started.
 */
export class Program {
  readonly #host: ProgramHost;
  readonly #sandbox: LeasedSandbox;
  readonly #request: ProgramRequest;
  readonly #job: Job;
  /**
   * Releases the job's pid, which is held so that leftovers can be found after the end. Undefined if it ended at once.
   */
  readonly #release: (() => void) | undefined;
  #said: Buffer;
  #end: JobEnd | undefined;
  #closing: Promise<void> | undefined;
  /** The session that it serves, for errors. Changes when it leaves the warm pool. */
  sessionId: string;
  /** Resolves when it has ended, for any reason. Never rejects. */
  readonly ended: Promise<void>;

  private constructor(
    host: ProgramHost,
    sandbox: LeasedSandbox,
    request: ProgramRequest,
    job: Job,
    said: Buffer,
  ) {
    this.#host = host;
    this.#sandbox = sandbox;
    this.#request = request;
    this.sessionId = request.sessionId;
    this.#job = job;
    this.#release = job.hold();
    this.#said = said;
    this.ended = job.end.then((end) => {
      this.#end = end;
    });
  }

  /** Starts a program. Resolves when its process exists. @throws the engine's errors. */
  static async start(
    host: ProgramHost,
    sandbox: LeasedSandbox,
    request: ProgramRequest,
    signal: AbortSignal,
  ): Promise<Program> {
    let program: Program | undefined;
    let said: Buffer = Buffer.alloc(0);
    const { argv, workingDir, output } = request;
    const { spec } = sandbox;
    const env = { ...spec.env, ...request.env };
    const secretEnv = withoutVariables(spec.secretEnv, request.env);
    const job = await host.runner.start(
      sandbox,
      {
        ...{ argv, env, secretEnv, workingDir },
        ...{ user: sandbox.user, stdin: true, terminal: undefined },
      },
      (stream, chunk) => {
        if (stream === "stdout") return output(chunk);
        const tail = tailOf(program === undefined ? said : program.#said, chunk);
        if (program === undefined) said = tail;
        else program.#said = tail;
      },
      signal,
    );
    program = new Program(host, sandbox, request, job, said);
    return program;
  }

  /** Whether it runs and is not being closed. */
  get alive(): boolean {
    return this.#end === undefined && this.#closing === undefined;
  }

  /** The end of its stderr. */
  get said(): string {
    return this.#said.toString().trim();
  }

  /** Its exit code, or 128 + n if signal n ended it. Undefined while it runs, or if the engine lost it. */
  get exitCode(): number | undefined {
    return this.#end?.kind === "exited" ? this.#end.code : undefined;
  }

  /** Resolves when more may be written. Drops data for an ended program. */
  async write(data: Uint8Array): Promise<void> {
    // If nothing reads it any more, the job ends, which is handled elsewhere.
    await this.#job.writeStdin(data).catch(() => {});
  }

  /** Stops reading its output soon. The program then blocks as on a full pipe. */
  pause(): void {
    this.#job.pause();
  }

  resume(): void {
    this.#job.resume();
  }

  /** Why it ended: `SESSION_LOST`, or the engine's error. */
  async failure(): Promise<BerthError> {
    if (this.#end?.kind === "lost") return this.#end.error;
    const { why, cause } = await this.whyEnded();
    return backendLost(this.sessionId, this.#request.name, why, cause);
  }

  /** How it ended, for people, and the cause for programs. For one that the engine has not lost. */
  async whyEnded(): Promise<{ readonly why: string; readonly cause: string }> {
    const code = this.exitCode;
    const isOutOfMemory =
      code !== undefined &&
      mayBeOutOfMemory(code) &&
      ((await this.#host.control.newOomKills(this.#sandbox)) ?? false);
    if (isOutOfMemory) return { why: outOfMemory(this.#sandbox), cause: "OUT_OF_MEMORY" };
    const said = this.said === "" ? "" : `: ${this.said.slice(-1_000)}`;
    return { why: `it exited with code ${code ?? "unknown"}${said}`, cause: "EXITED" };
  }

  /**
   * Ends it and everything it started, and removes its files. Idempotent; never rejects.
   * @param sandboxEnds whether the sandbox ends, with everything in it.
   */
  close(sandboxEnds: boolean): Promise<void> {
    this.#closing ??= this.#close(sandboxEnds);
    return this.#closing;
  }

  async #close(sandboxEnds: boolean): Promise<void> {
    const job = this.#job;
    job.resume();
    job.closeStdin();
    try {
      if (sandboxEnds) return;
      await within(job.end, this.#request.closeMs);
      if (this.#release === undefined) return;
      const { control, logger } = this.#host;
      await control
        .killTree(this.#sandbox, this.#sandbox.user, job, KILL_GRACE_MS)
        .catch((error: unknown) => {
          const { sandboxId } = this.#sandbox;
          logger.debug({ sandboxId, err: error }, "a program of a session could not be ended");
        });
      await within(job.end, AFTER_KILL_MS);
    } finally {
      this.#release?.();
      job.close();
      if (!sandboxEnds) await this.#removeFiles();
    }
  }

  async #removeFiles(): Promise<void> {
    const { removal, sessionId } = this.#request;
    if (removal === undefined) return;
    const argv = ["sh", "-c", removal.script, "rm", removal.path];
    const more = { name: "rm", env: {}, workingDir: "/", closeMs: REMOVE_MS, output: () => {} };
    const late = AbortSignal.timeout(REMOVE_MS);
    try {
      const rm = await Program.start(this.#host, this.#sandbox, { sessionId, argv, ...more }, late);
      await rm.close(false);
    } catch (error) {
      const { sandboxId } = this.#sandbox;
      this.#host.logger.debug({ sandboxId, err: error }, "files of a session were not removed");
    }
  }
}

function tailOf(before: Buffer, chunk: Buffer): Buffer {
  const all = Buffer.concat([before, chunk.subarray(-SAID_BYTES)]);
  return Buffer.from(all.subarray(-SAID_BYTES));
}
