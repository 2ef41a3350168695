import { createContextValues } from "@connectrpc/connect";
import { universalResponseToNodeResponse } from "@connectrpc/connect-node";
import type { TurnShare } from "../base/event-loop.ts";
import { type Call, DEADLINE_HEADERS, setCall } from "./call.ts";
import type { Decompressor } from "./decompressor.ts";
import type { ErrorConverter } from "./error-conversion.ts";
import type { FairQueue } from "./fair-queue.ts";
import { getMessage } from "./get-request.ts";
import { withPlainMessage } from "./grpc-response.ts";
import {
  contentTypeOf,
  type HttpRequest,
  type HttpResponse,
  headersOf,
  requestEnd,
  urlOf,
} from "./http-message.ts";
import { asConnectStream, enveloped, toJsonLines, wantsJsonLines } from "./json-lines.ts";
import type { ReceiveBudget } from "./limits.ts";
import { RequestBytes } from "./request-bytes.ts";
import {
  ACCEPTED_ENCODING,
  checkedMessages,
  isReadable,
  isUnenveloped,
  type RequestFormat,
  requestFormat,
} from "./request-messages.ts";
import type { Route } from "./routes.ts";

interface LibraryOptions {
  readonly errors: ErrorConverter;
  readonly receiving: ReceiveBudget;
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
      body: body && responseBody(call, request, body, options),
      // Complete only after the body.
      get trailer() {
        return trailer && withPlainMessage(trailer);
      },
    };
    await universalResponseToNodeResponse(universal, response);
  } catch (thrown) {
    // The response could not be written, because the client is gone.
    errors.fromRequest(call, thrown, route.readMaxBytes);
    response.destroy();
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
    const decompress = (message: Uint8Array) => decompressor.gunzip(message, format.maxBytes, call.signal);
    yield* isReadable(format) ? checkedMessages(bytes, format, decompress) : bytes;
  } catch (thrown) {
    throw errors.fromRequest(call, thrown, route.readMaxBytes);
  }
}

async function* one(bytes: () => Uint8Array): AsyncGenerator<Uint8Array> {
  yield bytes();
}

async function* responseBody(
  call: Call,
  request: HttpRequest,
  body: AsyncIterable<Uint8Array>,
  { queue, streams }: Pick<LibraryOptions, "queue" | "streams">,
): AsyncGenerator<Uint8Array> {
  for await (const bytes of body) {
    const turn = queue?.again(call) ?? streams.enter();
    if (turn) await turn;
    yield bytes;
  }
  if (call.protocol === "connect" && !call.streamsRequests) await requestEnd(request);
}
