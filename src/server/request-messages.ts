import type { Message } from "@bufbuild/protobuf";
import { endStreamFlag } from "@connectrpc/connect/protocol-connect";
import { ByteQueue } from "../base/byte-queue.ts";
import { abortError, BerthError } from "../base/errors.ts";
import type { Call } from "./call.ts";
import { compressedWithoutEncoding, type ErrorConverter, messageTooLarge } from "./error-conversion.ts";
import { COMPRESSED, PREFIX_BYTES, parseMessage, requestTurns } from "./framing.ts";
import type { HttpRequest } from "./http-message.ts";
import { RequestBytes, type RequestBytesOptions, type RequestIterator } from "./request-bytes.ts";
import type { Route } from "./routes.ts";

/**
 * The messages of an uncompressed protobuf stream, read on demand. Their bytes fields are views of the received data.
 */
export class RequestMessages implements AsyncIterable<Message>, RequestIterator<Message> {
  readonly #route: Route;
  readonly #call: Call;
  readonly #errors: ErrorConverter;
  readonly #bytes: RequestBytes;
  readonly #messages: Messages;

  constructor(
    route: Route,
    call: Call,
    request: HttpRequest,
    { errors, ...options }: Omit<RequestBytesOptions, "maxBytes"> & { readonly errors: ErrorConverter },
  ) {
    this.#route = route;
    this.#call = call;
    this.#errors = errors;
    const { readMaxBytes: maxBytes } = route;
    this.#bytes = new RequestBytes(call, request, { ...options, maxBytes });
    this.#messages = new Messages(maxBytes, call.protocol === "connect" ? endStreamFlag : 0);
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  /**
   * @throws BerthError `MESSAGE_TOO_LARGE`, `INVALID_ARGUMENT`, `INTERNAL` for a compressed message in a request
   *   without an encoding; what ended the call
   */
  async next(): Promise<IteratorResult<Message, undefined>> {
    try {
      for (;;) {
        const turn = requestTurns.enter();
        if (turn) await turn;
        const frame = this.#messages.next();
        if (frame?.message) {
          return { done: false, value: parseMessage(this.#route.method.input, frame.message) };
        }
        if (frame) continue;
        const chunk = await this.#bytes.next();
        if (chunk.done) break;
        this.#messages.push(chunk.value);
      }
      this.#messages.end();
      return await this.return();
    } catch (thrown) {
      await this.return();
      if (this.#call.signal.aborted) throw abortError(this.#call.signal);
      // The handler gets the cause. Whatever it does with that, the caller gets the error recorded here.
      this.#errors.fromRequest(this.#call, thrown, this.#route.readMaxBytes);
      throw this.#call.failure?.cause;
    }
  }

  return(): Promise<IteratorReturnResult<undefined>> {
    return this.#bytes.return();
  }

  /** As {@link RequestBytes.trustEnd}. */
  trustEnd(): void {
    this.#bytes.trustEnd();
  }
}

/** Splits the received data into messages. */
class Messages {
  readonly #maxBytes: number;
  readonly #passedOver: number;
  readonly #pending = new ByteQueue();

  /** @param passedOver flags of frames that are not messages. */
  constructor(maxBytes: number, passedOver: number) {
    this.#maxBytes = maxBytes;
    this.#passedOver = passedOver;
  }

  push(chunk: Uint8Array): void {
    this.#pending.push(chunk);
  }

  /** The next frame if it has arrived completely, with its message if it has one. */
  next(): { readonly message: Uint8Array | undefined } | undefined {
    const pending = this.#pending;
    const prefix = pending.peek(PREFIX_BYTES);
    if (prefix === undefined) return undefined;
    const flags = prefix[0] ?? 0;
    const length = prefix.readUInt32BE(1);
    if (length > this.#maxBytes) throw messageTooLarge(this.#maxBytes);
    if (pending.size < PREFIX_BYTES + length) return undefined;
    const frame = pending.take(PREFIX_BYTES + length);
    if ((flags & COMPRESSED) !== 0) throw compressedWithoutEncoding();
    return { message: (flags & this.#passedOver) === 0 ? frame.subarray(PREFIX_BYTES) : undefined };
  }

  /** @throws BerthError `INVALID_ARGUMENT` if a message is incomplete */
  end(): void {
    if (this.#pending.size > 0) {
      throw new BerthError("INVALID_ARGUMENT", "The request message ends before its stated length.");
    }
  }
}
