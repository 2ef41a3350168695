import { abortError, BerthError, throwIfAborted } from "../../base/errors.ts";
import type { Engine, OutputStream, SpawnedProcess, TerminalSize } from "../../engine/port.ts";
import type { LeasedSandbox } from "../../sandboxes/lease.ts";
import { shellGone } from "./errors.ts";
import type { Job, JobEnd, JobOutput, JobRequest, JobRunner, JobTrace } from "./job.ts";
import { MarkerScanner, newNonce } from "./markers.ts";
import { AWAIT_READER, divideEnv, execArguments, parseLeader } from "./script.ts";
import {
  ASK_ENGINE_AFTER_MS,
  BEGIN_TIMEOUT_MS,
  endAsEngineTells,
  isChildless,
  tooSlow,
  workingDirMissing,
} from "./shell-job.ts";
import { noProcesses } from "./start-watch.ts";

/** More text than this before the first marker is no message of an engine. */
const MAX_PREAMBLE = 16 * 1024;

/** A job with a shell of its own around it, which ends with it. */
export class PlainJob implements Job {
  readonly nonce = newNonce();
  readonly unsure = false;
  pid = 0;
  startTime: string;
  readonly sink = {
    data: (stream: OutputStream, chunk: Buffer): void => this.#feed(stream, chunk),
    end: (error?: Error): void => this.#streamsEnded(error),
  };
  readonly #output: JobOutput;
  readonly #hasTerminal: boolean;
  readonly #ready = Promise.withResolvers<void>();
  readonly #end = Promise.withResolvers<JobEnd>();
  #watchTimer: NodeJS.Timeout | undefined;
  /** Ends the wait for what the engine says, once the end is known. */
  #asking: AbortController | undefined;
  readonly #scanners: Record<OutputStream, MarkerScanner>;
  #preamble = "";
  #began = false;
  #workingDirMissing = false;
  readonly #codes = new Map<OutputStream, number>();
  #spawned: SpawnedProcess | undefined;
  #asked: Promise<void> | undefined;
  #streamsOver = false;
  #trickles = false;
  #ended = false;

  /** @param startTime of its shell; empty where the shell tells that as the job begins. */
  constructor(output: JobOutput, hasTerminal: boolean, startTime = "") {
    this.#output = output;
    this.startTime = startTime;
    this.#hasTerminal = hasTerminal;
    this.#scanners = {
      stdout: new MarkerScanner(this.nonce, (chunk) => {
        this.#preamble += chunk.toString("utf8", 0, Math.max(0, MAX_PREAMBLE - this.#preamble.length));
      }),
      stderr: this.#scanner("stderr"),
    };
    this.#ready.promise.catch(() => {});
  }

  get trace(): JobTrace | undefined {
    const handle = this.#spawned?.handle;
    // At a terminal the job takes the place of its shell.
    return handle === undefined ? undefined : { handle, nonce: this.#hasTerminal ? undefined : this.nonce };
  }

  get end(): Promise<JobEnd> {
    return this.#end.promise;
  }

  /** Waits until the job exists. */
  async begin(spawned: SpawnedProcess, request: JobRequest): Promise<void> {
    this.#spawned = spawned;
    const timer = setTimeout(() => this.#ready.reject(tooSlow()), BEGIN_TIMEOUT_MS);
    const { limit } = request;
    const onLimit = (): void => this.#ready.reject(limit && abortError(limit));
    limit?.addEventListener("abort", onLimit, { once: true });
    if (limit?.aborted) onLimit();
    try {
      if (this.#hasTerminal) await spawned.writeStdin(Buffer.from("\n"));
      else if (!request.stdin) spawned.closeStdin();
      await this.#ready.promise;
    } catch (error) {
      this.close();
      throw error;
    } finally {
      clearTimeout(timer);
      limit?.removeEventListener("abort", onLimit);
    }
    if (this.#workingDirMissing) {
      this.close();
      throw workingDirMissing(request);
    }
    this.#watch();
  }

  pause(): void {
    this.#trickles = false;
    this.#spawned?.pause();
  }

  resume(): void {
    this.#trickles = false;
    this.#spawned?.resume();
  }

  trickle(): void {
    this.#trickles = true;
    this.#spawned?.trickle();
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
      // The beginning comes before it on stdout.
      const beganNothing = stream === "stdout" && !this.#began;
      if (beganNothing && isChildless(this.#codes.get("stdout") ?? -1)) this.#ready.reject(noProcesses());
      if (beganNothing) this.#ready.resolve();
      if (beganNothing || this.#codes.size === 2)
        this.#finish({ kind: "exited", code: this.#codes.get("stdout") ?? -1 });
      return;
    }
    this.#began = true;
    this.#workingDirMissing = kind === "D";
    const { pid, startTime } = parseLeader(found.text.slice(1));
    this.pid = pid;
    this.startTime ||= startTime;
    this.#scanners.stdout = this.#scanner("stdout");
    this.#ready.resolve();
    if (found.rest.length > 0) this.#feed(stream, found.rest);
  }

  #streamsEnded(error?: Error): void {
    if (this.#ended) return;
    this.#streamsOver = true;
    if (!this.#began) {
      this.#ready.reject(shellGone(this.#preamble, error));
      return;
    }
    for (const scanner of Object.values(this.#scanners)) scanner.flush();
    // No marker came: the shell was killed, or the connection broke. Only the engine knows.
    this.#askEngine();
  }

  /** Learns of an end that no marker tells: a terminal's, or a killed shell whose pipes others hold. */
  #watch(): void {
    const delay = this.#hasTerminal ? 0 : ASK_ENGINE_AFTER_MS;
    this.#watchTimer = setTimeout(() => this.#askEngine(), delay).unref();
  }

  #askEngine(): void {
    if (this.#ended || this.#spawned === undefined) return;
    this.#asked ??= this.#learnEnd(this.#spawned);
  }

  async #learnEnd(spawned: SpawnedProcess): Promise<void> {
    this.#asking = new AbortController();
    const end = await endAsEngineTells(
      spawned,
      () => this.#streamsOver,
      this.#asking.signal,
      // The markers may come after much of what nobody wants.
      () => {
        if (this.#trickles) this.resume();
      },
    );
    if (end === undefined) return;
    for (const scanner of Object.values(this.#scanners)) scanner.flush();
    this.#finish(end);
  }

  #finish(end: JobEnd): void {
    if (this.#ended) return;
    this.#ended = true;
    clearTimeout(this.#watchTimer);
    this.#asking?.abort();
    this.#end.resolve(end);
    this.#spawned?.close();
  }
}

/** Leaves in $BERTH_START when this shell was started. No positional parameter is touched, and no process needed. */
const READ_START = `read -r BERTH_START 2>/dev/null </proc/$$/stat
BERTH_NTH=0
for BERTH_START in \${BERTH_START##*) }; do [ $((BERTH_NTH=BERTH_NTH+1)) = 20 ] && break; done`;

/**
 * Runs "$@" as a child, so that its end is told even while others hold its
 * pipes. The nonce comes over stdin: a job can read its parent's arguments and
 * environment, not what it has read. Reopening the pipes through /proc keeps a
 * job's O_NONBLOCK from the marker that follows; for reading too, so that whoever writes when
 * nobody else reads waits, and is not ended. Traps let the shell outlive a
 * signal to its process group; the child, which has none, tells the beginning.
 * The command's environment is the shell's own: its variables have names that
 * no command misses.
 */
const WRAPPER = `trap : HUP INT QUIT USR1 USR2 PIPE ALRM TERM
unset BERTH_NONCE BERTH_START BERTH_NTH
read -r BERTH_NONCE
cd -P -- "$2" 2>/dev/null || { printf '%sD;' "$BERTH_NONCE"; exit; }
case $1 in i) exec 5<&0;; *) exec 5</dev/null;; esac
shift 2
exec 3>&1 4>&2 >/dev/null 2>&1
${READ_START}
(printf '%sR%s;' "$BERTH_NONCE" "$$:$BERTH_START"; unset PWD OLDPWD SHLVL BERTH_NONCE BERTH_START BERTH_NTH; exec "$@") <&5 1<>/proc/self/fd/3 2<>/proc/self/fd/4 3>&- 4>&- 5<&-
set -- $?
printf '%sE%s;' "$BERTH_NONCE" $1 >&3
printf '%sE%s;' "$BERTH_NONCE" $1 >&4
${AWAIT_READER}`;

/**
 * With a terminal the job takes the shell's place: the terminal's end is its
 * end. It begins when a line comes in, by when the terminal has its size; the
 * terminal's echo of that line is not the job's output.
 */
const TERMINAL_WRAPPER = `unset BERTH_NONCE BERTH_START BERTH_NTH
${READ_START}
read -r BERTH_NONCE
cd -P -- "$2" 2>/dev/null || { printf '%sD;' "$1"; exit; }
printf '%sR%s;' "$1" "$$:$BERTH_START"
shift 2
unset PWD OLDPWD SHLVL BERTH_NONCE BERTH_START BERTH_NTH
exec "$@"`;

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
    throwIfAborted(signal);
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
        dropSignal: signal,
      },
      job.sink,
      request.limit,
    );
    await job.begin(spawned, request);
    return job;
  }
}
