import type { CallOptions } from "@connectrpc/connect";
import type { CallSettings, Connection } from "./connection.ts";
import { BerthError, isBroken } from "./errors.ts";
import { Pauses } from "./retry.ts";

/** How a {@link Subscription} gets its items. */
export interface Feed<R, T> extends CallSettings {
  /** Makes the call; gets the last item received. */
  readonly connect: (last: T | undefined, options: CallOptions) => AsyncIterable<R>;
  /** The item in a response, if there is one. */
  readonly convert: (answer: R) => T | undefined;
  /** Whether the service's first response says that it watches. */
  readonly announced: boolean;
  /** Whether it can reconnect without missing anything. */
  readonly resumes: boolean;
}

/**
 * A stream of items: iterate over it, and leave the loop to end it.
 *
 * If you start it, it watches from then on, until `end` or the end of the block:
 *
 *     await using changes = await sandbox.files.watch("/workspace").start();
 *     for await (const { type, path } of changes) console.log(type, path);
 */
export class Subscription<T> implements AsyncIterable<T>, AsyncDisposable {
  readonly #connection: Connection;
  readonly #feed: Feed<unknown, T>;
  #stream: { readonly answers: AsyncIterator<unknown>; readonly stop: AbortController } | undefined;
  #options: CallOptions = {};
  #last: T | undefined;
  #lost: Pauses | undefined;
  #held = false;
  #ended = false;

  constructor(connection: Connection, feed: Feed<unknown, T>) {
    this.#connection = connection;
    this.#feed = feed;
  }

  /** Watches from now on. */
  async start(): Promise<this> {
    this.#held = true;
    if (this.#feed.announced && this.#stream === undefined) await this.#next();
    return this;
  }

  /** The next item, as soon as there is one; undefined at the end. */
  async read(): Promise<T | undefined> {
    for (let answer = await this.#next(); answer !== undefined; answer = await this.#next()) {
      if (answer.item === undefined) continue;
      this.#last = answer.item;
      return answer.item;
    }
    return undefined;
  }

  /** Ends it. Idempotent. */
  async end(): Promise<void> {
    this.#ended = true;
    this.#disconnect();
    this.#connection.release(this);
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.end();
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<T, void, undefined> {
    try {
      for (let item = await this.read(); item !== undefined; item = await this.read()) yield item;
    } finally {
      if (!this.#held) await this.end();
    }
  }

  async #next(): Promise<{ readonly item: T | undefined } | undefined> {
    while (!this.#ended) {
      try {
        this.#feed.signal?.throwIfAborted();
        this.#stream ??= this.#connect();
        const { done, value } = await this.#stream.answers.next();
        this.#lost = undefined;
        if (!done) return { item: this.#feed.convert(value) };
        await this.end();
      } catch (cause) {
        this.#disconnect();
        if (this.#ended) return undefined;
        const error = this.#connection.failureOf(cause, this.#options, this.#feed.signal);
        await this.#recover(error);
      }
    }
    return undefined;
  }

  async #recover(error: unknown): Promise<void> {
    try {
      if (!this.#feed.resumes || !BerthError.is(error) || !isBroken(error)) throw error;
      this.#lost ??= new Pauses(this.#connection.retryForMs);
      await this.#lost.wait(error, this.#feed.signal);
    } catch (thrown) {
      await this.end();
      throw thrown;
    }
  }

  #connect() {
    this.#connection.adopt(this);
    const stop = new AbortController();
    const signal = this.#feed.signal ? AbortSignal.any([this.#feed.signal, stop.signal]) : stop.signal;
    this.#options = this.#connection.options(signal);
    const answers = this.#feed.connect(this.#last, this.#options)[Symbol.asyncIterator]();
    return { answers, stop };
  }

  #disconnect(): void {
    this.#stream?.stop.abort();
    this.#stream = undefined;
  }
}

/** Makes a {@link Subscription} from a call with typed responses. */
export function subscribe<R, T>(connection: Connection, feed: Feed<R, T>): Subscription<T> {
  // `convert` gets the responses that `connect` returned.
  return new Subscription(connection, feed as Feed<unknown, T>);
}
