import type { DescMessage, Message, MessageInitShape } from "@bufbuild/protobuf";
import { parseContentType } from "@connectrpc/connect/protocol-connect";
import { abortError } from "../base/errors.ts";
import type { MemoryBudget } from "../base/memory-budget.ts";
import type { TurnShare } from "../base/turn-share.ts";
import type { Admit } from "./admission.ts";
import type { Call } from "./call.ts";
import { CallContext } from "./call-context.ts";
import { ConnectStreamResponse, ConnectUnaryResponse, JsonLinesResponse } from "./connect-response.ts";
import type { DirectResponse } from "./direct-response.ts";
import type { ErrorConverter } from "./error-conversion.ts";
import type { FairQueue } from "./fair-queue.ts";
import {
  encodeMessage,
  encodingOf,
  frameBytes,
  parseMessage,
  readMessage,
  readPlainMessage,
} from "./framing.ts";
import { GrpcResponse } from "./grpc-response.ts";
import { contentTypeOf, type HttpRequest, type HttpResponse } from "./http-message.ts";
import { assertEnveloped, NEWLINE, wantsJsonLines } from "./json-lines.ts";
import { toJson } from "./json-text.ts";
import type { ReceiveAccount, ReceiveBudget } from "./limits.ts";
import { check, IGNORE_UNKNOWN_HEADER } from "./message-check.ts";
import { RequestMessages } from "./request-messages.ts";
import type { Route } from "./routes.ts";
import { countUnsent } from "./unsent-answers.ts";

export interface DirectOptions {
  readonly errors: ErrorConverter;
  readonly admit: Admit;
  readonly receiving: ReceiveBudget;
  /** Limits what responses have unsent. */
  readonly sending: MemoryBudget;
  /** Undefined: there is only one tenant. */
  readonly queue: FairQueue | undefined;
  /** The share of the event loop for all response streams together. */
  readonly streams: TurnShare;
}

/** How the messages of a call are read and written. */
interface Wire {
  /** Reads the request message. Rejects with errors about the request. */
  read(request: HttpRequest, account: ReceiveAccount): Promise<Message>;
  /** Encodes a response message, in pieces to send one after another. */
  encode(message: MessageInitShape<DescMessage>): readonly Uint8Array[];
  respond(request: HttpRequest, response: HttpResponse, context: CallContext): DirectResponse;
}

/**
 * How {@link serveDirectly} reads and writes a request. It serves uncompressed requests in plain gRPC with protobuf, in
 * Connect, or in plain JSON with lines as the response; except methods that stream both ways, and request streams that
 * are not protobuf. Undefined: the library serves it.
 */
export function directWire(route: Route, request: HttpRequest): Wire | undefined {
  const { kind } = route.spec;
  if (kind === "bidi_streaming" || request.method !== "POST") return undefined;
  const { headers } = request;
  const type = contentTypeOf(request);
  if (type === "application/grpc" || type === "application/grpc+proto") {
    return request.httpVersionMajor === 2 && isPlain(headers["grpc-encoding"]) ? grpcWire(route) : undefined;
  }
  const connect = parseContentType(type);
  if (connect === undefined) return undefined;
  if (wantsJsonLines(route, request)) {
    if (!isPlain(headers["content-encoding"])) return undefined;
    return linesWire(route, codecOf(route, false, headers[IGNORE_UNKNOWN_HEADER]));
  }
  if (connect.stream !== (kind !== "unary")) return undefined;
  if (kind === "client_streaming" && !connect.binary) return undefined;
  const encoding = headers[connect.stream ? "connect-content-encoding" : "content-encoding"];
  if (!isPlain(encoding)) return undefined;
  const codec = codecOf(route, connect.binary, headers[IGNORE_UNKNOWN_HEADER]);
  return connect.stream ? streamWire(route, codec) : unaryWire(route, codec);
}

/**
 * Serves a call without the library's universal request, `Headers` and iterator pipeline, which take longer than all
 * the rest of such a call. Never rejects. Settles when the handler is done.
 */
export async function serveDirectly(
  route: Route,
  call: Call,
  wire: Wire,
  request: HttpRequest,
  nodeResponse: HttpResponse,
  { errors, admit, receiving, sending, queue, streams }: DirectOptions,
): Promise<void> {
  const context = new CallContext(route.method, call, request);
  const response = wire.respond(request, nodeResponse, context);
  // The client gets the error as soon as the call is over, even if the handler has not noticed yet.
  call.signal.addEventListener("abort", () => {
    if (response.open) response.fail(errors.fromHandler(call, abortError(call.signal), call.signal));
  });
  try {
    await admit(context);
    if (route.spec.kind === "client_streaming") {
      const messages = new RequestMessages(route, call, request, { errors, receiving, queue });
      call.handlerReached = true;
      response.complete(wire.encode(await route.spec.impl(messages, context)));
      return;
    }
    call.account = receiving.open(call.owner);
    const message = await wire.read(request, call.account);
    call.handlerReached = true;
    if (route.spec.kind === "unary") {
      const result = await route.spec.impl(message, context);
      // Encoding a long response blocks the event loop for milliseconds.
      await queue?.answer(call);
      const answer = wire.encode(result);
      countUnsent(
        sending,
        call,
        answer.reduce((sum, piece) => sum + piece.length, 0),
      );
      response.complete(answer);
    } else if (route.spec.kind === "server_streaming") {
      for await (const item of route.spec.impl(message, context)) {
        // Keepalives would make a tenant that only waits count as active.
        const turn = (queue && !isKeepalive(item) ? queue.again(call) : undefined) ?? streams.enter();
        if (turn) await turn;
        const sent = response.send(wire.encode(item), sending);
        queue?.rest(call);
        await sent;
        // Leaving the loop runs the cleanup of the handler's generator.
        if (!response.open) return;
      }
      response.complete();
    }
  } catch (thrown) {
    const error = call.handlerReached
      ? errors.fromHandler(call, thrown, call.signal)
      : errors.fromRequest(call, thrown, route.readMaxBytes);
    response.fail(error);
  } finally {
    // The handler has the message until it is done.
    call.account?.close();
  }
}

/** Whether a message of a stream only says that the stream is alive. */
function isKeepalive(item: MessageInitShape<DescMessage>): boolean {
  return Object.values(item).some((group) => (group as { case?: unknown } | undefined)?.case === "keepalive");
}

function isPlain(encoding: string | readonly string[] | undefined): boolean {
  return encoding === undefined || encoding === "identity";
}

function grpcWire({ method, readMaxBytes }: Route): Wire {
  return {
    read: async (request, account) =>
      parseMessage(method.input, await readMessage(request, readMaxBytes, account)),
    encode: (message) => frameBytes(encodeMessage(method.output, message)),
    respond: (_, response, context) => new GrpcResponse(response, context),
  };
}

/** How Connect encodes messages. */
interface Codec {
  /** `json` or `proto`. */
  readonly name: string;
  parse(bytes: Uint8Array): Message | Promise<Message>;
  encode(message: MessageInitShape<DescMessage>): readonly Uint8Array[];
}

function codecOf({ method, json }: Route, binary: boolean, ignores: string | string[] | undefined): Codec {
  if (binary) {
    return {
      name: "proto",
      parse: (bytes) => parseMessage(method.input, bytes),
      encode: (message) => encodeMessage(method.output, message),
    };
  }
  const ignoreUnknown = String(ignores).toLowerCase() === "true";
  return {
    name: "json",
    parse: async (bytes) => {
      await check(bytes, { method, json: true, ignoreUnknown });
      return json.getI(false).parse(bytes);
    },
    encode: (message) =>
      encodingOf(message)?.json?.() ?? [toJson(method.output, message, json.getO(false).serialize)],
  };
}

function unaryWire({ readMaxBytes }: Route, { name, parse, encode }: Codec): Wire {
  return {
    read: async (request, account) => parse(await readPlainMessage(request, readMaxBytes, account)),
    encode,
    respond: (request, response, context) =>
      new ConnectUnaryResponse(request, response, context, `application/${name}`),
  };
}

/** A JSON message in the request, and one per line in the response. */
function linesWire({ readMaxBytes }: Route, { parse, encode }: Codec): Wire {
  return {
    read: async (request, account) => parse(await readPlainMessage(request, readMaxBytes, account)),
    encode: (message) => [...encode(message), NEWLINE],
    respond: (request, response, context) => new JsonLinesResponse(request, response, context),
  };
}

function streamWire({ method, readMaxBytes }: Route, { name, parse, encode }: Codec): Wire {
  const look = name === "json" ? (first: number | undefined) => assertEnveloped(method, first) : undefined;
  return {
    read: async (request, account) => parse(await readMessage(request, readMaxBytes, account, look)),
    encode: (message) => frameBytes(encode(message)),
    respond: (request, response, context) =>
      new ConnectStreamResponse(request, response, context, `application/connect+${name}`),
  };
}
