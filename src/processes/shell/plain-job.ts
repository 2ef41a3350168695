import { abortError, BerthError } from "../../base/errors.ts";
import type { OutputStream, SpawnedProcess, TerminalSize } from "../../engine/port.ts";
import type { Job, JobEnd, JobOutput, JobRequest, JobTrace } from "./job.ts";
import {
  ASK_ENGINE_AFTER_MS,
  BEGIN_TIMEOUT_MS,
  endAsEngineTells,
  isChildless,
  tooSlow,
  workingDirMissing,
} from "./job-bounds.ts";
import { parseLeader } from "./leader-text.ts";
import { MarkerScanner } from "./marker-scanner.ts";
import { newNonce } from "./nonce.ts";
import { shellGone } from "./shell-gone.ts";
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
