import { setTimeout as sleep } from "node:timers/promises";
import { untilAborted } from "../../base/async.ts";
import { abortError, BerthError } from "../../base/errors.ts";
import { MarkerScanner, newNonce } from "../../base/markers.ts";
import type {
  Engine,
  FirstShell,
  OutputStream,
  OutsideControl,
  Seclusion,
  SpawnedProcess,
} from "../../engine/port.ts";
import type { LeasedSandbox } from "../../sandboxes/lease.ts";
import { shellGone } from "./errors.ts";
import type { Leader } from "./job.ts";
import {
  askCommand,
  LANE_BOOT,
  PLAIN_START,
  PRELOADED_START,
  parseLeader,
  preloadingShell,
  RECHECK_COMMAND,
  readyCommand,
  renewCommand,
  renewedCommand,
  type ShellText,
} from "./script.ts";

type LaneState =
  /** Waits for a job or a probe. */
  | "idle"
  /** Runs a job, answers a probe, or is still held for its last job. */
  | "busy"
  /** Its last job is over and could have changed it. It is becoming a new shell, and will then be idle. */
  | "renewing"
  /** Something that its last job left behind still holds its pipes. */
  | "parked"
  | "dead";

/** Receives the bytes of a lane's streams while it is not idle. */
export interface LaneTask {
  data(stream: OutputStream, chunk: Buffer): void;
  /** The lane has died. `lost` is the connection's error, if that was the cause. */
  died(lost: Error | undefined): void;
}

/** Receives changes of a lane's state. */
export interface LaneOwner {
  /** The lane is idle and proven clean. */
  freed(lane: Lane): void;
  /** The last job left something behind that holds the lane's pipes. */
  parked(lane: Lane): void;
  died(lane: Lane): void;
}

/** The shell of every lane. */
export function laneShell({ undumpable }: Pick<Engine, "undumpable">): FirstShell {
  const [argv, start] =
    undumpable === undefined ? [["/bin/sh"], PLAIN_START] : [preloadingShell(undumpable), PRELOADED_START];
  return { argv, input: Buffer.from(start + LANE_BOOT, "latin1") };
}

const OPEN_TIMEOUT_MS = 15_000;
const ANSWER_TIMEOUT_MS = 10_000;
/** How long a shell may take to become a new one. */
const RENEW_TIMEOUT_MS = 2_000;
const SIGKILL = 9;

/**
 * A shell inside a sandbox, opened in advance. It runs one job at a time as its child, and is reused if the job is
 * proven to have left nothing behind. Markers in the output report the end of a job. They contain a nonce that is new
 * for each job and known only to the shell. See README.md.
 */
export class Lane implements Leader {
  /** The shell's process, session and process group in the sandbox. */
  readonly pid: number;
  readonly startTime: string;
  readonly unsure = false;
  readonly user: string;
  readonly spawned: SpawnedProcess;
  /** Whether its memory and its pipes are inaccessible to its jobs. */
  readonly undumpable: boolean;
  readonly #owner: LaneOwner;
  #state: LaneState = "idle";
  #spent = false;
  #task: LaneTask | undefined;
  readonly #outside: Promise<OutsideControl | undefined>;
  /** The last proof from outside that it was alone; undefined if that cannot be seen. */
  #seclusion: Seclusion | undefined;

  private constructor(
    spawned: SpawnedProcess,
    leader: string,
    user: string,
    owner: LaneOwner,
    outside: Promise<OutsideControl | undefined>,
  ) {
    this.spawned = spawned;
    this.#outside = outside;
    ({ pid: this.pid, startTime: this.startTime } = parseLeader(leader));
    this.undumpable = leader.endsWith(":u");
    this.user = user;
    this.#owner = owner;
  }

  /** Opens a lane; resolves when it is idle. Takes as long as the engine needs to start a process. */
  static async open(
    engine: Engine,
    sandbox: LeasedSandbox,
    user: string,
    owner: LaneOwner,
    signal: AbortSignal,
  ): Promise<Lane> {
    const nonce = newNonce();
    const ready = Promise.withResolvers<string>();
    ready.promise.catch(() => {});
    let output = "";
    const scanner = new MarkerScanner(nonce, (chunk) => {
      output = (output + chunk.toString("latin1")).slice(0, 1024);
    });
    let lane: Lane | undefined;
    const limit = AbortSignal.any([signal, AbortSignal.timeout(OPEN_TIMEOUT_MS)]);
    const onAbort = (): void => ready.reject(abortError(limit));
    limit.addEventListener("abort", onAbort, { once: true });
    // This may take a call to the engine, and is not needed before the shell runs.
    const outside = engine.outside(sandbox.ref, limit).catch(() => undefined);
    const { argv, input } = laneShell(engine);
    const spawned = await engine.spawn(
      sandbox.ref,
      {
        argv,
        user,
        stdin: true,
        input: Buffer.concat([input, Buffer.from(readyCommand(nonce), "latin1")]),
      },
      {
        data: (stream, chunk) => {
          if (lane !== undefined) return lane.#task?.data(stream, chunk);
          const found = stream === "stdout" ? scanner.push(chunk) : undefined;
          if (found !== undefined) ready.resolve(found.text.slice(1));
        },
        end: (error) => {
          ready.reject(shellGone(output, error));
          if (lane !== undefined) lane.#die(error);
        },
      },
      limit,
    );
    try {
      const leader = await ready.promise;
      lane = new Lane(spawned, leader, user, owner, outside);
      if (!lane.undumpable) lane.#seclusion = await (await outside)?.seclusion(lane);
      // It may have died meanwhile, before its owner could know it.
      if (lane.state === "dead") throw shellGone("", undefined);
      return lane;
    } catch (error) {
      spawned.close();
      throw error;
    } finally {
      limit.removeEventListener("abort", onAbort);
    }
  }

  get state(): LaneState {
    return this.#state;
  }

  /**
   * Gives the shell a task and the text that starts it. The lane must be idle. The task then decides what happens to
   * the lane.
   */
  give(task: LaneTask, text: ShellText): void {
    this.#begin(task);
    this.#write(text);
  }

  /**
   * Makes the shell itself run a command of builtins, which needs no new process, and returns its answer. The lane must
   * be idle, and is idle afterwards.
   * @param within aborts the wait for the answer. Default: never.
   * @throws `ENGINE_UNAVAILABLE` if the shell ends or does not answer in time. The lane is then dead.
   */
  async ask(command: string, within?: AbortSignal): Promise<string> {
    const nonce = newNonce();
    const answer = this.#answer(nonce);
    this.#write(askCommand(nonce, command));
    const timeout = new AbortController();
    const givenUp = Promise.withResolvers<void>();
    within?.addEventListener("abort", () => givenUp.resolve(), { once: true, signal: timeout.signal });
    if (within?.aborted) givenUp.resolve();
    const tooLong = sleep(ANSWER_TIMEOUT_MS, undefined, { signal: timeout.signal, ref: false });
    const late = Promise.race([tooLong, givenUp.promise]).then(() => {
      this.discard();
      throw new BerthError("ENGINE_UNAVAILABLE", "A shell in the sandbox does not answer.");
    });
    late.catch(() => {});
    try {
      const text = await Promise.race([answer, late]);
      this.#task = undefined;
      this.#state = "idle";
      return text.slice(1);
    } finally {
      timeout.abort();
    }
  }

  /**
   * Checks whether a parked lane has become clean, and if so notifies its owner; otherwise it stays parked. Meanwhile
   * its output is read slowly: the answer comes after everything that others wrote before it, or never.
   */
  async recheck(): Promise<void> {
    if (this.#state !== "parked") return;
    if (!this.undumpable) {
      const outside = await this.#outside;
      // A shell that still waits for a job could not answer.
      if (outside !== undefined && (await outside.seclusion(this, this.#seclusion)) === undefined) return;
      if (this.#state !== "parked") return;
    }
    this.#state = "idle";
    if ((await this.ask(RECHECK_COMMAND)) === "C") return this.release();
    this.#state = "parked";
  }

  /**
   * Called by the running job when something acts on its process group, which is also this shell's: that may still take
   * effect after the job's end. So the lane runs no other job.
   */
  spend(): void {
    this.#spent = true;
  }

  /**
   * Called by the job that ran, when the shell reports that it left nothing behind and nobody holds it. A job that can
   * access the shell's memory may have forged that report. In that case the lane becomes idle only when the shell has
   * become a new one and, if that can be checked, is alone as seen from outside.
   */
  release(): void {
    if (this.#state === "dead") return;
    if (this.#spent) {
      this.discard();
      return;
    }
    this.spawned.resume();
    this.#task = undefined;
    if (this.undumpable) {
      this.#state = "idle";
      this.#owner.freed(this);
      return;
    }
    this.#state = "renewing";
    this.#renew().catch(() => this.#end());
  }

  /** Called by the job that ran, if it left something behind. */
  park(): void {
    if (this.#state === "dead") return;
    this.#task = undefined;
    this.#state = "parked";
    this.spawned.trickle();
    this.#owner.parked(this);
  }

  /** Discards the lane without ending what runs in it. An idle shell ends by itself, unless it is kept from that. */
  discard(): void {
    this.#die(undefined);
    this.spawned.close();
  }

  async #renew(): Promise<void> {
    const outside = await this.#outside;
    const before = this.#seclusion;
    if (before !== undefined && (await outside?.seclusion(this, before)) === undefined) return this.park();
    const [going, there] = [newNonce(), newNonce()];
    const limit = AbortSignal.timeout(RENEW_TIMEOUT_MS);
    await untilAborted(this.#reported(going, ["stdout"], renewCommand(going)), limit);
    await untilAborted(
      this.#reported(there, ["stdout", "stderr"], PLAIN_START + LANE_BOOT + renewedCommand(there)),
      limit,
    );
    if (before !== undefined) {
      const after = await outside?.seclusion(this, before);
      // The shell reported that it would become a new one, but did not.
      if (after === undefined || after.program === before.program) return this.#end();
      this.#seclusion = after;
    }
    if (this.#state === "dead") return;
    this.#task = undefined;
    this.#state = "idle";
    this.#owner.freed(this);
  }

  /** Writes a text, and resolves when the nonce has arrived on each of the streams. Output before it is dropped. */
  #reported(nonce: string, streams: readonly OutputStream[], text: ShellText): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const waiting = new Map(streams.map((stream) => [stream, new MarkerScanner(nonce, () => {})]));
    this.#task = {
      data: (stream, chunk) => {
        if (waiting.get(stream)?.push(chunk) === undefined) return;
        waiting.delete(stream);
        if (waiting.size === 0) resolve();
      },
      died: (lost) => reject(shellGone("", lost)),
    };
    this.#write(text);
    return promise;
  }

  /** Discards the lane, and kills its shell, which cannot be trusted, if that is possible from outside. */
  #end(): void {
    void this.#outside.then((outside) => outside?.signalGroup(this, SIGKILL)).catch(() => {});
    this.discard();
  }

  #begin(task: LaneTask): void {
    if (this.#state !== "idle") throw new Error(`the lane is ${this.#state}`);
    this.#state = "busy";
    this.#task = task;
  }

  #answer(nonce: string): Promise<string> {
    const { promise, resolve, reject } = Promise.withResolvers<string>();
    promise.catch(() => {});
    const scanners = {
      stdout: new MarkerScanner(nonce, () => {}),
      stderr: new MarkerScanner(nonce, () => {}),
    };
    const answers = new Map<OutputStream, string>();
    this.#begin({
      data: (stream, chunk) => {
        if (answers.has(stream)) return;
        const found = scanners[stream].push(chunk);
        if (found === undefined) return;
        answers.set(stream, found.text);
        if (answers.size === 2) resolve(found.text);
      },
      died: (lost) => reject(shellGone("", lost)),
    });
    return promise;
  }

  #write(text: ShellText): void {
    // A write fails if the lane has died, which its streams report.
    this.spawned.writeStdin(Buffer.from(text, "latin1")).catch(() => {});
  }

  #die(lost: Error | undefined): void {
    if (this.#state === "dead") return;
    this.#state = "dead";
    const task = this.#task;
    this.#task = undefined;
    task?.died(lost);
    this.#owner.died(this);
  }
}
