import { randomBytes } from "node:crypto";
import { closeSync, constants, writeSync } from "node:fs";
import type { Socket } from "node:net";
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { untilAborted } from "../../base/async.ts";
import { BerthError } from "../../base/errors.ts";
import { quote } from "../../base/shell-quote.ts";
import type { SpawnRequest } from "../port.ts";
import type { ProcessState } from "./exec.ts";
import { openPipe, type PipePaths, pipeSocket } from "./named-pipes.ts";
import { READ_SCRIPT, ZYGOTE_FILES } from "./zygote-script.ts";

/** What the kernel writes to a pipe in one piece, or not at all (`PIPE_BUF`): no other line comes between. */
const MAX_LINE_BYTES = 4096;
/** What a line holds of a longer request: each character may be a quote, which takes four bytes. */
const MAX_PART_CHARS = 1000;
/** All lines of a request: they have to fit into the pipe, which holds 64 KiB. */
const MAX_REQUEST_CHARS = 40 * 1024;
/** More than an answer. What is longer is of something else that writes to the pipe. */
const MAX_ANSWER_CHARS = 64;
/** Answers read at once; further ones wait for a moment, as they are not of a zygote. */
const MAX_READ_BYTES = 4096;
const PAUSE_MS = 50;
/** How long it may take to look a user or a process up. */
const ANSWER_TIMEOUT_MS = 1_000;
/** How long an answer may take once a process's output has ended, before the shell that waits is looked for, and how often then. */
const LATE_ANSWER_MS = 2_000;
const MAX_PAUSE_MS = 30_000;

const IDENTIFIER = /^[A-Za-z_][A-Za-z0-9_]*$/;
/** Variables of the zygote's own. */
const OWN = /^BERTHZ_|^BERTH_(STDIN|STDOUT|STDERR|GO)$/;

/** A program for a zygote to start. */
interface ZygoteRequest {
  /** As an exec names it. */
  readonly user: string;
  /** The uid that the pipes belong to, as the container counts users; undefined: only ask for the user's uid. */
  readonly uid: number | undefined;
  /** As the container sees them. */
  readonly pipes: PipePaths;
  readonly argv: readonly string[];
  readonly env: Readonly<Record<string, string>>;
}

/** Distinguishes its processes from those that the daemon started. */
const HANDLE_PREFIX = "zygote-";

/** How a zygote answers. */
export type ZygoteAnswer =
  | { readonly kind: "exited"; readonly code: number }
  /** The pipes belong to somebody else. */
  | { readonly kind: "uid"; readonly uid: number }
  | { readonly kind: "unknown-user" }
  | { readonly kind: "process-exists"; readonly exists: boolean };

/** What comes of a request. */
export interface ZygoteAnswers {
  /** The pid, in the container, of the shell that waits for the process. */
  readonly waiterPid: Promise<number>;
  readonly end: Promise<ZygoteAnswer>;
}

interface Waiting {
  readonly onPid: (pid: number) => void;
  readonly onEnd: (answer: ZygoteAnswer) => void;
}

/** What a program that a zygote starts needs, apart from its pipes. */
type Startable = Pick<SpawnRequest, "terminal" | "env">;

/** Whether a zygote can start a request: its pipes are all that it has, and a shell can set its environment. */
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
  #answers: Socket | undefined;
  #rest = "";
  #isGone = false;
  /** Keeps the first requests until its container has started. */
  #keeper: number | undefined;

  /** @param directory the container's, of pipes. */
  constructor(directory: string) {
    this.#directory = directory;
  }

  /** One whose container has not started. What is requested until {@link started} is called waits for that. */
  static prepare(directory: string): Zygote {
    const zygote = new Zygote(directory);
    const keeper = openPipe(path.join(directory, ZYGOTE_FILES.requests), constants.O_RDWR);
    zygote.#keeper = keeper;
    writeSync(keeper, READ_SCRIPT);
    return zygote;
  }

  /** Its container has started, or never will. */
  started(): void {
    if (this.#keeper !== undefined) closeSync(this.#keeper);
    this.#keeper = undefined;
  }

  /** Whether it reads requests, as far as this can be seen: a service without descriptors cannot look. */
  get alive(): boolean {
    if (this.#isGone) return false;
    try {
      closeSync(this.#open());
      return true;
    } catch {
      return false;
    }
  }

  /** Whether it was seen to read no more requests. It never will again. */
  get gone(): boolean {
    return this.#isGone;
  }

  /**
   * Asks for a process. Returns its id, under which the answer comes.
   * @throws RequestTooLongError; what opening the pipe throws where the zygote is gone
   */
  request({ user, uid, pipes: { stdin, stdout, stderr }, argv, env }: ZygoteRequest): string {
    const variables = Object.entries(env).map(([name, value]) => `${name}=${value}`);
    return this.#send("Z", [user, String(uid ?? "-"), stdin, stdout, stderr, ...variables, "--", ...argv]);
  }

  /** Whether there is a process, by its pid in the container; undefined where the zygote does not answer in time. */
  async exists(pid: number): Promise<boolean | undefined> {
    const answer = await this.#answerInTime(this.#send("K", [String(pid)]));
    return answer?.kind === "process-exists" ? answer.exists : undefined;
  }

  /** The uid of a user, as the container counts users; undefined where the zygote does not know it in time. */
  async uidOf(user: string): Promise<number | undefined> {
    const pipes = { stdin: "", stdout: "", stderr: "" };
    const id = this.request({ user, uid: undefined, pipes, argv: [], env: {} });
    const answer = await this.#answerInTime(id);
    return answer?.kind === "uid" ? answer.uid : undefined;
  }

  /** The answers to a request, also to one of an earlier run of the service. They may never come. */
  answers(id: string): ZygoteAnswers {
    const { promise: waiterPid, resolve: onPid } = Promise.withResolvers<number>();
    const { promise: end, resolve: onEnd } = Promise.withResolvers<ZygoteAnswer>();
    this.#waiting.set(id, { onPid, onEnd });
    this.#listen();
    return { waiterPid, end };
  }

  /** Nobody waits for an answer any more. */
  forget(id: string): void {
    this.#waiting.delete(id);
  }

  close(): void {
    this.started();
    this.#waiting.clear();
    this.#answers?.destroy();
  }

  /** Sends a request; returns its id. */
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
      // Nobody reads. Other errors may be of the moment.
      if ((error as NodeJS.ErrnoException).code === "ENXIO") this.#isGone = true;
      throw error;
    }
  }

  #listen(): void {
    if (this.#answers !== undefined) return;
    // For writing too: it never ends.
    const fd = openPipe(path.join(this.#directory, ZYGOTE_FILES.answers), constants.O_RDWR);
    const socket = pipeSocket(fd, "readable");
    this.#answers = socket;
    socket.on("data", (chunk: Buffer) => {
      if (chunk.length > MAX_READ_BYTES) {
        socket.pause();
        setTimeout(() => socket.resume(), PAUSE_MS).unref();
      }
      this.#take(chunk.toString("latin1"));
    });
  }

  #take(text: string): void {
    const lines = (this.#rest + text).split("\n");
    this.#rest = (lines.pop() ?? "").slice(-MAX_ANSWER_CHARS);
    for (const line of lines) {
      const [id = "", text = ""] = line.split(" ");
      const waiting = this.#waiting.get(id);
      if (waiting === undefined) continue;
      const pid = /^p(\d{1,10})$/.exec(text)?.[1];
      if (pid !== undefined) waiting.onPid(Number(pid));
      const answer = parseAnswer(text);
      if (answer === undefined) continue;
      this.#waiting.delete(id);
      waiting.onEnd(answer);
    }
  }
}

/**
 * A command of one line as lines that a pipe takes whole. A longer one is gathered in a variable of the zygote's first: of
 * one that breaks off nothing runs, and the next long one replaces what is left.
 */
function linesOf(command: string): Buffer[] {
  const whole = Buffer.from(`${command}\n`);
  if (whole.length <= MAX_LINE_BYTES) return [whole];
  // By bytes: a part may end within a character.
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

/** A word of one line of a shell. */
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

/** What {@link ForkedState} asks. */
interface ForkedParts {
  readonly zygote: Zygote;
  /** Rejects where the container has ended, or the daemon does not answer. */
  findContainer(): Promise<void>;
}

/** A process that a zygote has started. */
export class ForkedState implements ProcessState {
  readonly handle: string;
  readonly #waiterPid: number;
  readonly #answer: Promise<ZygoteAnswer>;
  readonly #parts: ForkedParts;
  #hasAnswer = false;

  /** @param id of its request. */
  constructor(id: string, waiterPid: number, answer: Promise<ZygoteAnswer>, parts: ForkedParts) {
    this.handle = `${HANDLE_PREFIX}${id}-${waiterPid}`;
    this.#waiterPid = waiterPid;
    this.#answer = answer;
    this.#parts = parts;
    void answer.then(() => {
      this.#hasAnswer = true;
    });
  }

  /** The process that a handle names, of an earlier run of the service; undefined where that is another kind's. */
  static find(handle: string, parts: ForkedParts): ForkedState | undefined {
    if (!handle.startsWith(HANDLE_PREFIX)) return undefined;
    const [id = "", pid] = handle.slice(HANDLE_PREFIX.length).split("-");
    return new ForkedState(id, Number(pid), parts.zygote.answers(id).end, parts);
  }

  async exitCode(outputEnded: Promise<void>, signal?: AbortSignal): Promise<number> {
    const gone = outputEnded.then(() => this.#untilWaiterIsGone(signal));
    gone.catch(() => {});
    const answer = await untilAborted(Promise.race([this.#answer, gone]), signal);
    if (answer?.kind === "exited") return answer.code;
    throw new BerthError(
      "ENGINE_UNAVAILABLE",
      "How the process ended is lost with the shell that waited for it.",
    );
  }

  async whyEnded(): Promise<Error | undefined> {
    if (this.#hasAnswer) return undefined;
    try {
      await this.#parts.findContainer();
      return undefined;
    } catch (error) {
      return error as Error;
    }
  }

  /** Resolves when the shell that waits for the process has ended, and its answer has not come. */
  async #untilWaiterIsGone(signal: AbortSignal | undefined): Promise<void> {
    const { zygote, findContainer } = this.#parts;
    for (let pauseMs = LATE_ANSWER_MS; ; pauseMs = Math.min(pauseMs * 2, MAX_PAUSE_MS)) {
      await sleep(pauseMs, undefined, { ref: false, signal });
      if (this.#hasAnswer) return;
      await findContainer();
      // A process may close its output long before it ends. Without a zygote nobody knows.
      const exists = await zygote.exists(this.#waiterPid).catch(() => undefined);
      if (exists === false || zygote.gone) return;
    }
  }
}
