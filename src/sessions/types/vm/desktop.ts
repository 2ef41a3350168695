import { randomBytes } from "node:crypto";
import { z } from "zod";
import { untilAborted, within } from "../../../base/async.ts";
import { abortError, BerthError, hasReason, invalidArgument, throwIfAborted } from "../../../base/errors.ts";
import type { Json } from "../../../base/json.ts";
import type { LeasedSandbox } from "../../../sandboxes/lease.ts";
import type { SessionBackend, SessionHost, ViewCommand } from "../../backend.ts";
import { backendLost } from "../common.ts";
import type { HeldMemory } from "../held-memory.ts";
import { Program, type ProgramHost } from "../program.ts";
import { DRIVER_SOURCE, driverArgv, REMOVE_DESKTOP } from "./driver-source.ts";
import { BadFrame, type Frame, FrameReader } from "./frames.ts";
import { MAX_CLIPBOARD_BYTES } from "./params.ts";
import { viewOf, type XServer } from "./view.ts";

/** A screen's size in pixels. */
interface ScreenSize {
  readonly width: number;
  readonly height: number;
}

/** Where and how a desktop starts. */
interface DesktopPlace extends ScreenSize {
  readonly sessionId: string;
  readonly env: Readonly<Record<string, string>>;
  /** Absolute. */
  readonly workingDir: string;
  readonly dpi: number;
  /** Absolute path of the directory for its recording. Undefined: it is not recorded. */
  readonly record: string | undefined;
}

/** A call as stored in a recording. */
interface RecordedCall {
  readonly tool: string;
  readonly params: Json;
  /** The result's code. Null if there was no result. */
  readonly code: number | null;
  readonly message: string;
  readonly duration_ms: number;
  readonly session_restarted: boolean;
}

/** What the driver answered. */
export interface DriverAnswer {
  readonly data: Json;
  /** Empty if there is none. */
  readonly payload: Buffer;
}

/** A failure of the tool itself. The message is for the caller. */
export class DesktopFailure extends Error {}

/** What ends a call. */
interface Bounds {
  readonly signal: AbortSignal;
  readonly timeout: AbortSignal;
}

/** Longer than the driver waits for the X server and then for the recorder. */
const START_TIMEOUT_MS = 90_000;
/** How long the driver may take to stop a call, also if it lacks processor time. Then it is killed. */
const CANCEL_MS = 5_000;
/** How long the driver and what it started may take to end after EOF on stdin. */
const CLOSE_MS = 3_000;
/** The same if it completes a recording first. */
const RECORDED_CLOSE_MS = 12_000;
/** A pixel of a picture that cannot be compressed. */
const PIXEL_BYTES = 4;
/** Text that a program offers in another encoding grows when it becomes UTF-8. */
const CLIPBOARD_ANSWER_BYTES = 3 * MAX_CLIPBOARD_BYTES;
const MAX_REASON = 1_000;
/** The exit code for a command that does not exist. */
const NOT_FOUND = 127;

/** `stopped`: why the recording ended, if it did. */
const answered = { id: z.number(), stopped: z.string().max(MAX_REASON).optional() };
const answerSchema = z.union([
  z.object({ ...answered, data: z.unknown() }),
  z.object({
    ...answered,
    error: z.object({ kind: z.string(), message: z.string(), field: z.string().optional() }),
  }),
]);
type Answer = z.output<typeof answerSchema>;

const serverSchema = z.object({
  display: z.string().regex(/^:\d{1,5}$/),
  authority: z.string().startsWith("/").max(4096),
});

interface Pending {
  readonly id: number;
  /** What its answer may have besides the JSON. */
  readonly maxPayloadBytes: number;
  /** Gives it its answer, or a promise that rejects with why there is none. */
  readonly settle: (answered: Answered | Promise<never>) => void;
}

interface Answered {
  readonly answer: Answer;
  readonly payload: Buffer;
}

/**
 * A desktop in a sandbox. A driver there runs the X server and everything that the session starts, and handles one
 * request at a time. See driver/main.py.
 */
export class Desktop implements SessionBackend {
  readonly #program: Program;
  /** Whether it is recorded, at least until {@link recordingStopped}. */
  readonly isRecorded: boolean;
  #recordingStopped: string | undefined;
  #size: ScreenSize;
  /** Undefined until it has started. */
  #server: XServer | undefined;
  readonly #reader: FrameReader;
  #owner: string;
  #lastId = 0;
  #pending: Pending | undefined;
  #hasEnded = false;
  /** Why it is unusable although its program ran. */
  #broken: string | undefined;

  private constructor(
    program: Program,
    owner: string,
    memory: HeldMemory,
    { size, isRecorded }: { readonly size: ScreenSize; readonly isRecorded: boolean },
  ) {
    this.#owner = owner;
    const drop = (): void => {
      // It may have been completed meanwhile.
      if (!this.#reader.isEmpty) this.#break("an answer was unfinished when the server had no room for more");
    };
    this.#reader = new FrameReader((bytes) => memory.hold(this.#owner, drop, bytes));
    this.#size = size;
    this.#program = program;
    this.isRecorded = isRecorded;
    // Once for all requests: what reacts to a promise stays, with its results, until that settles.
    void program.ended.then(() => this.#ended());
  }

  /**
   * Starts a desktop. Resolves when its screen is ready.
   * @throws `SESSION_START_FAILED`, which names what the sandbox lacks.
   */
  static async start(
    host: ProgramHost,
    sandbox: LeasedSandbox,
    place: DesktopPlace,
    signal: AbortSignal,
  ): Promise<Desktop> {
    // The driver writes nothing before the first request, unless python3 is another program.
    let take: (chunk: Buffer) => void = () => {};
    const { sessionId, env, workingDir, width, height, dpi, record } = place;
    const directory = `/tmp/berth-vm-${randomBytes(8).toString("hex")}`;
    const program = await Program.start(
      host,
      sandbox,
      {
        sessionId,
        name: "desktop",
        argv: driverArgv(directory),
        env,
        workingDir,
        closeMs: record === undefined ? CLOSE_MS : RECORDED_CLOSE_MS,
        output: (chunk) => take(chunk),
        removal: { script: REMOVE_DESKTOP, path: directory },
      },
      signal,
    );
    const desktop = new Desktop(program, sandbox.owner, host.memory, {
      size: { width, height },
      isRecorded: record !== undefined,
    });
    take = (chunk) => desktop.#take(chunk);
    try {
      await program.write(DRIVER_SOURCE);
      await desktop.#boot({ width, height, dpi, record }, signal);
      return desktop;
    } catch (error) {
      await program.close(false);
      throw error;
    }
  }

  get alive(): boolean {
    return this.#program.alive && this.#broken === undefined;
  }

  /** Makes a desktop of the warm pool serve a session. */
  serve({ sessionId, sandbox }: Pick<SessionHost, "sessionId" | "sandbox">): void {
    this.#program.sessionId = sessionId;
    this.#owner = sandbox.owner;
  }

  view(readOnly: boolean): ViewCommand {
    if (this.#server === undefined) throw startFailed("failed", "it has no X server");
    return viewOf(this.#server, this.#size, readOnly);
  }

  cleanup(sandboxEnds: boolean): Promise<void> {
    return this.#program.close(sandboxEnds);
  }

  /** Ends a recorded desktop: at EOF on stdin the driver completes the recording. */
  async finish(): Promise<void> {
    if (this.isRecorded) await this.#program.close(false);
  }

  /** Why its recording ended early, as far as is known. Undefined while it continues. */
  get recordingStopped(): string | undefined {
    return this.#recordingStopped;
  }

  /** Adds an ended call to the recording. The driver takes the picture soon, at the latest before the next request. */
  note(call: RecordedCall): void {
    this.#send({ note: call });
  }

  /**
   * Resizes the screen in place. Returns false if that is not possible: up to 3840 × 2160 it is, or up to the size at
   * the start if that was larger.
   */
  async resize(size: ScreenSize, bounds: Bounds): Promise<boolean> {
    const { data } = await this.request("resize", { width: size.width, height: size.height }, bounds);
    const { resized } = z.object({ resized: z.boolean() }).parse(data);
    if (resized) this.#size = { width: size.width, height: size.height };
    return resized;
  }

  /**
   * Runs an operation of the driver.
   * @throws {@link DesktopFailure}; `INVALID_ARGUMENT`, `SESSION_LOST`, and the reason of the bound that ended it.
   */
  async request(
    operation: string,
    params: Readonly<Record<string, unknown>>,
    bounds: Bounds,
  ): Promise<DriverAnswer> {
    try {
      return await this.#request(operation, params, bounds);
    } catch (error) {
      if (error instanceof DriverError) throw new DesktopFailure(error.message);
      throw error;
    }
  }

  async #request(
    operation: string,
    params: Readonly<Record<string, unknown>>,
    { signal, timeout }: Bounds,
  ): Promise<DriverAnswer> {
    const stop = AbortSignal.any([signal, timeout]);
    throwIfAborted(stop);
    const id = ++this.#lastId;
    const { promise: settled, resolve: settle } = Promise.withResolvers<Answered>();
    this.#pending = { id, maxPayloadBytes: this.#maxPayloadBytes(operation), settle };
    if (this.#hasEnded) this.#settle(this.#loss());
    this.#send({ id, op: operation, ...params });
    try {
      const { answer, payload } = await untilAborted(settled, stop);
      // Safe, because FrameReader has parsed it as JSON.
      if ("data" in answer) return { data: answer.data as Json, payload };
      const { kind, message, field = "" } = answer.error;
      if (kind === "invalid") throw invalidArgument(`params.${field}`, `${message}.`);
      throw new DriverError(kind, message);
    } catch (error) {
      if (stop.aborted) await this.#cancel(id, settled);
      if (signal.aborted) throw abortError(signal);
      throw error;
    } finally {
      this.#pending = undefined;
    }
  }

  /**
   * Cancels a request: the driver releases the keys and buttons that it pressed. If it does not answer, it is ended.
   */
  async #cancel(id: number, settled: Promise<unknown>): Promise<void> {
    this.#send({ cancel: id });
    let answered = false;
    const end = settled.then(
      () => {
        answered = true;
      },
      () => {},
    );
    await within(end, CANCEL_MS);
    if (!answered) await this.#program.close(false);
  }

  /**
   * How much binary data an operation may answer with. Programs of the sandbox can stand in for the driver, so no more
   * than that is ever kept or handled.
   */
  #maxPayloadBytes(operation: string): number {
    if (operation === "screenshot") return this.#size.width * this.#size.height * PIXEL_BYTES;
    return operation === "clipboard" ? CLIPBOARD_ANSWER_BYTES : 0;
  }

  #send(message: object): void {
    this.#program.write(Buffer.from(`${JSON.stringify(message)}\n`));
  }

  #take(chunk: Buffer): void {
    if (this.#broken !== undefined) return;
    try {
      // Otherwise stray bytes would accumulate until the next request.
      if (this.#pending === undefined) throw new BadFrame("it answers nothing");
      for (const frame of this.#reader.push(chunk, this.#pending.maxPayloadBytes)) this.#takeFrame(frame);
    } catch (error) {
      if (!(error instanceof BadFrame)) throw error;
      this.#break(error.message);
    }
  }

  #break(why: string): void {
    this.#broken ??= why;
    this.#reader.clear();
    this.#program.close(false);
  }

  #takeFrame({ header, payload }: Frame): void {
    const parsed = answerSchema.safeParse(header);
    if (!parsed.success) throw new BadFrame("a frame is not an answer");
    if (parsed.data.id !== this.#pending?.id) throw new BadFrame("a frame answers nothing");
    this.#recordingStopped ??= parsed.data.stopped;
    // Copy it: a caller may keep it, and a view would keep the whole chunk.
    this.#settle({ answer: parsed.data, payload: Buffer.from(payload) });
  }

  #ended(): void {
    this.#hasEnded = true;
    this.#reader.clear();
    if (this.#pending !== undefined) this.#settle(this.#loss());
  }

  #settle(answered: Answered | Promise<never>): void {
    this.#pending?.settle(answered);
    this.#pending = undefined;
  }

  async #loss(): Promise<never> {
    throw this.#brokenError() ?? (await this.#program.failure());
  }

  #brokenError(): BerthError | undefined {
    if (this.#broken === undefined) return undefined;
    const why = `something else wrote to its connection (${this.#broken})`;
    return backendLost(this.#program.sessionId, "desktop", why, "PROTOCOL");
  }

  async #boot(params: ScreenSize & Pick<DesktopPlace, "dpi" | "record">, signal: AbortSignal): Promise<void> {
    const timeout = AbortSignal.timeout(START_TIMEOUT_MS);
    try {
      const { data } = await this.#request("start", { ...params }, { signal, timeout });
      this.#server = serverSchema.parse(data);
    } catch (error) {
      if (signal.aborted) throw abortError(signal);
      if (error instanceof DriverError) throw startFailed(error.kind, error.message);
      if (this.#program.exitCode === NOT_FOUND) throw startFailed("missing", "python3");
      if (error instanceof BerthError && !hasReason(error, "SESSION_LOST")) throw error;
      throw startFailed("failed", await this.#whyNotStarted(timeout.aborted));
    }
  }

  async #whyNotStarted(isLate: boolean): Promise<string> {
    if (isLate) {
      const { said } = this.#program;
      return said === "" ? `it did not answer within ${START_TIMEOUT_MS / 1000} s` : said.slice(-1_000);
    }
    if (this.#broken !== undefined) return `something else wrote to its connection (${this.#broken})`;
    if (this.#program.alive) return "something else answered in its place";
    return (await this.#program.whyEnded()).why;
  }
}

/** An error in the driver's answer. */
class DriverError extends Error {
  readonly kind: string;

  constructor(kind: string, message: string) {
    super(message);
    this.kind = kind;
  }
}

function startFailed(kind: string, what: string): BerthError {
  if (kind !== "missing") {
    return new BerthError("SESSION_START_FAILED", `The desktop did not start: ${what}`, { metadata: {} });
  }
  if (what === "ffmpeg") {
    return new BerthError(
      "SESSION_START_FAILED",
      "The sandbox has no ffmpeg, which records the desktop. Use the image berth/desktop, install ffmpeg, or leave out config.record.",
      { metadata: { missing: what } },
    );
  }
  return new BerthError(
    "SESSION_START_FAILED",
    `The sandbox has no ${what}, which a desktop needs. Use the image berth/desktop, or install python3, xvfb, libx11-6, libxtst6, libxext6 and libxrandr2.`,
    { metadata: { missing: what } },
  );
}
