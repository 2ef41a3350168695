import { textDecoder } from "./convert.ts";
import type { ExitStatus, Gap } from "./types.ts";

type Inspect = (value: unknown, options: object) => string;

/** The result of a command. */
export class CommandResult {
  /** The output as bytes. If `truncated`, its head and tail. */
  readonly stdoutBytes: Uint8Array;
  readonly stderrBytes: Uint8Array;
  /** The bytes that are missing between head and tail. Undefined: none. */
  readonly stdoutGap: Gap | undefined;
  readonly stderrGap: Gap | undefined;
  readonly status: ExitStatus;
  readonly processId: string;

  constructor(
    fields: Pick<
      CommandResult,
      "stdoutBytes" | "stderrBytes" | "stdoutGap" | "stderrGap" | "status" | "processId"
    >,
  ) {
    this.stdoutBytes = fields.stdoutBytes;
    this.stderrBytes = fields.stderrBytes;
    this.stdoutGap = fields.stdoutGap;
    this.stderrGap = fields.stderrGap;
    this.status = fields.status;
    this.processId = fields.processId;
  }

  /** What it wrote to stdout, as text; bytes that are not UTF-8 become U+FFFD. */
  get stdout(): string {
    return textDecoder().decode(this.stdoutBytes);
  }

  /** What it wrote to stderr, as text. */
  get stderr(): string {
    return textDecoder().decode(this.stderrBytes);
  }

  /** Whether bytes of either stream are missing. */
  get truncated(): boolean {
    return this.stdoutGap !== undefined || this.stderrGap !== undefined;
  }

  /** As `status.exitCode`. */
  get exitCode(): number {
    return this.status.exitCode;
  }

  /** Whether it ended by itself with exit code 0. */
  get ok(): boolean {
    return this.status.ok;
  }

  /** With its output as text: for `JSON.stringify` and `console.log`. */
  toJSON(): Pick<
    CommandResult,
    "stdout" | "stderr" | "exitCode" | "ok" | "truncated" | "stdoutGap" | "stderrGap" | "status" | "processId"
  > {
    const { stdout, stderr, exitCode, ok, truncated, stdoutGap, stderrGap, status, processId } = this;
    return { stdout, stderr, exitCode, ok, truncated, stdoutGap, stderrGap, status, processId };
  }

  /** Returns itself, or throws CommandError unless it is ok. */
  check(): this {
    if (!this.ok) throw new CommandError(this);
    return this;
  }
}

// What Node's console prints. Not in the class, whose type would then have an index signature.
Object.defineProperty(CommandResult.prototype, Symbol.for("nodejs.util.inspect.custom"), {
  value(this: CommandResult, _depth: number, options: object, inspect: Inspect) {
    return `CommandResult ${inspect(this.toJSON(), options)}`;
  },
});

/** A command did not end with exit code 0. Thrown only if `check` is set. */
export class CommandError extends Error {
  readonly result: CommandResult;

  override readonly name: string = "CommandError";

  constructor(result: CommandResult) {
    const { cause, exitCode } = result.status;
    const how = cause === "EXITED" ? `exit code ${exitCode}` : cause;
    const last = result.stderr.trim().split("\n").at(-1);
    super(`The command ended with ${how}${last ? `: ${last}` : "."}`);
    this.result = result;
  }
}
