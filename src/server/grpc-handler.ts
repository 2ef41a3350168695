import type http2 from "node:http2";
import { abortError } from "../base/errors.ts";
import type { Admit } from "./admission.ts";
import type { Call } from "./call.ts";
import type { ErrorConverter } from "./error-conversion.ts";
import { frameMessage, parseMessage, readMessage } from "./grpc-framing.ts";
import { GrpcContext, GrpcResponse } from "./grpc-response.ts";
import type { HttpRequest } from "./http-message.ts";
import { contentTypeOf } from "./http-message.ts";
import type { ReceiveBudget } from "./limits.ts";
import type { Route } from "./routes.ts";

/** What {@link serveGrpc} needs beside the call. */
export interface GrpcOptions {
  readonly errors: ErrorConverter;
  readonly admit: Admit;
  readonly receiving: ReceiveBudget;
}

/**
 * Whether {@link serveGrpc} serves this request: plain gRPC with protobuf and
 * one uncompressed request message. Everything else is the library's.
 */
export function isPlainGrpc(route: Route, request: HttpRequest): request is http2.Http2ServerRequest {
  const { kind } = route.spec;
  if (kind !== "unary" && kind !== "server_streaming") return false;
  const { headers } = request;
  const type = contentTypeOf(request);
  const encoding = headers["grpc-encoding"];
  return (
    request.httpVersionMajor === 2 &&
    request.method === "POST" &&
    (type === "application/grpc" || type === "application/grpc+proto") &&
    (encoding === undefined || encoding === "identity")
  );
}

/**
 * Serves unary and server-streaming calls of plain gRPC without the library's
 * universal request, `Headers` and iterator pipeline, which take longer than
 * all the rest of such a call. Never rejects; settles when the handler is done.
 */
export async function serveGrpc(
  route: Route,
  call: Call,
  request: http2.Http2ServerRequest,
  nodeResponse: http2.Http2ServerResponse,
  { errors, admit, receiving }: GrpcOptions,
): Promise<void> {
  const context = new GrpcContext(route.method, call, request);
  const response = new GrpcResponse(nodeResponse, context);
  // The client gets its answer when the call is over, even while the handler has not noticed.
  call.signal.addEventListener("abort", () => {
    if (response.open) response.fail(errors.fromHandler(call, abortError(call.signal), call.signal));
  });
  try {
    await admit(context);
    const bytes = await readMessage(request, route.readMaxBytes, receiving.open());
    const message = parseMessage(route.method.input, bytes);
    call.handlerReached = true;
    if (route.spec.kind === "unary") {
      const result = await route.spec.impl(message, context);
      response.complete(frameMessage(route.method.output, result));
    } else if (route.spec.kind === "server_streaming") {
      for await (const item of route.spec.impl(message, context)) {
        await response.send(frameMessage(route.method.output, item));
        // Leaving the loop runs the clean-up of the handler's generator.
        if (!response.open) return;
      }
      response.complete();
    }
  } catch (thrown) {
    const error = call.handlerReached
      ? errors.fromHandler(call, thrown, call.signal)
      : errors.fromRequest(call, thrown, route.readMaxBytes);
    response.fail(error);
  }
}
