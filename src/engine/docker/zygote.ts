import { randomBytes } from "node:crypto";
import { closeSync, constants, writeSync } from "node:fs";
import type { Socket } from "node:net";
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { untilAborted } from "../../base/async.ts";
import { BerthError } from "../../base/errors.ts";
import { SharedResult } from "../../base/shared-result.ts";
import { quote } from "../../base/shell-quote.ts";
import { PipeSocket } from "../pipe-socket.ts";
import type { SpawnRequest } from "../port.ts";
import type { ProcessState } from "./exec.ts";
import { openPipe, type PipePaths } from "./named-pipes.ts";
import { READ_SCRIPT, ZYGOTE_FILES } from "./zygote-script.ts";

/** The kernel writes up to this many bytes to a pipe atomically (`PIPE_BUF`), so no other line gets in between. */
const MAX_LINE_BYTES = 4096;
/** The part of a longer request that fits on a line: each character may be a quote, which takes four bytes. */
const MAX_PART_CHARS = 1000;
/** Limit for all lines of a request: they must fit into the pipe, whose capacity is 64 KiB. */
const MAX_REQUEST_CHARS = 40 * 1024;
/** A line of the answers: the id of the request, and what {@link parseAnswer} reads or the pid of the waiting shell. */
const ANSWER = /^([0-9a-f]{16}) (\S{1,11})\n/gm;
/** Longer than any answer. A longer line comes from another writer to the pipe. */
const MAX_ANSWER_CHARS = 64;
/** Longer than all answers that a zygote gives in a moment. */
const MAX_READ_BYTES = 4096;
/** How long the answers wait after a read that brought more than that, or none that was asked for. */
const PAUSE_MS = 100;
/** How long the look-up of a user or a process may take. */
const ANSWER_TIMEOUT_MS = 1_000;
/**
 * How long an answer may take once a process's output has ended, before Berth looks for the shell that waits; and the
 * longest pause between two looks.
 */
const LATE_ANSWER_MS = 2_000;
const MAX_PAUSE_MS = 30_000;
/** More exit codes than the processes of one sandbox that may wait to be recovered. */
const MAX_UNCLAIMED = 1_000;

const IDENTIFIER = /^[A-Za-z_][A-Za-z0-9_]*$/;
/** Names of the zygote's own variables. */
const OWN = /^BERTHZ_|^BERTH_(STDIN|STDOUT|STDERR|GO)$/;

interface ZygoteRequest {
  /** Named as in an exec. */
  readonly user: string;
  /** The uid, inside the container, that the pipes belong to; undefined: only ask for the user's uid. */
  readonly uid: number | undefined;
  /** Paths inside the container. */
  readonly pipes: PipePaths;
  readonly argv: readonly string[];
  readonly env: Readonly<Record<string, string>>;
}

/** Prefix of handles of processes that a zygote started. Those that the daemon started have none. */
const HANDLE_PREFIX = "zygote-";

/** An answer of a zygote. */
type ZygoteAnswer =
  | { readonly kind: "exited"; readonly code: number }
  /** The pipes belong to another uid than this one, the user's. */
  | { readonly kind: "uid"; readonly uid: number }
  | { readonly kind: "unknown-user" }
  | { readonly kind: "process-exists"; readonly exists: boolean };

/** The answers to a request. */
export interface ZygoteAnswers {
  /** The pid, inside the container, of the shell that waits for the process. */
  readonly waiterPid: Promise<number>;
  readonly end: Promise<ZygoteAnswer>;
}

interface Waiting {
  /** Undefined once it was called. */
  readonly onPid: ((pid: number) => void) | undefined;
  readonly onEnd: (answer: ZygoteAnswer) => void;
}

/** The parts of a request that decide whether a zygote can start it. */
type Startable = Pick<SpawnRequest, "terminal" | "env">;

/** Whether a zygote can start a request: it has no terminal, and a shell can set its environment. */
export function suitsZygote({ terminal, env = {} }: Startable): boolean {
  const names = Object.keys(env);
  return terminal === undefined && names.every((name) => IDENTIFIER.test(name) && !OWN.test(name));
}

/** A request is longer than {@link MAX_REQUEST_CHARS}. */
export class RequestTooLongError extends Error {}

/** The service's end of the zygote of one container (zygote-script.ts). */
export class Zygote {
  readonly #directory: string;
  readonly #waiting = new Map<string, Waiting>();
  /**
   * Exit codes of processes that are not recovered yet, which a lane that is opened before that reads from the pipe.
   * Undefined: every process that can be recovered is.
   */
  #unclaimed: Map<string, ZygoteAnswer> | undefined;
  #answers: Socket | undefined;
  #rest = "";
  #isGone = false;
  /** A descriptor that keeps the first requests in the pipe until the container has started. */
  #keeper: number | undefined;

  /** @param directory the container's directory of pipes. */
  constructor(directory: string) {
    this.#directory = directory;
  }

  /** A zygote whose container has not started. Requests wait until it starts; call {@link started} then. */
  static prepare(directory: string): Zygote {
    const zygote = new Zygote(directory);
    const keeper = openPipe(path.join(directory, ZYGOTE_FILES.requests), constants.O_RDWR);
    zygote.#keeper = keeper;
    writeSync(keeper, READ_SCRIPT);
    return zygote;
  }

  /** The zygote of an earlier run of the service. Call {@link recovered} when its processes are recovered. */
  static find(directory: string): Zygote {
    const zygote = new Zygote(directory);
    zygote.#unclaimed = new Map();
    return zygote;
  }

  /** Drops the exit codes of processes that nobody has asked for with {@link answers}. */
  recovered(): void {
    this.#unclaimed = undefined;
  }

  /** Call this when its container has started, or never will. */
  started(): void {
    if (this.#keeper !== undefined) closeSync(this.#keeper);
    this.#keeper = undefined;
  }

  /** Whether it reads requests, as far as the service can see: without a free descriptor it cannot check. */
  get alive(): boolean {
    if (this.#isGone) return false;
    try {
      closeSync(this.#open());
      return true;
    } catch {
      return false;
    }
  }

  /** Whether it is known to read no more requests. It never will again. */
  get gone(): boolean {
    return this.#isGone;
  }

  /**
   * Asks for a process. Returns the id of the request, for {@link answers}.
   * @throws RequestTooLongError; errors of opening the pipe, if the zygote is gone
   */
  request({ user, uid, pipes: { stdin, stdout, stderr }, argv, env }: ZygoteRequest): string {
    const variables = Object.entries(env).map(([name, value]) => `${name}=${value}`);
    return this.#send("Z", [user, String(uid ?? "-"), stdin, stdout, stderr, ...variables, "--", ...argv]);
  }

  /** Whether a process exists, by its pid inside the container; undefined if the zygote does not answer in time. */
  async exists(pid: number): Promise<boolean | undefined> {
    const answer = await this.#answerInTime(this.#send("K", [String(pid)]));
    return answer?.kind === "process-exists" ? answer.exists : undefined;
  }

  /** The uid of a user inside the container; undefined if the zygote does not find it in time. */
  async uidOf(user: string): Promise<number | undefined> {
    const pipes = { stdin: "", stdout: "", stderr: "" };
    const id = this.request({ user, uid: undefined, pipes, argv: [], env: {} });
    const answer = await this.#answerInTime(id);
    return answer?.kind === "uid" ? answer.uid : undefined;
  }

  /** The answers to a request, which may be from an earlier run of the service. They may never come. */
  answers(id: string): ZygoteAnswers {
    const { promise: waiterPid, resolve: onPid } = Promise.withResolvers<number>();
    const { promise: end, resolve: onEnd } = Promise.withResolvers<ZygoteAnswer>();
    const unclaimed = this.#unclaimed?.get(id);
    if (unclaimed !== undefined) onEnd(unclaimed);
    else this.#waiting.set(id, { onPid, onEnd });
    this.#listen();
    return { waiterPid, end };
  }

  /** Forgets a request: nobody waits for its answer any more. */
  forget(id: string): void {
    this.#waiting.delete(id);
  }

  close(): void {
    this.started();
    this.#waiting.clear();
    this.#answers?.destroy();
  }

  #send(name: string, words: readonly string[]): string {
    const id = randomBytes(8).toString("hex");
    const lines = linesOf(`${name} ${[id, ...words].map(word).join(" ")}`);
    this.#listen();
    const fd = this.#open();
    try {
      for (const line of lines) writeSync(fd, line);
    } finally {
      closeSync(fd);
    }
    return id;
  }

  async #answerInTime(id: string): Promise<ZygoteAnswer | undefined> {
    const late = sleep(ANSWER_TIMEOUT_MS, undefined, { ref: false });
    const answer = await Promise.race([this.answers(id).end, late]);
    this.forget(id);
    return answer ?? undefined;
  }

  #open(): number {
    try {
      return openPipe(path.join(this.#directory, ZYGOTE_FILES.requests), constants.O_WRONLY);
    } catch (error) {
      // Nobody reads the pipe. Other errors may be temporary.
      if ((error as NodeJS.ErrnoException).code === "ENXIO") this.#isGone = true;
      throw error;
    }
  }

  #listen(): void {
    if (this.#answers !== undefined) return;
    // Also open for writing, so that it never gets EOF.
    const fd = openPipe(path.join(this.#directory, ZYGOTE_FILES.answers), constants.O_RDWR);
    const socket = new PipeSocket(fd, "readable");
    this.#answers = socket;
    socket.on("data", (chunk: Buffer) => {
      const isAsked = this.#take(chunk.toString("latin1"));
      if (isAsked && chunk.length <= MAX_READ_BYTES) return;
      // Root in the sandbox can write to the pipe without end, which must not keep the service busy.
      socket.pause();
      setTimeout(() => socket.resume(), PAUSE_MS).unref();
    });
  }

  /** Returns whether there was an answer that somebody waited for. */
  #take(text: string): boolean {
    const whole = this.#rest + text;
    const end = whole.lastIndexOf("\n") + 1;
    this.#rest = whole.slice(end).slice(-MAX_ANSWER_CHARS);
    let isAsked = false;
    for (const [, id = "", text = ""] of whole.slice(0, end).matchAll(ANSWER))
      if (this.#give(id, text)) isAsked = true;
    return isAsked;
  }

  /** Gives an answer to the one that waits for it. Returns whether there is one. */
  #give(id: string, text: string): boolean {
    const waiting = this.#waiting.get(id);
    if (waiting === undefined) {
      this.#keep(id, text);
      return false;
    }
    const pid = /^p(\d{1,10})$/.exec(text)?.[1];
    if (pid !== undefined) {
      this.#waiting.set(id, { ...waiting, onPid: undefined });
      waiting.onPid?.(Number(pid));
      return waiting.onPid !== undefined;
    }
    const answer = parseAnswer(text);
    if (answer === undefined) return false;
    this.#waiting.delete(id);
    waiting.onEnd(answer);
    return true;
  }

  #keep(id: string, text: string): void {
    const unclaimed = this.#unclaimed;
    if (unclaimed === undefined || unclaimed.size >= MAX_UNCLAIMED) return;
    const answer = parseAnswer(text);
    if (answer?.kind === "exited") unclaimed.set(id, answer);
  }
}

/**
 * Splits a one-line command into lines that can each be written to a pipe atomically. The zygote collects a longer
 * command in a variable first: if it breaks off, nothing of it runs, and the next long command replaces the rest.
 */
function linesOf(command: string): Buffer[] {
  const whole = Buffer.from(`${command}\n`);
  if (whole.length <= MAX_LINE_BYTES) return [whole];
  // Split by bytes: a part may end within a character.
  const text = Buffer.from(command).toString("latin1");
  const lines: string[] = [];
  for (let at = 0; at < text.length; at += MAX_PART_CHARS) {
    const before = at === 0 ? "" : "$BERTHZ_T";
    lines.push(`BERTHZ_T=${before}${quote(text.slice(at, at + MAX_PART_CHARS))}\n`);
  }
  lines.push('eval "$BERTHZ_T"; BERTHZ_T=\n');
  if (lines.join("").length > MAX_REQUEST_CHARS) throw new RequestTooLongError();
  return lines.map((line) => Buffer.from(line, "latin1"));
}

/** Quotes a word for one line of shell script. */
function word(text: string): string {
  return quote(text).replaceAll("\n", `'"$BERTHZ_N"'`);
}

function parseAnswer(text: string): ZygoteAnswer | undefined {
  if (text === "-") return { kind: "unknown-user" };
  if (text === "y" || text === "n") return { kind: "process-exists", exists: text === "y" };
  const [, isUid, digits] = /^(u?)(\d{1,10})$/.exec(text) ?? [];
  if (digits === undefined) return undefined;
  return isUid ? { kind: "uid", uid: Number(digits) } : { kind: "exited", code: Number(digits) };
}

interface ForkedParts {
  readonly zygote: Zygote;
  /** Rejects if the container has ended, or the daemon does not answer. */
  findContainer(): Promise<void>;
}

/** The state of a process that a zygote has started. */
export class ForkedState implements ProcessState {
  readonly handle: string;
  readonly #waiterPid: number;
  readonly #answer: SharedResult<ZygoteAnswer>;
  readonly #parts: ForkedParts;
  readonly #isRecovered: boolean;

  /**
   * @param id the id of its request.
   * @param isRecovered whether an earlier run of the service started it, which may have read its answer.
   */
  constructor(
    id: string,
    waiterPid: number,
    answer: Promise<ZygoteAnswer>,
    parts: ForkedParts,
    isRecovered = false,
  ) {
    this.handle = `${HANDLE_PREFIX}${id}-${waiterPid}`;
    this.#waiterPid = waiterPid;
    this.#answer = new SharedResult(answer);
    this.#parts = parts;
    this.#isRecovered = isRecovered;
  }

  /**
   * The process of an earlier run of the service that a handle identifies; undefined if the handle is of another kind.
   */
  static find(handle: string, parts: ForkedParts): ForkedState | undefined {
    if (!handle.startsWith(HANDLE_PREFIX)) return undefined;
    const [id = "", pid] = handle.slice(HANDLE_PREFIX.length).split("-");
    return new ForkedState(id, Number(pid), parts.zygote.answers(id).end, parts, true);
  }

  async exitCode(outputEnded: SharedResult<void> | undefined, signal?: AbortSignal): Promise<number> {
    const over = new AbortController();
    try {
      const gone = this.#untilWaiterIsGone(outputEnded, over.signal);
      const answer = await untilAborted(Promise.race([this.#answer.wait(over.signal), gone]), signal);
      if (answer?.kind === "exited") return answer.code;
    } finally {
      over.abort();
    }
    throw new BerthError(
      "ENGINE_UNAVAILABLE",
      "How the process ended is lost with the shell that waited for it.",
    );
  }

  async whyEnded(): Promise<Error | undefined> {
    if (this.#answer.settled) return undefined;
    try {
      await this.#parts.findContainer();
      return undefined;
    } catch (error) {
      return error as Error;
    }
  }

  /** Resolves when the shell that waits for the process has ended without an answer. */
  async #untilWaiterIsGone(outputEnded: SharedResult<void> | undefined, signal: AbortSignal): Promise<void> {
    const { zygote, findContainer } = this.#parts;
    // An earlier run may have read the answer before the output ended.
    if (!this.#isRecovered) await outputEnded?.wait(signal);
    for (let pauseMs = LATE_ANSWER_MS; ; pauseMs = Math.min(pauseMs * 2, MAX_PAUSE_MS)) {
      await sleep(pauseMs, undefined, { ref: false, signal });
      if (this.#answer.settled) return;
      await findContainer();
      const exists = await zygote.exists(this.#waiterPid).catch(() => undefined);
      if (exists === false) return;
      // The answer of a shell that still waits is to come, and may come long after the output has ended.
      if (exists || zygote.gone) await outputEnded?.wait(signal);
      // Without a zygote there is no way to know.
      if (zygote.gone) return;
    }
  }
}
