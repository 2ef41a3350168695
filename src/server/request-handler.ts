import { Code } from "@connectrpc/connect";
import { BerthError, canceled } from "../base/errors.ts";
import type { Logger } from "../base/logger.ts";
import type { AuditLog } from "./audit-log.ts";
import {
  type Authenticator,
  Call,
  type Calls,
  type Credentials,
  type Principal,
  RefusedCaller,
} from "./call.ts";
import type { Decompressor } from "./decompressor.ts";
import { type DirectOptions, directWire, serveDirectly } from "./direct-handler.ts";
import { deadlineExceeded } from "./error-conversion.ts";
import { sendError } from "./error-response.ts";
import { type Page, type Pages, printable, sendPage, textPage } from "./http-endpoints.ts";
import {
  contentTypeOf,
  dismissLateBody,
  dismissReader,
  type HttpRequest,
  type HttpResponse,
  normalizeTarget,
  pathOf,
  peerOf,
  protocolOf,
} from "./http-message.ts";
import { wantsJsonLines } from "./json-lines.ts";
import { getMessage, serveByLibrary } from "./library-handler.ts";
import { allowOrigin, answerPreflight, isPreflight, type OriginGuard } from "./origin-guard.ts";
import type { Route, RouteTable } from "./routes.ts";

interface RequestHandlerOptions extends DirectOptions {
  readonly routes: RouteTable;
  readonly guard: OriginGuard;
  readonly pages: Pages;
  readonly calls: Calls;
  readonly authenticator: Authenticator;
  readonly decompressor: Decompressor;
  readonly logger: Logger;
  /** Undefined: refusals are not recorded. */
  readonly audit: AuditLog | undefined;
}

/** Routes a request to the handler of its path. */
export class RequestHandler {
  readonly #options: RequestHandlerOptions;

  constructor(options: RequestHandlerOptions) {
    this.#options = options;
  }

  readonly handle = (request: HttpRequest, response: HttpResponse): void => {
    normalizeTarget(request);
    dismissLateBody(request, response);
    this.#serve(request, response).catch((error: unknown) => {
      this.#options.logger.error({ err: error }, "request failed");
      response.destroy();
    });
  };

  async #serve(request: HttpRequest, response: HttpResponse): Promise<void> {
    const { guard, pages, routes, logger } = this.#options;
    const path = pathOf(request);
    const route = routes.find(path);
    const refusal = guard.refusal(request) ?? (route && guard.refusalOfCall(request));
    if (refusal !== undefined) {
      logger.warn({ refusal }, "request refused");
      return sendPage(request, response, textPage(403, refusal));
    }
    const { origin } = request.headers;
    if (origin !== undefined && guard.allowsCors(origin)) {
      allowOrigin(response, origin);
      if (isPreflight(request)) return answerPreflight(response);
    }
    if (route) return this.#serveRoute(request, response, route);
    const page = Object.hasOwn(pages, path) ? pages[path] : undefined;
    if (page) return sendPage(request, response, await this.#pageFor(request, page));
    if (looksLikeCall(request, path)) return this.#serveUnknown(request, response, path);
    const text = "Nothing is here. This is a Berth server: call it by gRPC, gRPC-Web or Connect.";
    return sendPage(request, response, textPage(404, text));
  }

  async #pageFor(request: HttpRequest, { access, page }: Pages[string]): Promise<Page> {
    if (request.method !== "GET" && request.method !== "HEAD") return textPage(405, "Use GET.");
    if (access === "open") return page();
    return this.#adminPage(
      { headers: request.headers, method: pathOf(request), peer: peerOf(request) },
      page,
    );
  }

  async #adminPage(credentials: Credentials, page: () => Page | Promise<Page>): Promise<Page> {
    const { authenticator, audit } = this.#options;
    let principal: Principal | undefined;
    let answer: Page;
    try {
      principal = await authenticator.authenticate(credentials);
      if (principal.scope === "admin") return page();
      answer = textPage(403, "This page needs a token of scope admin.");
    } catch (error) {
      if (!(error instanceof BerthError)) throw error;
      if (error instanceof RefusedCaller) ({ principal } = error);
      answer =
        error.reason === "UNAUTHENTICATED"
          ? { ...textPage(401, error.message), headers: { "www-authenticate": "Bearer" } }
          : textPage(403, error.message);
    }
    audit?.pageRefused(credentials, answer.status, principal);
    return answer;
  }

  async #serveRoute(request: HttpRequest, response: HttpResponse, route: Route): Promise<void> {
    const problem = misuse(route, request);
    if (problem) return sendPage(request, response, problem);
    const call = this.#begin(route, request, response);
    const wire = directWire(route, request);
    return wire === undefined
      ? serveByLibrary(route, call, request, response, this.#options)
      : serveDirectly(route, call, wire, request, response, this.#options);
  }

  async #serveUnknown(request: HttpRequest, response: HttpResponse, path: string): Promise<void> {
    const call = this.#begin(undefined, request, response);
    const error = new BerthError("UNIMPLEMENTED", `This server has no method ${path.slice(1, 200)}.`);
    const sent = this.#options.errors.fromHandler(call, error, call.signal);
    return sendError(request, response, call.protocol, sent, 404);
  }

  #begin(route: Route | undefined, request: HttpRequest, response: HttpResponse): Call {
    const { calls } = this.#options;
    const kind = route?.method.methodKind;
    const call = new Call({
      method: route?.name ?? "",
      protocol: protocolOf(request),
      request,
      changes: route?.changes ?? false,
      streamsRequests: kind === "client_streaming" || kind === "bidi_streaming",
    });
    calls.begin(call);
    const timer =
      call.deadline.kind === "after"
        ? setTimeout(() => {
            call.abort(deadlineExceeded());
            dismissReader(request, response);
          }, call.deadline.ms)
        : undefined;
    response.once("close", () => {
      clearTimeout(timer);
      const complete = response.writableEnded;
      call.abort(complete ? undefined : canceled());
      calls.end(call, call.failure?.error.code ?? (complete ? 0 : Code.Canceled));
    });
    return call;
  }
}

/** The page that says what is wrong with the call of a method. Undefined: nothing. */
function misuse(route: Route, request: HttpRequest): Page | undefined {
  const { handler, method } = route;
  if (request.method === "GET" && method.methodKind === "unary" && handler.allowedMethods.includes("GET")) {
    if (getMessage(request) !== undefined) return undefined;
    return textPage(415, "Say how the message is encoded: ?encoding=json&message={…}, percent-encoded.");
  }
  if (request.method !== "POST") return textPage(405, "Call this method by POST.");
  const type = contentTypeOf(request);
  // The library knows the type of gRPC-Web as text, and refuses it without a word.
  const isText = type.startsWith("application/grpc-web-text");
  if ((handler.supportedContentType(type) && !isText) || wantsJsonLines(route, request)) return undefined;
  const given = `This method takes gRPC, gRPC-Web or Connect messages, not "${printable(type)}".`;
  return textPage(
    415,
    method.methodKind === "unary" || method.methodKind === "server_streaming"
      ? `${given} For JSON set the header "content-type: application/json".`
      : `${given} It takes a stream of them: use a client of gRPC or Connect. "content-type: application/connect+json" takes JSON, each message in an envelope.`,
  );
}

/** Whether a request for an unknown path is a call of a method that this server does not have. */
function looksLikeCall(request: HttpRequest, path: string): boolean {
  return (
    request.method === "POST" &&
    /^\/[\w.]+\/\w+$/.test(path) &&
    /^application\/(grpc|json|proto|connect\+)/.test(request.headers["content-type"] ?? "")
  );
}
