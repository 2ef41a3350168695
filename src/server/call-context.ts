import type { DescMethod, DescService } from "@bufbuild/protobuf";
import { type ContextValues, createContextValues, type HandlerContext } from "@connectrpc/connect";
import { type Call, setCall } from "./call.ts";
import { type HttpRequest, headersOf, urlOf } from "./http-message.ts";

/**
 * What a handler knows about its call when {@link serveDirectly} runs it. Creates `Headers` on first use, because they
 * are slow to create and few handlers need them.
 */
export class CallContext implements HandlerContext {
  readonly method: DescMethod;
  readonly protocolName: "grpc" | "connect";
  readonly requestMethod = "POST";
  readonly values: ContextValues = createContextValues();
  readonly signal: AbortSignal;
  readonly timeoutMs: () => number | undefined;
  readonly #request: HttpRequest;
  #requestHeader: Headers | undefined;
  #responseHeader: Headers | undefined;
  #responseTrailer: Headers | undefined;

  constructor(method: DescMethod, call: Call, request: HttpRequest) {
    this.method = method;
    this.protocolName = call.protocol === "connect" ? "connect" : "grpc";
    this.signal = call.signal;
    this.timeoutMs = call.timeoutMs;
    this.#request = request;
    setCall(this.values, call);
  }

  get service(): DescService {
    return this.method.parent;
  }

  get url(): string {
    return urlOf(this.#request);
  }

  get requestHeader(): Headers {
    this.#requestHeader ??= headersOf(this.#request);
    return this.#requestHeader;
  }

  get responseHeader(): Headers {
    this.#responseHeader ??= new Headers();
    return this.#responseHeader;
  }

  get responseTrailer(): Headers {
    this.#responseTrailer ??= new Headers();
    return this.#responseTrailer;
  }

  /** The response headers that the handler set, if any. */
  get ownHeader(): Headers | undefined {
    return this.#responseHeader;
  }

  /** The response trailers that the handler set, if any. */
  get ownTrailer(): Headers | undefined {
    return this.#responseTrailer;
  }
}
