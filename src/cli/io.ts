import type { Readable, Writable } from "node:stream";
import { safeJson } from "../base/safe-json.ts";
import { EXIT, exitCodeOf, Failed, Interrupted } from "./exit.ts";

/** What the program reads and writes. */
export interface Io {
  readonly stdin: Readable & { readonly isTTY?: boolean | undefined };
  readonly stdout: Writable & { readonly isTTY?: boolean | undefined };
  readonly stderr: Writable & { readonly isTTY?: boolean | undefined };
  readonly env: Readonly<Record<string, string | undefined>>;
}

/**
 * Writes text or bytes. Resolves when the stream can take more, so that a slow reader slows the writer down. Rejects
 * with the signal's reason, even if the reader does not read.
 */
export async function write(
  stream: Writable,
  data: string | Uint8Array,
  signal?: AbortSignal,
): Promise<void> {
  signal?.throwIfAborted();
  await new Promise<void>((resolve, reject) => {
    const onAbort = () => reject(signal?.reason);
    signal?.addEventListener("abort", onAbort, { once: true });
    stream.write(data, (error) => {
      signal?.removeEventListener("abort", onAbort);
      if (error) reject(error);
      else resolve();
    });
  });
}

/** Writes a line of JSON in which nothing acts on a terminal. */
export async function writeJson(stream: Writable, value: unknown, signal?: AbortSignal): Promise<void> {
  await write(stream, `${safeJson(value)}\n`, signal);
}

const SIGNALS = ["SIGINT", "SIGTERM", "SIGHUP"] as const;
/** Set by bin/berth if SIGHUP was ignored when the program was started, as by nohup. Node does not keep that. */
const IGNORES_SIGHUP = "BERTH_IGNORES_SIGHUP";

/**
 * One keystroke may arrive twice: a terminal signals the whole process group, and parents such as npm forward their
 * signals. Within this time it counts once.
 */
const SAME_KEYSTROKE_MS = 250;

/** Without a handler, the signal would end the program. */
const ignore = () => {};

/**
 * Turns signals into one {@link AbortSignal}, so that everything ends normally. A second signal ends the program at
 * once.
 */
export class Interrupts {
  /** What a second signal leaves undone. Printed then. */
  lastWords = "";
  /** What the command has made, if only its output names it. Printed if stdout can no longer be written. */
  made = "";
  readonly #abort = new AbortController();
  readonly #io: Io;
  readonly #exit: (code: number) => void;
  #firstMs: number | undefined;
  #failureCode: number = EXIT.failed;
  readonly #outputErrors = new Map<unknown, Error>();

  constructor(io: Io, exit: (code: number) => void) {
    this.#io = io;
    this.#exit = exit;
    for (const signal of SIGNALS) process.on(signal, this.#handlerOf(signal));
    // Writers get the same error, and {@link reasonOf} describes it.
    for (const name of ["stdout", "stderr"] as const) {
      io[name].on("error", (error) => this.#outputErrors.set(error, this.#outputEnd(name, error)));
    }
  }

  /** Aborted with an {@link Interrupted} when the program should stop. */
  get signal(): AbortSignal {
    return this.#abort.signal;
  }

  /**
   * From now on, also stops the program when stdout can no longer be written. If that is a failure, it exits with this
   * code.
   */
  followOutput(failureCode: number = EXIT.failed): void {
    this.#failureCode = failureCode;
    this.#io.stdout.on("error", this.#onOutputError);
  }

  /** Why the program ends with an error: what stopped it, or a description if it could not write its output. */
  reasonOf(error: unknown): unknown {
    return this.signal.aborted ? this.signal.reason : (this.#outputErrors.get(error) ?? error);
  }

  /** Stops listening. */
  dispose(): void {
    for (const signal of SIGNALS) process.off(signal, this.#handlerOf(signal));
  }

  #handlerOf(signal: NodeJS.Signals): (signal: NodeJS.Signals) => void {
    return signal === "SIGHUP" && this.#io.env[IGNORES_SIGHUP] ? ignore : this.#onSignal;
  }

  readonly #onSignal = (signal: NodeJS.Signals): void => {
    const now = performance.now();
    if (this.#firstMs === undefined) {
      this.#firstMs = now;
      this.#abort.abort(new Interrupted(`stopped by ${signal}`, exitCodeOf(signal)));
      return;
    }
    if (now - this.#firstMs < SAME_KEYSTROKE_MS) return;
    this.#io.stderr.write(`berth: ${signal} again: stopped at once. ${this.lastWords}\n`);
    this.#exit(exitCodeOf(signal));
  };

  readonly #onOutputError = (error: NodeJS.ErrnoException): void => {
    this.#abort.abort(this.#outputEnd("stdout", error));
  };

  #outputEnd(name: "stdout" | "stderr", error: NodeJS.ErrnoException): Error {
    const hint = name === "stdout" ? this.made : "";
    const isClosed = error.code === "EPIPE";
    if (isClosed && hint === "") return new Interrupted("the output was closed", EXIT.outputClosed);
    const exitCode = isClosed ? EXIT.outputClosed : this.#failureCode;
    return new Failed(`${name} cannot be written: ${error.message}`, { hint, exitCode, cause: error });
  }
}
