import { stayOpen, untilAborted, within } from "../../base/async.ts";
import { BerthError, throwIfAborted } from "../../base/errors.ts";
import type { Logger } from "../../base/logger.ts";
import type { OutputStream } from "../../engine/port.ts";
import type { ProcessControl, Shells } from "../../processes/control.ts";
import { mayBeOutOfMemory } from "../../processes/record.ts";
import type { Redaction } from "../../processes/redaction.ts";
import type { Job, JobEnd, JobRunner } from "../../processes/shell/job.ts";
import type { LeasedSandbox } from "../../sandboxes/lease.ts";
import { backendLost, outOfMemory } from "./common.ts";
import { Execution, type ExecutionEnd } from "./execution.ts";
import type { HeldMemory } from "./held-memory.ts";
import { holdersProbe, interruptProbe, OutputChannel } from "./output-channel.ts";

export interface InterpreterHost {
  readonly runner: JobRunner;
  readonly control: ProcessControl;
  readonly shells: Shells;
  readonly logger: Logger;
  readonly memory: HeldMemory;
}

/** The protocol with one kind of interpreter. */
export interface InterpreterLanguage {
  readonly argv: readonly string[];
  /** What it reads first. Keeps its pipes, at the given paths, away from the code that it runs. */
  readonly boot: string;
  /** Paths of its own pipes after the boot. */
  readonly pipes: { readonly stdout: string; readonly stderr: string };
  /** Makes it run `code` with output to the channel, and then print the end. */
  run(code: string, nonce: string, channel: OutputChannel): string;
  /** Makes it print an end with the given tag: see {@link Execution}. */
  printEnd(nonce: string, tag: string, channel: OutputChannel): string;
  /** More than it prints at an end besides the output. */
  readonly maxPayloadBytes: number;
  /** Its pid, and the pids it sees in the sandbox, parsed from the payload of an end. */
  pidsOf(payload: Buffer): { readonly own: number; readonly seen: readonly number[] };
}

/** Where an interpreter starts, and for which session. */
interface InterpreterPlace {
  readonly sessionId: string;
  readonly env: Readonly<Record<string, string>>;
  /** Maps variables to names of secrets. Takes precedence over `env`. */
  readonly secretEnv: Readonly<Record<string, string>>;
  /** Whether the values are removed from what executions write. */
  readonly redactSecrets: boolean;
  readonly workingDir: string;
}

/** How an execution ended. */
export type ExecutionOutcome =
  | { readonly kind: "done"; readonly end: ExecutionEnd; readonly interrupted: boolean }
  /** The interpreter ended during the execution. */
  | { readonly kind: "gone"; readonly exitCode: number; readonly interrupted: boolean };

interface ExecutionBounds {
  /** Aborting it interrupts the execution. */
  readonly stop: AbortSignal;
  /** Receives the output. Returns a promise to delay the next read. */
  readonly output: (stream: OutputStream, chunk: Buffer) => Promise<void> | undefined;
}

const START_TIMEOUT_MS = 30_000;
const SIGINT = 2;
const SIGKILL = 9;
/**
 * The steps to interrupt an interpreter: the signals to send, and how long to wait. After the last step it is killed.
 */
const INTERRUPTIONS: readonly { readonly own: number; readonly children: number; readonly waitMs: number }[] =
  [
    ...[100, 200, 500].map((waitMs) => ({ own: SIGINT, children: SIGINT, waitMs })),
    // The last is for an interpreter that lacks processor time.
    ...[200, 300, 3_700].map((waitMs) => ({ own: SIGINT, children: SIGKILL, waitMs })),
  ];
/** How long interrupting may take in total if shells in the sandbox do not answer. */
const INTERRUPT_MS = 5_000;
/** Between SIGTERM and SIGKILL when it is closed. Interactive shells ignore SIGTERM. */
const KILL_GRACE_MS = 300;
/** How long it may take to end after SIGKILL. */
const AFTER_KILL_MS = 500;
/** Why a session loses an interpreter that the service had no room for. */
const NO_ROOM = "its report was unfinished when the server had no room for more";
/** The exit code of shells for SIGKILL. */
const KILLED = 137;
/** Made here, because a function that is made during an execution would keep that in memory. */
const ignore = (): void => {};
/**
 * How many channels of earlier executions may still be held. Beyond that the newest is closed, and its writers get
 * SIGPIPE.
 */
const MAX_HELD_CHANNELS = 16;

/**
 * An interpreter in a sandbox. It runs one execution at a time, and can be interrupted. Output of earlier executions'
 * leftovers never mixes with that of the current one: a channel that something else still holds is not used for the
 * next execution.
 */
export class InterpreterProcess {
  readonly #host: InterpreterHost;
  readonly #language: InterpreterLanguage;
  readonly #sandbox: LeasedSandbox;
  readonly #place: InterpreterPlace;
  readonly #job: Job;
  /** Undefined: it has no secrets. */
  readonly #redaction: Redaction | undefined;
  readonly #held: OutputChannel[] = [];
  #channel: OutputChannel;
  #channelHeld = false;
  /** The last execution. Its leftovers are checked before the next one. */
  #unchecked: { readonly channel: OutputChannel; readonly seen: readonly number[] } | undefined;
  #execution: Execution | undefined;
  /** Whether the service had no room for the rest of its report. */
  #isDropped = false;
  /** Set while old output is drained from a channel. */
  #emptying: Promise<void> | undefined;
  #pid = 0;
  /** Processes that do not hold its pipes, or that may because they existed before its first execution. */
  #known: ReadonlySet<number> = new Set();
  #first: ReadonlySet<number> = new Set();
  #end: JobEnd | undefined;
  #onEnd: (end: JobEnd) => void = ignore;
  #closing: Promise<void> | undefined;

  private constructor(
    host: InterpreterHost,
    language: InterpreterLanguage,
    sandbox: LeasedSandbox,
    place: InterpreterPlace,
    job: Job,
    redaction: Redaction | undefined,
  ) {
    this.#host = host;
    this.#language = language;
    this.#sandbox = sandbox;
    this.#place = place;
    this.#job = job;
    this.#redaction = redaction;
    this.#channel = new OutputChannel(job, language.pipes);
    job.end.then((end) => {
      this.#end = end;
      this.#onEnd(end);
    });
  }

  /**
   * Starts an interpreter. Resolves when it is ready for its first execution.
   * @throws `SESSION_START_FAILED`, with its output if it ends at once, or if it does not answer in time.
   */
  static async start(
    host: InterpreterHost,
    language: InterpreterLanguage,
    sandbox: LeasedSandbox,
    place: InterpreterPlace,
    signal: AbortSignal,
  ): Promise<InterpreterProcess> {
    let started: InterpreterProcess | undefined;
    const early: [OutputStream, Buffer][] = [];
    const { env, secretEnv, workingDir } = place;
    let redaction: Redaction | undefined;
    const onSecrets = (found: Redaction): void => {
      redaction = found;
    };
    const job = await host.runner.start(
      sandbox,
      {
        ...{ argv: language.argv, env, secretEnv, onSecrets, workingDir },
        ...{ user: sandbox.user, stdin: true, terminal: undefined },
      },
      (stream, chunk) => {
        if (started === undefined) early.push([stream, chunk]);
        else started.#channelOfJob.taker?.(stream, chunk);
      },
      signal,
    );
    started = new InterpreterProcess(host, language, sandbox, place, job, redaction);
    try {
      await started.#boot(early, signal);
      return started;
    } catch (error) {
      await started.close(false);
      throw error;
    }
  }

  get alive(): boolean {
    return this.#end === undefined && this.#closing === undefined;
  }

  /** Removes secrets from a text that it returned, if the session asked for that. @param isCut see {@link Redaction.text} */
  async redacted(text: string, isCut = false): Promise<string> {
    return this.#place.redactSecrets && this.#redaction ? this.#redaction.text(text, { isCut }) : text;
  }

  /**
   * Runs code, one execution at a time. @throws `SESSION_LOST` if it ran out of memory; the engine's error if it was
   * lost.
   */
  async run(code: string, bounds: ExecutionBounds): Promise<ExecutionOutcome> {
    const channel = await this.#freeChannel(bounds.stop).catch(async (error: unknown) => {
      // The interpreter does not even answer with a marker: without a close, all later calls would wait as well.
      if (this.#emptying !== undefined && bounds.stop.aborted) await within(this.#emptying, INTERRUPT_MS);
      if (this.#emptying !== undefined && bounds.stop.aborted) await this.close(false);
      throw error;
    });
    const pass = (stream: OutputStream, chunk: Buffer): void => {
      const wait = bounds.output(stream, chunk);
      if (wait === undefined) return;
      channel.job.pause();
      wait.then(() => {
        if (channel.taker !== undefined) channel.job.resume();
      });
    };
    // Redact only the output, not the whole stream: redaction holds back a possible start of a secret, but an end must
    // pass.
    const redacted = this.#place.redactSecrets ? this.#redaction?.output(pass) : undefined;
    const execution = this.#newExecution(redacted?.data ?? pass);
    channel.taker = (stream, chunk) => execution.data(stream, chunk);
    try {
      this.#write(this.#language.run(code, execution.nonce, channel));
      const outcome = await this.#follow(execution, channel, bounds.stop);
      redacted?.end();
      return outcome;
    } finally {
      channel.taker = undefined;
      this.#forgetExecution();
    }
  }

  #newExecution(output: (stream: OutputStream, chunk: Buffer) => void): Execution {
    const hold = (bytes: number): void => {
      this.#host.memory.hold(this.#sandbox.owner, this.#drop, bytes);
    };
    this.#execution = new Execution(output, this.#language.maxPayloadBytes, hold);
    return this.#execution;
  }

  #forgetExecution(): void {
    this.#execution = undefined;
    this.#host.memory.hold(this.#sandbox.owner, this.#drop, 0);
  }

  /** Ends it: the service has no room for the rest of its report. */
  readonly #drop = (): void => {
    // It may have been completed meanwhile.
    if (this.#execution === undefined) return;
    this.#execution.dropPayload();
    this.#isDropped = true;
    void this.close(false);
  };

  /**
   * Ends it and all its descendants. Idempotent; never rejects.
   * @param sandboxEnds whether the sandbox ends, with everything in it.
   */
  close(sandboxEnds: boolean): Promise<void> {
    this.#closing ??= this.#close(sandboxEnds);
    return this.#closing;
  }

  get #channelOfJob(): OutputChannel {
    return this.#channel.job === this.#job
      ? this.#channel
      : (this.#held.find(({ job }) => job === this.#job) ?? this.#channel);
  }

  async #boot(early: readonly [OutputStream, Buffer][], signal: AbortSignal): Promise<void> {
    let said = "";
    const hear = (_: OutputStream, chunk: Buffer): void => {
      said = (said + chunk.toString()).slice(-500);
    };
    // This output goes into an error, and errors must not contain secrets.
    const heard = this.#redaction?.output(hear);
    const execution = this.#newExecution(heard?.data ?? hear);
    const channel = this.#channel;
    channel.taker = (stream, chunk) => execution.data(stream, chunk);
    for (const [stream, chunk] of early) execution.data(stream, chunk);
    this.#write(this.#language.boot + this.#language.printEnd(execution.nonce, "E0", channel));
    const program = this.#program;
    const late = AbortSignal.timeout(START_TIMEOUT_MS);
    const started = Promise.race([
      execution.end,
      this.#job.end.then((end) => {
        execution.flush();
        heard?.end();
        return startFailure(program, end, said);
      }),
    ]);
    const outcome = await untilAborted(started, AbortSignal.any([signal, late]))
      .catch((error: unknown) => {
        throw late.aborted && !signal.aborted ? startsTooLate(program) : error;
      })
      .finally(() => {
        channel.taker = undefined;
        this.#forgetExecution();
      });
    if (outcome instanceof BerthError) throw outcome;
    const { own, seen } = this.#language.pidsOf(outcome.payload);
    this.#pid = own;
    this.#first = new Set(seen);
    this.#known = this.#first;
  }

  async #follow(execution: Execution, channel: OutputChannel, stop: AbortSignal): Promise<ExecutionOutcome> {
    let over = false;
    const result = Promise.race([execution.end, this.#ended()])
      .then(async (): Promise<ExecutionOutcome> => {
        const end = this.#end;
        if (end === undefined) {
          const done = await execution.end;
          if (this.#closing === undefined) return { kind: "done", end: done, interrupted: stop.aborted };
          if (this.#isDropped) throw this.#lost(NO_ROOM, "PROTOCOL");
          // A stopped interpreter continues for a moment while it is being ended.
          return { kind: "gone", exitCode: KILLED, interrupted: stop.aborted };
        }
        if (this.#isDropped) throw this.#lost(NO_ROOM, "PROTOCOL");
        if (!stop.aborted && (await this.#ranOutOfMemory(end)))
          throw this.#lost(outOfMemory(this.#sandbox), "OUT_OF_MEMORY");
        // If it was killed together with all its shells, there may be no exit status.
        if (end.kind === "lost" && this.#closing === undefined) throw end.error;
        await this.#drain(execution, channel);
        const exitCode = end.kind === "lost" ? KILLED : end.code;
        return { kind: "gone", exitCode, interrupted: stop.aborted };
      })
      .finally(() => {
        over = true;
        this.#onEnd = ignore;
        execution.flush();
      });
    result.catch(() => {});
    const stopped = Promise.withResolvers<void>();
    const onStop = (): void => stopped.resolve();
    stop.addEventListener("abort", onStop, { once: true });
    if (stop.aborted) onStop();
    await Promise.race([result, stopped.promise]).finally(() => stop.removeEventListener("abort", onStop));
    if (!over && stop.aborted) await this.#interrupt(execution, channel, result, () => over);
    const outcome = await result;
    if (outcome.kind === "done") {
      // Without the payload, which may be megabytes: the session may rest.
      this.#unchecked = { channel, seen: this.#language.pidsOf(outcome.end.payload).seen };
      // An out-of-memory kill of a program of the shell must not be counted when the shell itself ends later.
      if (mayBeOutOfMemory(Number(outcome.end.status))) await this.#newOomKills();
    }
    return outcome;
  }

  /** Resolves at its end, for one execution at a time. What reacts to `job.end` itself stays for the job's life. */
  #ended(): Promise<JobEnd> {
    const { promise, resolve } = Promise.withResolvers<JobEnd>();
    this.#onEnd = resolve;
    if (this.#end !== undefined) resolve(this.#end);
    return promise;
  }

  async #ranOutOfMemory(end: JobEnd): Promise<boolean> {
    const mayBe =
      end.kind === "exited" ? mayBeOutOfMemory(end.code) : end.error.reason !== "SANDBOX_TERMINATED";
    return mayBe && this.#closing === undefined && (await this.#newOomKills());
  }

  async #newOomKills(): Promise<boolean> {
    return (await this.#host.control.newOomKills(this.#sandbox)) ?? false;
  }

  #lost(why: string, cause: string): BerthError {
    return backendLost(this.#place.sessionId, this.#program, why, cause);
  }

  /** The name of the interpreter's program. */
  get #program(): string {
    return this.#language.argv[0] ?? "";
  }

  /** Waits for the rest of what an ended interpreter wrote to a channel of another job. */
  async #drain(execution: Execution, channel: OutputChannel): Promise<void> {
    if (channel.job === this.#job) return;
    channel.job.writeStdin(Buffer.from(`${execution.nonce}E;${execution.nonce}P;\n`)).catch(() => {});
    await within(execution.end, AFTER_KILL_MS);
  }

  /** Interrupts an execution. Kills the interpreter if that fails. */
  async #interrupt(
    execution: Execution,
    channel: OutputChannel,
    result: Promise<unknown>,
    over: () => boolean,
  ): Promise<void> {
    const [done, late] = [new AbortController(), new AbortController()];
    void stayOpen(INTERRUPT_MS, done.signal).then(() => late.abort());
    const ended = result.catch(() => {});
    try {
      for (const { waitMs, ...signals } of INTERRUPTIONS) {
        if (late.signal.aborted || (await this.#isStopped())) break;
        const tag = execution.interrupt();
        const probe = interruptProbe(this.#pid, this.#known, signals);
        const isAnswered = await this.#ask(probe, late.signal).then(
          () => true,
          () => false,
        );
        if (over()) return;
        if (!isAnswered) break;
        this.#write(this.#language.printEnd(execution.nonce, tag, channel));
        await Promise.race([ended, stayOpen(waitMs, done.signal)]);
        if (over()) return;
      }
      await this.close(false);
    } finally {
      done.abort();
    }
  }

  /** Whether a signal has stopped its job, and so most likely the interpreter itself: then it cannot be interrupted. */
  async #isStopped(): Promise<boolean> {
    const outside = await this.#host.control.outside(this.#sandbox);
    return (await outside?.stateOf(this.#job)) === "stopped";
  }

  /** Checks whether leftovers of the last execution still hold its channel. */
  async #checkLeftovers(signal: AbortSignal): Promise<void> {
    if (this.#unchecked === undefined) return;
    const { channel, seen } = this.#unchecked;
    if (seen.length > 0 && seen.every((pid) => this.#known.has(pid))) {
      this.#unchecked = undefined;
      if (seen.length < this.#known.size) this.#known = new Set(seen);
      return;
    }
    const spare = seen.length > 0 ? this.#known : this.#first;
    const held = await this.#isHeld(channel, spare, signal);
    this.#unchecked = undefined;
    this.#known = new Set([...seen, ...this.#first]);
    if (!held) return this.#empty(channel, signal);
    this.#held.push(channel);
    this.#channelHeld = true;
    if (this.#held.length > MAX_HELD_CHANNELS) this.#dropNewest();
  }

  /** Closes the newest held channel, so that a session can always run its next call, whatever it has left running. */
  #dropNewest(): void {
    const place = this.#held.findLastIndex(({ job }) => job !== this.#job);
    for (const { job } of this.#held.splice(place, 1)) {
      job.closeStdin();
      job.close();
    }
  }

  /** Drains a channel: output of its earlier holders may still arrive. */
  async #empty(channel: OutputChannel, signal: AbortSignal): Promise<void> {
    const execution = this.#newExecution(() => {});
    channel.taker = (stream, chunk) => execution.data(stream, chunk);
    this.#emptying = Promise.race([execution.end, this.#ended()]).then(() => {
      this.#onEnd = ignore;
      channel.taker = undefined;
      this.#forgetExecution();
      this.#emptying = undefined;
    });
    this.#write(this.#language.printEnd(execution.nonce, "E0", channel));
    await untilAborted(this.#emptying, signal);
  }

  /** A channel that nothing else holds. */
  async #freeChannel(signal: AbortSignal): Promise<OutputChannel> {
    throwIfAborted(signal);
    if (this.#emptying !== undefined) await untilAborted(this.#emptying, signal);
    await this.#checkLeftovers(signal);
    if (!this.#channelHeld) return this.#channel;
    for (const channel of this.#held) {
      if (await this.#isHeld(channel, this.#first, signal)) continue;
      this.#held.splice(this.#held.indexOf(channel), 1);
      this.#take(channel);
      await this.#empty(channel, signal);
      return channel;
    }
    return this.#take(await OutputChannel.open(this.#host.runner, this.#sandbox, signal));
  }

  #take(channel: OutputChannel): OutputChannel {
    this.#channel = channel;
    this.#channelHeld = false;
    return channel;
  }

  async #isHeld(channel: OutputChannel, spare: ReadonlySet<number>, signal: AbortSignal): Promise<boolean> {
    const { stdout, stderr } = channel.job === this.#job ? this.#ownPipes() : channel;
    const holders = [this.#pid, this.#job.pid, channel.job.pid, Number(channel.stdout.split("/")[2])];
    const own = holders.filter((pid) => pid > 0);
    return (await this.#ask(holdersProbe({ stdout, stderr }, [...spare, ...own]), signal)) !== "n";
  }

  /** The paths of the interpreter's own pipes for other processes. */
  #ownPipes(): { stdout: string; stderr: string } {
    const { stdout, stderr } = this.#language.pipes;
    const named = (path: string): string => path.replace("/proc/self/", `/proc/${this.#pid}/`);
    return { stdout: named(stdout), stderr: named(stderr) };
  }

  #ask(probe: string, within: AbortSignal): Promise<string> {
    return this.#host.shells.ask(this.#sandbox, this.#sandbox.user, (ask) => ask(probe), within);
  }

  #write(text: string): void {
    // If nothing reads it any more, the job ends, which is handled elsewhere.
    this.#job.writeStdin(Buffer.from(text)).catch(() => {});
  }

  async #close(sandboxEnds: boolean): Promise<void> {
    for (const { job } of [this.#channel, ...this.#held]) {
      if (job !== this.#job) job.closeStdin();
    }
    this.#job.closeStdin();
    const release = this.#end === undefined && !sandboxEnds ? this.#job.hold() : undefined;
    try {
      if (release !== undefined) {
        const { control, logger } = this.#host;
        await control
          .killTree(this.#sandbox, this.#sandbox.user, this.#job, KILL_GRACE_MS)
          .catch((error: unknown) => {
            const { sandboxId } = this.#sandbox;
            logger.debug({ sandboxId, err: error }, "an interpreter could not be ended");
          });
      }
      if (!sandboxEnds) await within(this.#job.end, AFTER_KILL_MS);
    } finally {
      release?.();
      for (const { job } of [this.#channel, ...this.#held]) job.close();
      this.#job.close();
    }
  }
}

function startsTooLate(program: string): BerthError {
  const why = `${program} did not answer within ${START_TIMEOUT_MS / 1000} s.`;
  return new BerthError("SESSION_START_FAILED", why, { metadata: { program } });
}

function startFailure(program: string, end: JobEnd, said: string): BerthError {
  if (end.kind === "lost") return end.error;
  const why =
    end.code === 127
      ? `The sandbox's image has no ${program}. Use an image that has it.`
      : `${program} exited at once with code ${end.code}. ${said.trim()}`;
  return new BerthError("SESSION_START_FAILED", why, { metadata: { program } });
}
