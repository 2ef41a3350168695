import { type CallOptions, type Client, createClient, type Transport } from "@connectrpc/connect";
import { BerthError, errorOf, isBroken, isGivenUp, isPassing } from "./errors.ts";
import { Pauses } from "./retry.ts";
import { piecesOf } from "./streams.ts";
import type { Source } from "./types.ts";
import { FileService } from "./v1/file_pb.js";
import { ProcessService } from "./v1/process_pb.js";
import { RunService } from "./v1/run_pb.js";
import { SandboxService } from "./v1/sandbox_pb.js";
import { SessionService } from "./v1/session_pb.js";
import { WorkspaceService } from "./v1/workspace_pb.js";

/** Options of every call. */
export interface CallSettings {
  /** Aborts the call, which throws the signal's reason. */
  readonly signal?: AbortSignal | undefined;
}

/** Options of a client on any platform. */
export interface ClientSettings {
  /** Sent with every call, as `authorization: Bearer`. */
  readonly token?: string | undefined;
  /** How long one unary call may take. Default: no limit. */
  readonly timeoutMs?: number | undefined;
  /** How long to retry calls that are safe to repeat while the service cannot be reached. Default 5000; 0: never. */
  readonly retryForMs?: number | undefined;
}

/** How a platform calls a service. */
export interface Link {
  /** As the user wrote it. */
  readonly address: string;
  readonly transport: Transport;
  /** Whether a call can send a stream, which browsers cannot. */
  readonly streamsRequests: boolean;
  /** Ends the connection. */
  close(): void;
}

/** A message of a call that sends a header and bytes. */
export interface UploadMessage<H> {
  readonly part:
    | { readonly case: "header"; readonly value: H }
    | { readonly case: "chunk"; readonly value: Uint8Array };
}

type Call<T> = (options: CallOptions) => Promise<T>;

/** Something that a client must end before its connection closes. */
export interface Releasable {
  end(): Promise<void>;
}

/** A timeout that is none. */
const NO_LIMIT = Number.POSITIVE_INFINITY;
/** 24.8 days. JavaScript's timers end a longer time at once. */
const LONGEST_TIMER_MS = 2 ** 31 - 1;

/** Makes calls: the generated clients, and what all calls have in common. */
export class Connection {
  readonly address: string;
  /** For generated clients of your own. */
  readonly transport: Transport;
  readonly streamsRequests: boolean;
  readonly retryForMs: number;
  readonly sandboxes: Client<typeof SandboxService>;
  readonly processes: Client<typeof ProcessService>;
  readonly files: Client<typeof FileService>;
  readonly sessions: Client<typeof SessionService>;
  readonly workspaces: Client<typeof WorkspaceService>;
  readonly runs: Client<typeof RunService>;
  readonly #link: Link;
  readonly #token: () => string | undefined;
  readonly #timeoutMs: number | undefined;
  readonly #open = new Set<Releasable>();
  readonly #later = new Set<Promise<unknown>>();
  #closing = false;
  #closed = false;

  constructor(
    link: Link,
    { timeoutMs, retryForMs = 5_000 }: ClientSettings,
    token: () => string | undefined,
  ) {
    this.#link = link;
    this.#token = token;
    this.#timeoutMs = timeoutMs;
    this.address = link.address;
    this.transport = link.transport;
    this.streamsRequests = link.streamsRequests;
    this.retryForMs = retryForMs;
    this.sandboxes = createClient(SandboxService, link.transport);
    this.processes = createClient(ProcessService, link.transport);
    this.files = createClient(FileService, link.transport);
    this.sessions = createClient(SessionService, link.transport);
    this.workspaces = createClient(WorkspaceService, link.transport);
    this.runs = createClient(RunService, link.transport);
  }

  /** Makes a call once. */
  async once<T>(call: Call<T>, signal?: AbortSignal, timeoutMs = this.#timeoutMs): Promise<T> {
    // A signal that depends on the caller's is not a listener of it: Node 20 warns of more than ten of those.
    const options = this.options(signal && AbortSignal.any([signal]), timeoutMs);
    try {
      return await call(options);
    } catch (error) {
      throw this.failureOf(error, options, signal);
    }
  }

  /** Makes a call that is safe to repeat, because it reads or has a request id, and retries it while the service cannot be reached. */
  async again<T>(
    call: Call<T>,
    signal?: AbortSignal,
    retryForMs = this.retryForMs,
    timeoutMs = this.#timeoutMs,
  ): Promise<T> {
    let pauses: Pauses | undefined;
    for (;;) {
      try {
        return await this.once(call, signal, timeoutMs);
      } catch (error) {
        if (!BerthError.is(error) || !isPassing(error) || this.#closed) throw error;
        pauses ??= new Pauses(retryForMs);
        await pauses.wait(error, signal);
      }
    }
  }

  /**
   * Makes a call that sends a header and a source, once; it may take any time. If the source throws, throws the same.
   * When the call is over, cancels a source that was not read to its end.
   */
  async upload<H, T>(
    header: H,
    source: Source,
    call: (messages: AsyncIterable<UploadMessage<H>>, options: CallOptions) => Promise<T>,
    signal?: AbortSignal,
  ): Promise<T> {
    const over = new AbortController();
    const pieces = piecesOf(source, over.signal);
    let failure: { readonly error: unknown } | undefined;
    async function* messages(): AsyncGenerator<UploadMessage<H>> {
      try {
        yield { part: { case: "header", value: header } };
        for (;;) {
          const next = await pieces.next().catch((error: unknown) => {
            failure = { error };
            throw error;
          });
          if (next.done) return;
          yield { part: { case: "chunk", value: next.value } };
        }
      } finally {
        await pieces.return(undefined);
      }
    }
    try {
      if (!this.streamsRequests) throw cannotStream();
      return await this.once((options) => call(messages(), options), signal, NO_LIMIT);
    } catch (error) {
      throw failure === undefined ? error : failure.error;
    } finally {
      over.abort();
      // Perhaps nothing was read. Not awaited: a source may take forever to end.
      pieces.return(undefined).catch(() => {});
    }
  }

  /** Makes a call that streams responses, once. Leaving the loop ends it. */
  async *stream<T>(
    call: (options: CallOptions) => AsyncIterable<T>,
    signal?: AbortSignal,
  ): AsyncGenerator<T> {
    const stop = new AbortController();
    const end = {
      end: async () => stop.abort(clientClosed()),
    };
    this.adopt(end);
    const either = signal ? AbortSignal.any([signal, stop.signal]) : stop.signal;
    // A generator that nobody resumes never reaches its finally.
    either.addEventListener("abort", () => this.release(end), { once: true });
    const options = this.options(either);
    try {
      yield* call(options);
    } catch (error) {
      throw this.failureOf(error, options, either);
    } finally {
      this.release(end);
      stop.abort();
    }
  }

  /**
   * Makes a call that reads and streams responses. Until the first response arrives, retries it while the service cannot
   * be reached. Leaving the loop ends it.
   */
  async *readStream<T>(
    call: (options: CallOptions) => AsyncIterable<T>,
    signal?: AbortSignal,
  ): AsyncGenerator<T> {
    let pauses: Pauses | undefined;
    let hasResponse = false;
    for (;;) {
      try {
        for await (const response of this.stream(call, signal)) {
          hasResponse = true;
          yield response;
        }
        return;
      } catch (error) {
        if (hasResponse || !this.mayContinue(error)) throw error;
        pauses ??= new Pauses(this.retryForMs);
        await pauses.wait(error, signal);
      }
    }
  }

  /** Makes a call that reads and streams bytes, as {@link readStream}. */
  async *chunks(
    call: (options: CallOptions) => AsyncIterable<{ readonly chunk: Uint8Array }>,
    signal?: AbortSignal,
  ): AsyncGenerator<Uint8Array> {
    for await (const { chunk } of this.readStream(call, signal)) yield chunk;
  }

  /** Whether a stream failed only because its connection broke, and may be made again. */
  mayContinue(error: unknown): error is BerthError {
    return !this.#closing && BerthError.is(error) && isBroken(error);
  }

  /** The options of a call. A streaming call is limited only by its signal. */
  options(signal?: AbortSignal, timeoutMs?: number): CallOptions {
    if (this.#closed) throw new Error("This client is closed. Connect again.");
    return {
      ...(signal && { signal }),
      ...(timeoutMs !== undefined && timeoutMs <= LONGEST_TIMER_MS && { timeoutMs }),
      headers: headersFor(this.#token()),
    };
  }

  /** What a call with these options throws if it fails: the reason it was aborted with, or a BerthError. */
  failureOf(error: unknown, { headers }: CallOptions, signal?: AbortSignal): unknown {
    const failure = errorOf(error, this.address, signal);
    if (BerthError.is(failure) && failure.code === "UNAUTHENTICATED") {
      failure.tokenReplaced = String(headers) !== String(headersFor(this.#token()));
    }
    return failure;
  }

  /** Registers what {@link close} must end. */
  adopt(resource: Releasable): void {
    this.#open.add(resource);
  }

  /** Removes what has ended. */
  release(resource: Releasable): void {
    this.#open.delete(resource);
  }

  /** Does work after an aborted call; {@link close} waits for it. */
  later(act: () => Promise<unknown>): void {
    const done: Promise<unknown> = act()
      .catch(() => {})
      .finally(() => this.#later.delete(done));
    this.#later.add(done);
  }

  /**
   * Makes a call that creates something and has a request id, with retries as {@link again}. What it makes is removed if
   * the caller gives the call up, its time runs out or the client is closed meanwhile; {@link close} waits for that.
   */
  async create<T>(
    call: Call<T>,
    remove: (made: T, options: CallOptions) => Promise<unknown>,
    signal?: AbortSignal,
    retryForMs?: number,
  ): Promise<T> {
    // What was never asked for need not be removed, and what close does not know of it would not remove.
    signal?.throwIfAborted();
    if (this.#closing) throw clientClosed();
    const stop = new AbortController();
    const either = signal ? AbortSignal.any([signal, stop.signal]) : stop.signal;
    const creating = this.again(call, either, retryForMs).catch((error: unknown) => {
      if (isGivenUp(error, either)) this.#undo(call, remove);
      throw error;
    });
    const end = {
      end: async () => {
        stop.abort(clientClosed());
        await creating.catch(() => {});
      },
    };
    this.adopt(end);
    try {
      return await creating;
    } finally {
      this.release(end);
    }
  }

  /**
   * Removes what a create has made that was given up: the request goes on because it has an id. The same request again
   * returns what was made. That may take longer than a call may.
   */
  #undo<T>(create: Call<T>, remove: (made: T, options: CallOptions) => Promise<unknown>): void {
    const again = <R>(call: Call<R>) => this.again(call, undefined, undefined, NO_LIMIT);
    this.later(async () => {
      const made = await again(create);
      await again((options) => remove(made, options));
    });
  }

  /** Whether {@link close} was called. */
  get closing(): boolean {
    return this.#closing;
  }

  /** Ends what is open, then the connection. Idempotent. */
  async close(): Promise<void> {
    this.#closing = true;
    await Promise.all([...this.#open].map((resource) => resource.end()));
    await Promise.all(this.#later);
    this.#closed = true;
    this.#link.close();
  }
}

/** The error for what only a call that sends a stream can do. */
export function cannotStream(): BerthError {
  return new BerthError(
    "A browser cannot stream a request. Upload from Node or Deno, or write the files one by one.",
    {
      code: "UNIMPLEMENTED",
      reason: "UNSUPPORTED",
    },
  );
}

/** The error of what the end of its client interrupts. */
export function clientClosed(): BerthError {
  return new BerthError("The client was closed.", { code: "CANCELLED" });
}

function headersFor(token: string | undefined): [string, string][] {
  return token ? [["authorization", `Bearer ${token}`]] : [];
}

/** An id for one request, which the service then carries out once. Works also if a page's origin is not secure. */
export function newRequestId(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** All pages of a list. */
export async function allPages<T>(
  page: (pageToken: string) => Promise<{ nextPageToken: string; items: T[] }>,
): Promise<T[]> {
  const found: T[] = [];
  for (let token = ""; ; ) {
    const { items, nextPageToken } = await page(token);
    // One by one: spreading a long list into push overflows the stack.
    for (const item of items) found.push(item);
    if (nextPageToken === "") return found;
    token = nextPageToken;
  }
}
