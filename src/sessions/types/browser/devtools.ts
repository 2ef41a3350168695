import type { z } from "zod";
import { untilAborted } from "../../../base/async.ts";
import { hasFewValues } from "../../../base/json.ts";
import { parseItems } from "./json-items.ts";
import { MessageStream } from "./message-stream.ts";

/**
 * Larger messages are accepted only if their one long string is wanted: see {@link DevTools.fetch} and {@link
 * DevTools.list}.
 */
const MAX_PARSED_BYTES = 4 * 1024 * 1024;
/** More than any answer that those ask for: a 4K screenshot has a few MiB in base64. */
const MAX_MESSAGE_BYTES = 32 * 1024 * 1024;
/** Keeps the time to parse one below about 50 ms. */
const MAX_VALUES = 400_000;
/** How much may wait for a browser that does not read its pipe. */
const MAX_UNWRITTEN_BYTES = 16 * 1024 * 1024;
const MAX_PENDING = 5_000;
/** `{"id":123,` or `{"method":"Page.frameNavigated",` */
const HEAD = /^\{"(?:id":(\d{1,9})|method":"([A-Za-z.]{1,60})")[,}]/;
const HEAD_BYTES = 80;
const DATA_START = Buffer.from('"data":"');
const QUOTE = 0x22;
const TOO_LARGE = "the answer is too large";
const UNKNOWN_FORM = "the browser gave an answer of another form";

/** The browser refused a request, or sent an answer that cannot be used. */
export class DevToolsError extends Error {
  override readonly name = "DevToolsError";
  /** Whether the answer exceeded the limit. */
  readonly tooLarge: boolean;

  constructor(method: string, problem: string, tooLarge = false) {
    super(`${method}: ${problem.slice(0, 500)}`);
    this.tooLarge = tooLarge;
  }
}

/** A request to a browser, or to a target such as a page. */
export interface DevToolsRequest<S extends z.ZodType> {
  readonly method: string;
  readonly params?: object | undefined;
  /** The DevTools session of the target. Undefined: the browser itself. */
  readonly session?: string | undefined;
  /** The schema of the answer. */
  readonly answer: S;
}

interface Pending {
  readonly method: string;
  /** The expected start of an answer that is taken as bytes. Undefined: the answer is parsed. */
  readonly start: Buffer | undefined;
  resolve(answer: unknown): void;
  reject(error: unknown): void;
}

/** What handles the events of one method. Must not throw. */
interface Handler {
  readonly handle: (params: unknown, session: string | undefined) => void;
  readonly tooLarge: () => void;
}

interface Wire {
  /** Resolves when more may be written. */
  write(data: Buffer): Promise<void>;
  pause(): void;
  resume(): void;
  /** Receives the memory that an unfinished message takes, whenever that changes. */
  held(bytes: number): void;
}

/**
 * The DevTools protocol, over the browser's pipe. Nothing that the browser sends is trusted: a page may have taken it
 * over, and anything in the sandbox may write to the pipe. So a message is checked for size before it is parsed, and
 * parsed with the schema of the expected answer. Events without a handler are dropped by name, unparsed.
 */
export class DevTools {
  readonly #wire: Wire;
  readonly #stream: MessageStream;
  readonly #pending = new Map<number, Pending>();
  readonly #handlers = new Map<string, Handler>();
  readonly #onBroken: (problem: string) => void;
  #lastId = 0;
  /** How many pending requests want a large answer. */
  #wantLarge = 0;
  #unwritten = 0;
  #closedBy: Error | undefined;

  /** @param onBroken called once, when the browser breaks the protocol and the connection is unusable. */
  constructor(wire: Wire, onBroken: (problem: string) => void) {
    this.#wire = wire;
    this.#onBroken = onBroken;
    this.#stream = new MessageStream({
      maxBytes: () => (this.#wantLarge > 0 ? MAX_MESSAGE_BYTES : MAX_PARSED_BYTES),
      message: (bytes, whole) => this.#message(bytes, whole),
      pause: () => wire.pause(),
      resume: () => wire.resume(),
      held: (bytes) => wire.held(bytes),
    });
  }

  /** Drops an unfinished message. If it is the answer to a request, that fails once the rest has arrived. */
  dropUnfinished(): void {
    this.#stream.cut();
  }

  /** Takes bytes that the browser wrote. */
  push(chunk: Buffer): void {
    this.#stream.push(chunk);
  }

  /**
   * Handles the events of one method. Events that do not match the schema are dropped.
   * @param tooLarge called in place of `handle` for an event that is too large to be parsed, or is no JSON
   */
  on<S extends z.ZodType>(
    method: string,
    schema: S,
    handle: (params: z.output<S>, session: string | undefined) => void,
    tooLarge: () => void = () => {},
  ): void {
    const parseAndHandle = (params: unknown, session: string | undefined): void => {
      const parsed = schema.safeParse(params);
      if (parsed.success) handle(parsed.data, session);
    };
    this.#handlers.set(method, { handle: parseAndHandle, tooLarge });
  }

  /** Removes the handler of a method. */
  off(method: string): void {
    this.#handlers.delete(method);
  }

  /** Sends a request. @throws `DevToolsError`, the signal's reason, and the error given to {@link close}. */
  async send<S extends z.ZodType>(request: DevToolsRequest<S>, signal: AbortSignal): Promise<z.output<S>> {
    const answer = await this.#request(request, undefined, signal);
    try {
      return request.answer.parse(answer);
    } catch {
      // Parsing an answer that is nested too deep throws something other than a ZodError.
      throw new DevToolsError(request.method, UNKNOWN_FORM);
    }
  }

  /** Sends a request whose answer is one base64 value `data`, which may be large. @throws like {@link send}. */
  async fetch(request: Omit<DevToolsRequest<z.ZodType>, "answer">, signal: AbortSignal): Promise<Buffer> {
    const value = await this.#rest(request, DATA_START, signal);
    const end = value.indexOf(QUOTE);
    if (end === -1) throw new DevToolsError(request.method, UNKNOWN_FORM);
    return Buffer.from(value.toString("latin1", 0, end), "base64");
  }

  /**
   * Sends a request whose answer is one list of objects, which may be long. @param room for this list and others. Its
   * bytes are taken. @throws like {@link send}; `DevToolsError` if there is no room left.
   */
  async list<S extends z.ZodType>(
    request: Omit<DevToolsRequest<z.ZodType>, "answer">,
    name: string,
    item: S,
    room: { bytes: number },
    signal: AbortSignal,
  ): Promise<z.output<S>[]> {
    const items: z.output<S>[] = [];
    const list = await this.#rest(request, Buffer.from(`"${name}":[`), signal);
    room.bytes -= list.length;
    if (room.bytes < 0) throw new DevToolsError(request.method, TOO_LARGE, true);
    const take = (given: unknown): void => {
      signal.throwIfAborted();
      items.push(item.parse(given));
    };
    const isWhole = await parseItems(list, take).catch(() => {
      signal.throwIfAborted();
      throw new DevToolsError(request.method, UNKNOWN_FORM);
    });
    if (isWhole) return items;
    throw new DevToolsError(request.method, TOO_LARGE, true);
  }

  /** Sends a request and ignores the answer. */
  notify(method: string, params?: object, session?: string): void {
    this.#write(++this.#lastId, { method, params, session });
  }

  /** Fails all pending and future requests. */
  close(error: Error): void {
    if (this.#closedBy !== undefined) return;
    this.#closedBy = error;
    this.#stream.close();
    for (const { reject } of this.#pending.values()) reject(error);
    this.#pending.clear();
  }

  /** Sends a request. Returns the bytes of the answer after the expected start. */
  async #rest(
    request: Omit<DevToolsRequest<z.ZodType>, "answer">,
    start: Buffer,
    signal: AbortSignal,
  ): Promise<Buffer> {
    this.#wantLarge++;
    const answered = this.#request(request, start, signal).finally(() => {
      this.#wantLarge--;
      this.#stream.shrink();
    });
    const message = (await answered) as Buffer;
    return message.subarray(message.indexOf(start) + start.length);
  }

  async #request(
    request: Omit<DevToolsRequest<z.ZodType>, "answer">,
    start: Buffer | undefined,
    signal: AbortSignal,
  ): Promise<unknown> {
    if (this.#closedBy !== undefined) throw this.#closedBy;
    signal.throwIfAborted();
    const id = ++this.#lastId;
    const { promise, resolve, reject } = Promise.withResolvers<unknown>();
    promise.catch(() => {});
    this.#pending.set(id, { method: request.method, start, resolve, reject });
    if (this.#pending.size > MAX_PENDING) this.#break("it left too many requests without an answer");
    this.#write(id, request);
    try {
      return await untilAborted(promise, signal);
    } finally {
      this.#pending.delete(id);
    }
  }

  #write(
    id: number,
    {
      method,
      params,
      session,
    }: { method: string; params?: object | undefined; session?: string | undefined },
  ): void {
    if (this.#closedBy !== undefined) return;
    const data = Buffer.from(`${JSON.stringify({ id, method, params, sessionId: session })}\0`);
    this.#unwritten += data.length;
    if (this.#unwritten > MAX_UNWRITTEN_BYTES) {
      this.#break("it does not read what it is sent");
      return;
    }
    void this.#wire.write(data).then(() => {
      this.#unwritten -= data.length;
    });
  }

  #message(bytes: Buffer, whole: boolean): void {
    const [, id, method] = HEAD.exec(bytes.toString("latin1", 0, HEAD_BYTES)) ?? [];
    if (id !== undefined) this.#answer(Number(id), bytes, whole);
    else if (method !== undefined) this.#event(method, bytes, whole);
  }

  #answer(id: number, bytes: Buffer, whole: boolean): void {
    const pending = this.#pending.get(id);
    if (pending === undefined) return;
    const { method, start } = pending;
    const isRaw = start !== undefined && bytes.subarray(0, HEAD_BYTES).includes(start);
    const message = whole && !isRaw ? parse(bytes) : undefined;
    if (whole && isRaw) pending.resolve(bytes);
    else if (message === undefined) pending.reject(new DevToolsError(method, TOO_LARGE, true));
    else if (message.error === undefined && start === undefined) pending.resolve(message.result);
    else pending.reject(new DevToolsError(method, problemOf(message.error)));
  }

  #event(method: string, bytes: Buffer, whole: boolean): void {
    const handler = this.#handlers.get(method);
    if (handler === undefined) return;
    const message = whole ? parse(bytes) : undefined;
    if (message === undefined) handler.tooLarge();
    else
      handler.handle(message.params, typeof message.sessionId === "string" ? message.sessionId : undefined);
  }

  #break(problem: string): void {
    this.close(new DevToolsError("pipe", problem));
    this.#onBroken(problem);
  }
}

/** Undefined if it is too large to parse, or not an object. */
function parse(bytes: Buffer): Record<string, unknown> | undefined {
  if (bytes.length > MAX_PARSED_BYTES || !hasFewValues(bytes, MAX_VALUES)) return undefined;
  try {
    const parsed: unknown = JSON.parse(bytes.toString());
    return typeof parsed === "object" && parsed !== null ? (parsed as Record<string, unknown>) : undefined;
  } catch {
    return undefined;
  }
}

function problemOf(error: unknown): string {
  const message = typeof error === "object" && error !== null && "message" in error ? error.message : "";
  return typeof message === "string" && message !== "" ? message : "the browser refused it";
}
