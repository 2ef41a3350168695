import { setTimeout as sleep } from "node:timers/promises";
import { abortError, BerthError, invalidArgument } from "../core/errors.ts";
import type { LeasedSandbox } from "../core/lease.ts";
import type { Engine, OutputStream, SpawnedProcess, TerminalSize } from "../core/ports/engine.ts";
import type { Job, JobEnd, JobOutput, JobRequest, JobRunner } from "./job.ts";
import { MarkerScanner } from "./marker-scanner.ts";
import { newNonce } from "./nonce.ts";
import { divideEnv, execArguments } from "./shell-env.ts";

/**
 * Runs "$@" as a child, so that its end is told even while others hold its
 * pipes. The nonce comes over stdin: a job can read its parent's arguments and
 * environment, not what it has read. Reopening the pipes through /proc keeps a
 * job's O_NONBLOCK from the marker that follows. Traps let the shell outlive a
 * signal to its process group.
 */
const WRAPPER = `trap : HUP INT QUIT USR1 USR2 PIPE ALRM TERM
read -r n
cd -P -- "$2" 2>/dev/null || { printf '%sD;' "$n"; exit; }
case $1 in i) exec 5<&0;; *) exec 5</dev/null;; esac
shift 2
exec 3>&1 4>&2 >/dev/null 2>&1
printf '%sR%s;' "$n" $$ >&3
(unset PWD OLDPWD SHLVL; exec "$@") <&5 >/proc/self/fd/3 2>/proc/self/fd/4 3>&- 4>&- 5<&-
s=$?
printf '%sE%s;' "$n" $s >&3
printf '%sE%s;' "$n" $s >&4`;

/**
 * With a terminal the job takes the shell's place: the terminal's end is its
 * end. It begins when a line comes in, by when the terminal has its size; the
 * terminal's echo of that line is not the job's output.
 */
const TERMINAL_WRAPPER = `read -r go
cd -P -- "$2" 2>/dev/null || { printf '%sD;' "$1"; exit; }
printf '%sR%s;' "$1" $$
shift 2
unset PWD OLDPWD SHLVL go
exec "$@"`;

/** A job that ends soon tells so itself; the engine is asked about longer ones only. */
const ASK_ENGINE_AFTER_MS = 1_000;
/** How long markers may take after the engine has said that the shell ended. */
const LATE_OUTPUT_MS = 500;
/** More text than this before the first marker is no message of an engine. */
const LONGEST_PREAMBLE = 16 * 1024;

/** Starts each job with an engine call of its own. */
export class PlainRunner implements JobRunner {
  readonly #engine: Engine;

  constructor(engine: Engine) {
    this.#engine = engine;
  }

  async start(
    sandbox: LeasedSandbox,
    request: JobRequest,
    output: JobOutput,
    signal: AbortSignal,
  ): Promise<Job> {
    const job = new PlainJob(output, request.terminal !== undefined);
    const { plain, special } = divideEnv(request.env);
    const args = execArguments(request.argv, special);
    const [script, first] = request.terminal
      ? [TERMINAL_WRAPPER, job.nonce]
      : [WRAPPER, request.stdin ? "i" : "n"];
    const spawned = await this.#engine.spawn(
      sandbox.ref,
      {
        argv: ["/bin/sh", "-c", script, "sh", first, request.workingDir, ...args],
        env: plain,
        user: request.user,
        stdin: true,
        // A terminal's job begins when its size is set.
        ...(!request.terminal && { input: Buffer.from(`${job.nonce}\n`) }),
        terminal: request.terminal,
      },
      job.sink,
      signal,
    );
    await job.begin(spawned, request, signal);
    return job;
  }
}

/** A job and the shell around it. */
class PlainJob implements Job {
  readonly nonce = newNonce();
  pid = 0;
  readonly sink = {
    data: (stream: OutputStream, chunk: Buffer): void => this.#feed(stream, chunk),
    end: (error?: Error): void => this.#streamsEnded(error),
  };
  readonly #output: JobOutput;
  readonly #hasTerminal: boolean;
  readonly #ready = Promise.withResolvers<void>();
  readonly #end = Promise.withResolvers<JobEnd>();
  readonly #asking = new AbortController();
  readonly #scanners: Record<OutputStream, MarkerScanner>;
  #preamble = "";
  #began = false;
  #workingDirMissing = false;
  readonly #codes = new Map<OutputStream, number>();
  #spawned: SpawnedProcess | undefined;
  #asked: Promise<void> | undefined;
  #streamsOver = false;
  #ended = false;

  constructor(output: JobOutput, hasTerminal: boolean) {
    this.#output = output;
    this.#hasTerminal = hasTerminal;
    this.#scanners = {
      stdout: new MarkerScanner(this.nonce, (chunk) => {
        this.#preamble += chunk.toString("utf8", 0, Math.max(0, LONGEST_PREAMBLE - this.#preamble.length));
      }),
      stderr: this.#scanner("stderr"),
    };
    this.#ready.promise.catch(() => {});
  }

  get end(): Promise<JobEnd> {
    return this.#end.promise;
  }

  /** Hands over the nonce and waits until the job exists. */
  async begin(spawned: SpawnedProcess, request: JobRequest, signal: AbortSignal): Promise<void> {
    this.#spawned = spawned;
    const onAbort = (): void => this.#ready.reject(abortError(signal));
    signal.addEventListener("abort", onAbort, { once: true });
    try {
      if (signal.aborted) onAbort();
      if (this.#hasTerminal) await spawned.writeStdin(Buffer.from("\n"));
      else if (!request.stdin) spawned.closeStdin();
      await this.#ready.promise;
    } catch (error) {
      this.close();
      throw error;
    } finally {
      signal.removeEventListener("abort", onAbort);
    }
    if (this.#workingDirMissing) {
      this.close();
      throw invalidArgument(
        "working_dir",
        `${JSON.stringify(request.workingDir)} is no directory that the user may enter in the sandbox.`,
      );
    }
    this.#watch();
  }

  pause(): void {
    this.#spawned?.pause();
  }

  resume(): void {
    this.#spawned?.resume();
  }

  async writeStdin(data: Uint8Array): Promise<void> {
    await this.#spawned?.writeStdin(data);
  }

  closeStdin(): void {
    this.#spawned?.closeStdin();
  }

  async resize(size: TerminalSize): Promise<void> {
    await this.#spawned?.resize(size);
  }

  hold(): (() => void) | undefined {
    // The kernel gives out the pid of a session leader again only when nothing of its session is left.
    return this.#ended ? undefined : () => {};
  }

  close(): void {
    this.#finish({ kind: "lost", error: new BerthError("CANCELED", "The process was let go of.") });
  }

  #scanner(stream: OutputStream): MarkerScanner {
    return new MarkerScanner(this.nonce, (chunk) => this.#output(stream, chunk));
  }

  #feed(stream: OutputStream, chunk: Buffer): void {
    if (this.#ended || this.#codes.has(stream)) return;
    if (this.#began && this.#hasTerminal) {
      this.#output(stream, chunk);
      return;
    }
    const found = this.#scanners[stream].push(chunk);
    if (found === undefined) return;
    const kind = found.text[0];
    if (kind === "E") {
      this.#codes.set(stream, Number(found.text.slice(1)));
      if (this.#codes.size === 2) this.#finish({ kind: "exited", code: this.#codes.get("stdout") ?? -1 });
      return;
    }
    this.#began = true;
    this.#workingDirMissing = kind === "D";
    this.pid = Number(found.text.slice(1));
    this.#scanners.stdout = this.#scanner("stdout");
    this.#ready.resolve();
    if (found.rest.length > 0) this.#feed(stream, found.rest);
  }

  #streamsEnded(error?: Error): void {
    if (this.#ended) return;
    this.#streamsOver = true;
    if (!this.#began) {
      this.#ready.reject(this.#startFailure(error));
      return;
    }
    for (const scanner of Object.values(this.#scanners)) scanner.flush();
    // No marker came: the shell was killed, or the connection broke. Only the engine knows.
    this.#askEngine();
  }

  #startFailure(cause?: Error): BerthError {
    if (cause instanceof BerthError) return cause;
    const said = this.#preamble.trim();
    const why = said === "" ? "the sandbox ended, or killed its shell before it began." : said;
    return new BerthError("SANDBOX_TERMINATED", `The command could not be started: ${why}`, { cause });
  }

  /** Learns of an end that no marker tells: a terminal's, or a killed shell whose pipes others hold. */
  #watch(): void {
    const { signal } = this.#asking;
    const delay = this.#hasTerminal ? 0 : ASK_ENGINE_AFTER_MS;
    sleep(delay, undefined, { signal, ref: false })
      .then(() => this.#askEngine())
      .catch(() => {});
  }

  #askEngine(): void {
    if (this.#ended || this.#spawned === undefined) return;
    this.#asked ??= this.#learnEnd(this.#spawned);
  }

  async #learnEnd(spawned: SpawnedProcess): Promise<void> {
    const { signal } = this.#asking;
    try {
      const code = await spawned.wait(signal);
      if (!this.#streamsOver) await sleep(LATE_OUTPUT_MS, undefined, { signal, ref: false });
      for (const scanner of Object.values(this.#scanners)) scanner.flush();
      this.#finish({ kind: "exited", code });
    } catch (error) {
      if (signal.aborted) return;
      const lost =
        error instanceof BerthError
          ? error
          : new BerthError("ENGINE_UNAVAILABLE", "The engine lost the process.", { cause: error });
      this.#finish({ kind: "lost", error: lost });
    }
  }

  #finish(end: JobEnd): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#asking.abort();
    this.#end.resolve(end);
    this.#spawned?.close();
  }
}
