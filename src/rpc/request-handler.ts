import type http2 from "node:http2";
import { setTimeout as sleep } from "node:timers/promises";
import { Code, createContextValues } from "@connectrpc/connect";
import { universalResponseToNodeResponse } from "@connectrpc/connect-node";
import { BerthError, canceled } from "../core/errors.ts";
import type { Logger } from "../core/ports/logger.ts";
import { Call, type RpcProtocol, setCall } from "./call.ts";
import type { Calls } from "./calls.ts";
import { allowOrigin, answerPreflight, isPreflight } from "./cors.ts";
import { untilAborted } from "./error-boundary.ts";
import { type GrpcOptions, isPlainGrpc, serveGrpc } from "./grpc-handler.ts";
import { withPlainMessage } from "./grpc-status.ts";
import { type Page, type Pages, printable, sendPage, textPage } from "./http-endpoints.ts";
import { type HttpRequest, type HttpResponse, headersOf, pathOf, urlOf } from "./http-message.ts";
import { dismissLateBody } from "./late-body.ts";
import type { OriginGuard } from "./origin-guard.ts";
import type { Route, RouteTable } from "./routes.ts";
import { sendUnimplemented } from "./unimplemented.ts";

/**
 * A Node client that cancels a stream over HTTP/2 ends it first as if it were
 * whole, and resets it a moment later. So long is waited for that, lest half an
 * upload passes for a whole one.
 */
const RESET_GRACE_MS = 10;

/** What a {@link RequestHandler} works with. */
export interface RequestHandlerOptions extends GrpcOptions {
  readonly routes: RouteTable;
  readonly guard: OriginGuard;
  readonly pages: Pages;
  readonly calls: Calls;
  readonly logger: Logger;
}

/** Finds out what a request wants and has it served. */
export class RequestHandler {
  readonly #options: RequestHandlerOptions;

  constructor(options: RequestHandlerOptions) {
    this.#options = options;
  }

  readonly handle = (request: HttpRequest, response: HttpResponse): void => {
    const { guard, pages, routes, logger } = this.#options;
    dismissLateBody(request, response);
    const refusal = guard.refusal(request);
    if (refusal !== undefined) {
      logger.warn({ refusal }, "request refused");
      sendPage(request, response, textPage(403, refusal));
      return;
    }
    const { origin } = request.headers;
    if (origin !== undefined && guard.allowsCors(origin)) {
      allowOrigin(response, origin);
      if (isPreflight(request)) {
        answerPreflight(response);
        return;
      }
    }
    const path = pathOf(request);
    const route = routes.find(path);
    const page = Object.hasOwn(pages, path) ? pages[path] : undefined;
    if (page) void this.#servePage(request, response, page);
    else if (route) this.#serveRoute(request, response, route);
    else this.#serveUnknown(request, response, path);
  };

  async #servePage(request: HttpRequest, response: HttpResponse, page: Pages[string]): Promise<void> {
    try {
      const allowed = request.method === "GET" || request.method === "HEAD";
      sendPage(request, response, allowed ? await page() : textPage(405, "Use GET."));
    } catch (error) {
      this.#options.logger.error({ err: error }, "page failed");
      if (!response.headersSent) sendPage(request, response, textPage(500, "internal error"));
    }
  }

  #serveRoute(request: HttpRequest, response: HttpResponse, route: Route): void {
    const problem = misuse(route, request);
    if (problem) {
      sendPage(request, response, problem);
      return;
    }
    const call = this.#begin(route, request, response);
    if (isPlainGrpc(route, request)) {
      // A request of HTTP/2 comes with a response of HTTP/2.
      void serveGrpc(route, call, request, response as http2.Http2ServerResponse, this.#options);
    } else {
      void this.#serveByLibrary(route, call, request, response);
    }
  }

  #serveUnknown(request: HttpRequest, response: HttpResponse, path: string): void {
    if (!looksLikeCall(request, path)) {
      const text = "Nothing is here. This is a Berth server: call it by gRPC, gRPC-Web or Connect.";
      sendPage(request, response, textPage(404, text));
      return;
    }
    const call = this.#begin(undefined, request, response);
    const error = new BerthError("UNIMPLEMENTED", `This server has no method ${path.slice(1, 200)}.`);
    sendUnimplemented(response, call.protocol, this.#options.errors.fromHandler(call, error, call.signal));
  }

  #begin(route: Route | undefined, request: HttpRequest, response: HttpResponse): Call {
    const { calls } = this.#options;
    const kind = route?.method.methodKind;
    const call = new Call({
      method: route?.name ?? "",
      protocol: protocolOf(request),
      request,
      streamsRequests: kind === "client_streaming" || kind === "bidi_streaming",
    });
    calls.begin(call);
    response.once("close", () => {
      const complete = response.writableEnded;
      call.abort(complete ? undefined : canceled());
      calls.end(call, call.failure?.error.code ?? (complete ? 0 : Code.Canceled));
    });
    return call;
  }

  async #serveByLibrary(
    route: Route,
    call: Call,
    request: HttpRequest,
    response: HttpResponse,
  ): Promise<void> {
    const contextValues = createContextValues();
    setCall(contextValues, call);
    try {
      const universal = await route.handler({
        httpVersion: request.httpVersion,
        method: request.method ?? "",
        url: urlOf(request),
        header: headersOf(request),
        body: this.#bodyOf(route, call, request),
        signal: call.signal,
        contextValues,
      });
      const { trailer } = universal;
      const plain = {
        ...universal,
        // Complete only once the body is.
        get trailer() {
          return trailer && withPlainMessage(trailer);
        },
      };
      await universalResponseToNodeResponse(plain, response);
    } catch (thrown) {
      // The response could not be written: its client is gone.
      this.#options.errors.fromRequest(call, thrown, route.readMaxBytes);
      response.destroy();
    }
  }

  /** The bytes of a request until its call is over; fails with converted errors. */
  async *#bodyOf(route: Route, call: Call, request: HttpRequest): AsyncGenerator<Uint8Array> {
    // Destroying the request would take its connection along, and with it the error response.
    const chunks: AsyncIterator<Buffer> = request.iterator({ destroyOnReturn: false });
    try {
      for (;;) {
        const { done, value } = await untilAborted(chunks.next(), call.signal);
        if (done) break;
        yield value;
      }
      if (call.streamsRequests && request.httpVersionMajor === 2) {
        await untilAborted(sleep(RESET_GRACE_MS), call.signal);
      }
    } catch (thrown) {
      throw this.#options.errors.fromRequest(call, thrown, route.readMaxBytes);
    } finally {
      void chunks.return?.().catch(() => {});
    }
  }
}

function protocolOf(request: HttpRequest): RpcProtocol {
  const type = request.headers["content-type"] ?? "";
  if (type.startsWith("application/grpc-web")) return "grpc-web";
  return type.startsWith("application/grpc") ? "grpc" : "connect";
}

/** What is wrong with how a method is called; undefined: nothing. */
function misuse({ handler, method }: Route, request: HttpRequest): Page | undefined {
  if (!handler.allowedMethods.includes(request.method ?? ""))
    return textPage(405, "Call this method by POST.");
  if (request.method === "GET" || handler.supportedContentType(request.headers["content-type"] ?? ""))
    return undefined;
  const json = method.methodKind === "unary" ? "application/json" : "application/connect+json";
  return textPage(
    415,
    `This method takes gRPC, gRPC-Web or Connect messages, not "${printable(request.headers["content-type"] ?? "")}". For JSON set the header "content-type: ${json}".`,
  );
}

/** Whether a request of an unknown path is the call of a method that this server lacks. */
function looksLikeCall(request: HttpRequest, path: string): boolean {
  return (
    request.method === "POST" &&
    /^\/[\w.]+\/\w+$/.test(path) &&
    /^application\/(grpc|json|proto|connect\+)/.test(request.headers["content-type"] ?? "")
  );
}
