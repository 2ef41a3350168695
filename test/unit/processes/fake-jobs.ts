import type { BerthError } from "../../../src/base/errors.ts";
import type {
  OutputSink,
  OutputStream,
  OutsideControl,
  SpawnedProcess,
  TerminalSize,
} from "../../../src/engine/port.ts";
import type {
  Job,
  JobEnd,
  JobOutput,
  JobRequest,
  JobRunner,
  JobTrace,
} from "../../../src/processes/shell/job.ts";
import type { LeasedSandbox } from "../../../src/sandboxes/lease.ts";

export const SIGTERM = 15;
export const SIGKILL = 9;

/** A job that a test controls. Like a real job it outlives the service that started it. */
export class FakeJob implements Job {
  readonly pid: number;
  readonly startTime = "1";
  readonly unsure = false;
  readonly trace: JobTrace;
  readonly sandbox: LeasedSandbox;
  readonly request: JobRequest;
  /** Signals sent to it, in order. */
  readonly signals: number[] = [];
  readonly sizes: TerminalSize[] = [];
  /** What was written to its stdin. */
  stdin = "";
  stdinClosed = false;
  paused = false;
  /** Awaited by each write to its stdin. */
  reading: () => Promise<void> = async () => {};
  /** What a signal does to it. Default: it ends. */
  onSignal: (signal: number) => void = (signal) => this.exit(128 + signal);
  readonly #end = Promise.withResolvers<JobEnd>();
  readonly #output: JobOutput;
  /** Writes to the reader of its pipes; undefined: the runner that started it. */
  #pipe: ((stream: OutputStream, chunk: Buffer) => void) | undefined;
  #unread: [OutputStream, Buffer][] = [];
  #runs = true;

  constructor(pid: number, sandbox: LeasedSandbox, request: JobRequest, output: JobOutput) {
    this.pid = pid;
    this.trace = { handle: `handle-${pid}`, nonce: `nonce-${pid}-` };
    this.sandbox = sandbox;
    this.request = request;
    this.#output = output;
  }

  get end(): Promise<JobEnd> {
    return this.#end.promise;
  }

  get runs(): boolean {
    return this.#runs;
  }

  write(text: string, stream: OutputStream = "stdout"): void {
    (this.#pipe ?? this.#output)(stream, Buffer.from(text));
  }

  exit(code: number): void {
    if (!this.#runs) return;
    this.#runs = false;
    this.#end.resolve({ kind: "exited", code });
    // Its shell reports the end on its pipes, which a later run of the service reads.
    for (const stream of ["stdout", "stderr"] as const) {
      this.#pipe?.(stream, Buffer.from(`${this.trace.nonce}E${code};`));
    }
  }

  lose(error: BerthError): void {
    this.#runs = false;
    this.#end.resolve({ kind: "lost", error });
  }

  /** Call this when the service is killed: later output stays in the pipes. */
  leave(): void {
    this.#pipe = (stream, chunk) => this.#unread.push([stream, chunk]);
  }

  /** Reattaches for a later run of the service, which reads what is in the pipes, and later output. */
  reattach(sink: OutputSink): SpawnedProcess {
    this.#pipe = (stream, chunk) => sink.data(stream, chunk);
    for (const [stream, chunk] of this.#unread.splice(0)) sink.data(stream, chunk);
    return {
      handle: this.trace.handle,
      pause: () => this.pause(),
      resume: () => this.resume(),
      trickle() {},
      writeStdin: (data) => this.writeStdin(data),
      closeStdin: () => this.closeStdin(),
      resize: (size) => this.resize(size),
      wait: () => new Promise(() => {}),
      close() {},
    };
  }

  pause(): void {
    this.paused = true;
  }

  resume(): void {
    this.paused = false;
  }

  trickle(): void {}

  async writeStdin(data: Uint8Array): Promise<void> {
    await this.reading();
    this.stdin += Buffer.from(data).toString();
  }

  closeStdin(): void {
    this.stdinClosed = true;
  }

  async resize(size: TerminalSize): Promise<void> {
    this.sizes.push(size);
  }

  hold(): (() => void) | undefined {
    return this.#runs ? () => {} : undefined;
  }

  close(): void {}
}

/** Starts jobs that a test controls. */
export class FakeRunner implements JobRunner {
  /** The jobs, in the order of their starts. */
  readonly jobs: FakeJob[] = [];
  /** Number of OOM kills in all sandboxes. */
  oomKills = 0;
  /** Whether further jobs run in one shell, one after the other. */
  inOneShell = false;
  /** Whether all sandboxes are ending. */
  isEnding = false;
  /** Awaited before processes that survived a SIGTERM are killed. */
  killing: () => Promise<void> = async () => {};
  /** Awaited before each start, with the job's output. If it throws, the start fails. */
  starting: (output: JobOutput) => Promise<void> = async () => {};
  /** The {@link FakeJob.reading} of each new job. */
  reading: () => Promise<void> = async () => {};

  async start(sandbox: LeasedSandbox, request: JobRequest, output: JobOutput): Promise<Job> {
    await this.starting(output);
    const job = new FakeJob(this.inOneShell ? 1 : this.jobs.length + 1, sandbox, request, output);
    job.reading = this.reading;
    this.jobs.push(job);
    return job;
  }

  /** The newest job. */
  get job(): FakeJob {
    const last = this.jobs.at(-1);
    if (last === undefined) throw new Error("no job was started");
    return last;
  }
}

/** Controls a sandbox's processes as an engine would: {@link FakeJob}s, each a separate tree. */
export class FakeOutside implements OutsideControl {
  readonly #runner: FakeRunner;

  constructor(runner: FakeRunner) {
    this.#runner = runner;
  }

  async stateOf({ pid }: { readonly pid: number }) {
    return this.#jobOf(pid) && ("running" as const);
  }

  async signalGroup({ pid }: { readonly pid: number }, signal: number): Promise<boolean> {
    return this.#send(pid, signal);
  }

  async terminateTree({ pid }: { readonly pid: number }) {
    this.#send(pid, SIGTERM);
    return {
      kill: async () => {
        await this.#runner.killing();
        this.#send(pid, SIGKILL);
      },
    };
  }

  oomKills(): number {
    return this.#runner.oomKills;
  }

  async isEnding(): Promise<boolean> {
    return this.#runner.isEnding;
  }

  async openFile(): Promise<undefined> {
    return undefined;
  }

  async tree(): Promise<never> {
    throw unused();
  }

  async isHeldUp(): Promise<never> {
    throw unused();
  }

  async continueTree(): Promise<never> {
    throw unused();
  }

  async killTree(): Promise<never> {
    throw unused();
  }

  async seclusion(): Promise<never> {
    throw unused();
  }

  async continueStarts(): Promise<never> {
    throw unused();
  }

  async endStoppedStarts(): Promise<never> {
    throw unused();
  }

  async killAll(): Promise<never> {
    throw unused();
  }

  async obstacle(): Promise<never> {
    throw unused();
  }

  #send(pid: number, signal: number): boolean {
    const job = this.#jobOf(pid);
    if (job === undefined || signal === 0) return job !== undefined;
    job.signals.push(signal);
    job.onSignal(signal);
    return true;
  }

  #jobOf(pid: number): FakeJob | undefined {
    return this.#runner.jobs.find((job) => job.pid === pid && job.runs);
  }
}

export function unused(): Error {
  return new Error("no process manager needs this");
}
