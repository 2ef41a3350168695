import type { DescMethod } from "@bufbuild/protobuf";
import { base64Decode } from "@bufbuild/protobuf/wire";
import { createContextValues } from "@connectrpc/connect";
import { encodeEnvelope } from "@connectrpc/connect/protocol";
import { compressionGzip, universalResponseToNodeResponse } from "@connectrpc/connect-node";
import { ByteQueue } from "../base/byte-queue.ts";
import { invalidArgument } from "../base/errors.ts";
import type { MemoryBudget } from "../base/memory-budget.ts";
import type { TurnShare } from "../base/turn-share.ts";
import { type Call, DEADLINE_HEADERS, setCall } from "./call.ts";
import type { Decompressor } from "./decompressor.ts";
import { compressedWithoutEncoding, type ErrorConverter, messageTooLarge } from "./error-conversion.ts";
import { sendError } from "./error-response.ts";
import type { FairQueue } from "./fair-queue.ts";
import { COMPRESSED, PREFIX_BYTES, requestTurns } from "./framing.ts";
import { withPlainMessage } from "./grpc-response.ts";
import {
  contentTypeOf,
  type HttpRequest,
  type HttpResponse,
  headersOf,
  queryBytes,
  queryOf,
  requestEnd,
  urlOf,
} from "./http-message.ts";
import {
  asConnectStream,
  assertEnveloped,
  enveloped,
  isUnenveloped,
  toJsonLines,
  wantsJsonLines,
} from "./json-lines.ts";
import type { ReceiveBudget } from "./limits.ts";
import { check, IGNORE_UNKNOWN_HEADER, type MessageFormat } from "./message-check.ts";
import { RequestBytes } from "./request-bytes.ts";
import type { Route } from "./routes.ts";
import { countUnsent } from "./unsent-answers.ts";

interface LibraryOptions {
  readonly errors: ErrorConverter;
  readonly receiving: ReceiveBudget;
  /** Limits what responses have unsent. */
  readonly sending: MemoryBudget;
  readonly decompressor: Decompressor;
  /** Undefined: there is only one tenant. */
  readonly queue: FairQueue | undefined;
  /** The share of the event loop for all response streams together. */
  readonly streams: TurnShare;
}

/** Serves a call of any kind in any protocol with the Connect library. Never rejects. */
export async function serveByLibrary(
  route: Route,
  call: Call,
  request: HttpRequest,
  response: HttpResponse,
  options: LibraryOptions,
): Promise<void> {
  const { errors } = options;
  const { format, jsonLines, ...sent } = libraryRequest(route, call, request, options);
  const contextValues = createContextValues();
  setCall(contextValues, call);
  // The result may differ on the next call, and is only for this caller.
  if (request.method === "GET") response.setHeader("cache-control", "no-store");
  // The library waits for "drain" before it continues a stream. Wake it when the call is over, in case the reader has
  // stopped.
  call.signal.addEventListener("abort", () => response.emit("drain"), { once: true });
  try {
    const answer = await route.handler({ ...sent, signal: call.signal, contextValues });
    // A client that sent plain JSON to a stream cannot read envelopes either.
    const plain = jsonLines || (call.protocol === "connect" && isUnenveloped(call.failure?.cause));
    const { body, trailer, ...head } = plain ? await toJsonLines(answer) : answer;
    if (!isReadable(format)) head.header?.set(format.acceptHeader, ACCEPTED_ENCODING);
    const universal = {
      ...head,
      body: body && responseBody(route, call, request, response, body, options),
      // Complete only after the body.
      get trailer() {
        return trailer && withPlainMessage(trailer);
      },
    };
    await universalResponseToNodeResponse(universal, response);
  } catch (thrown) {
    const error = errors.fromRequest(call, thrown, route.readMaxBytes);
    const isGone = "stream" in response ? response.stream.destroyed : response.destroyed;
    // The client has a part of the response, or is gone.
    if (response.headersSent || isGone) response.destroy();
    else await sendError(request, response, call.protocol, error);
  }
}

/** Converts a request to the library's type. */
function libraryRequest(
  route: Route,
  call: Call,
  request: HttpRequest,
  { errors, receiving, decompressor, queue }: LibraryOptions,
) {
  const header = headersOf(request);
  header.set("content-type", contentTypeOf(request));
  // The call enforces its deadline itself. The library uses a timer of 1 ms for deadlines that it considers too long.
  header.delete(DEADLINE_HEADERS[call.protocol]);
  // A GET is served like a POST of its message.
  const get = request.method === "GET" ? getMessage(request) : undefined;
  if (get !== undefined) {
    for (const name of ["content-encoding", "content-length"]) header.delete(name);
    for (const [name, value] of Object.entries(get.header)) header.set(name, value);
  }
  // The library compares them as they are, but their case means nothing (RFC 9110, 8.4.1).
  for (const name of ["content-encoding", "connect-content-encoding", "grpc-encoding"]) {
    const encoding = header.get(name);
    if (encoding !== null) header.set(name, encoding.toLowerCase());
  }
  const format = requestFormat(route.method, header, route.readMaxBytes);
  // It is decompressed before the library sees it.
  if (!format.framed && isReadable(format)) {
    header.delete("content-encoding");
    if (format.encoding !== null) header.delete("content-length");
  }
  const jsonLines = wantsJsonLines(route, request);
  if (jsonLines) asConnectStream(header);
  const bytes = get
    ? one(get.bytes)
    : new RequestBytes(call, request, { maxBytes: route.readMaxBytes, receiving, queue });
  const messages = requestBody(route, call, bytes, { format, errors, decompressor });
  return {
    httpVersion: request.httpVersion,
    method: "POST",
    url: urlOf(request),
    header,
    body: jsonLines ? enveloped(messages) : messages,
    format,
    jsonLines,
  };
}

/** The body of a request until its call is over. Fails with converted errors. */
async function* requestBody(
  route: Route,
  call: Call,
  bytes: AsyncIterable<Uint8Array>,
  {
    format,
    errors,
    decompressor,
  }: Pick<LibraryOptions, "errors" | "decompressor"> & { readonly format: RequestFormat },
): AsyncGenerator<Uint8Array> {
  try {
    const decompress = async (message: Uint8Array) => {
      const plain = await decompressor.gunzip(message, format.maxBytes, call.signal);
      if (bytes instanceof RequestBytes) bytes.decompressed(plain.length);
      return plain;
    };
    yield* isReadable(format) ? checkedMessages(bytes, format, decompress) : bytes;
  } catch (thrown) {
    throw errors.fromRequest(call, thrown, route.readMaxBytes);
  }
}

async function* one(bytes: () => Uint8Array): AsyncGenerator<Uint8Array> {
  yield bytes();
}

async function* responseBody(
  { method }: Route,
  call: Call,
  request: HttpRequest,
  response: HttpResponse,
  body: AsyncIterable<Uint8Array>,
  { errors, sending, queue, streams }: LibraryOptions,
): AsyncGenerator<Uint8Array> {
  const isUnary = method.methodKind === "unary";
  for await (const bytes of body) {
    try {
      const turn = (isUnary ? queue?.answer(call) : queue?.again(call)) ?? streams.enter();
      if (turn) await turn;
      queue?.rest(call);
      // A stream waits for its reader after each message.
      if (isUnary) countUnsent(sending, call, bytes.length);
    } catch (error) {
      // The library would take it for a failed write.
      throw errors.fromHandler(call, error, call.signal);
    }
    yield bytes;
  }
  const isStream = "stream" in response && call.streamsRequests;
  if (call.protocol === "connect" && !isStream) await requestEnd(request, response);
}

/** The message of a read by GET. */
interface GetMessage {
  /** The headers that a POST of the same message would have. */
  readonly header: Readonly<Record<string, string>>;
  /** @throws BerthError `INVALID_ARGUMENT` if it is not base64 */
  readonly bytes: () => Uint8Array;
}

/**
 * Reads the query of a GET as specified by Connect: `encoding` (`json` or `proto`), `message`, `base64=1` and
 * `compression`.
 *
 * @returns undefined without a known encoding
 */
export function getMessage(request: HttpRequest): GetMessage | undefined {
  const query = queryOf(request);
  const encoding = query.get("encoding");
  if (encoding !== "json" && encoding !== "proto") return undefined;
  const compression = query.get("compression");
  return {
    header: {
      "content-type": `application/${encoding}`,
      ...(compression !== null && { "content-encoding": compression }),
    },
    bytes: () =>
      query.get("base64") === "1" ? fromBase64(query.get("message") ?? "") : queryBytes(request, "message"),
  };
}

function fromBase64(text: string): Uint8Array {
  try {
    return base64Decode(text);
  } catch {
    throw invalidArgument("message", "is not base64, which base64=1 says it is");
  }
}

/** The format of a request's messages. */
interface RequestFormat extends MessageFormat {
  /** Whether messages have a prefix. */
  readonly framed: boolean;
  /** The compression of messages that are marked as compressed, or of the only message. Null: none. */
  readonly encoding: string | null;
  /** The response header that lists the encodings that the server accepts. */
  readonly acceptHeader: string;
  readonly maxBytes: number;
}

/** Determines the format of a request's messages from its headers. */
export function requestFormat(method: DescMethod, header: Headers, maxBytes: number): RequestFormat {
  const type = header.get("content-type") ?? "";
  const streaming = /^application\/connect\+/i.test(type);
  const framed = streaming || /^application\/grpc/i.test(type);
  const [encodingHeader, acceptHeader] = streaming
    ? ["connect-content-encoding", "connect-accept-encoding"]
    : framed
      ? ["grpc-encoding", "grpc-accept-encoding"]
      : ["content-encoding", "accept-encoding"];
  const encoding = header.get(encodingHeader);
  return {
    method,
    json: /[/+]json\b/i.test(type),
    ignoreUnknown: header.get(IGNORE_UNKNOWN_HEADER)?.toLowerCase() === "true",
    framed,
    encoding: encoding === "identity" ? null : encoding,
    acceptHeader,
    maxBytes,
  };
}

type Decompress = (bytes: Uint8Array) => Promise<Uint8Array>;

/**
 * Checks each message of a request before the library parses it. Yields the messages that may be parsed, uncompressed.
 * The library reports everything else that is wrong with a request.
 * @throws BerthError `MESSAGE_TOO_LARGE`, `INVALID_ARGUMENT` for unknown fields, `INTERNAL` for a compressed message in
 *   a request without an encoding; what `decompress` throws
 */
export async function* checkedMessages(
  body: AsyncIterable<Uint8Array>,
  format: RequestFormat,
  decompress: Decompress,
): AsyncGenerator<Uint8Array> {
  if (format.framed) return yield* checkedFrames(body, format, decompress);
  const message = await readAll(body, format.maxBytes);
  yield format.encoding === null
    ? await checked(message, format)
    : await checked(await decompress(message), format);
}

/** The encoding that the server accepts. */
const ACCEPTED_ENCODING = compressionGzip.name;

/** Whether {@link checkedMessages} can read this encoding. The library refuses any other before it reads. */
function isReadable({ encoding }: RequestFormat): boolean {
  return encoding === null || encoding === ACCEPTED_ENCODING;
}

async function* checkedFrames(
  body: AsyncIterable<Uint8Array>,
  format: RequestFormat,
  decompress: Decompress,
): AsyncGenerator<Uint8Array> {
  const pending = new ByteQueue();
  for await (const chunk of body) {
    pending.push(chunk);
    for (;;) {
      const turn = requestTurns.enter();
      if (turn) await turn;
      if (format.json) assertEnveloped(format.method, pending.peek(1)?.[0]);
      const prefix = pending.peek(PREFIX_BYTES);
      if (prefix === undefined) break;
      const length = prefix.readUInt32BE(1);
      // The library refuses it because of its prefix.
      if (length > format.maxBytes) return yield pending.take(PREFIX_BYTES);
      if (pending.size < PREFIX_BYTES + length) break;
      const frame = pending.take(PREFIX_BYTES + length);
      const flags = frame[0] ?? 0;
      const message = frame.subarray(PREFIX_BYTES);
      // Any other flag marks something that is not a message.
      if ((flags & ~COMPRESSED) !== 0) yield frame;
      else if (flags === 0) {
        await check(message, format);
        yield frame;
      } else {
        if (format.encoding === null) throw compressedWithoutEncoding();
        yield encodeEnvelope(0, await checked(await decompress(message), format));
      }
    }
  }
  // An incomplete message.
  if (pending.size > 0) yield pending.take(pending.size);
}

async function checked(message: Uint8Array, format: RequestFormat): Promise<Uint8Array> {
  await check(message, format);
  return message;
}

async function readAll(body: AsyncIterable<Uint8Array>, maxBytes: number): Promise<Buffer> {
  const pending = new ByteQueue();
  for await (const chunk of body) {
    pending.push(chunk);
    if (pending.size > maxBytes) throw messageTooLarge(maxBytes);
  }
  return pending.take(pending.size);
}
