import type { ConnectError } from "@connectrpc/connect";
import { mergeNonProtocolHeaders } from "@connectrpc/connect/protocol";
import {
  codeToHttpStatus,
  createEndStreamSerialization,
  endStreamFlag,
  errorToJsonBytes,
} from "@connectrpc/connect/protocol-connect";
import { callOf } from "./call.ts";
import type { CallContext } from "./call-context.ts";
import { DirectResponse } from "./direct-response.ts";
import { frameBytes } from "./framing.ts";
import { type HttpRequest, type HttpResponse, requestEnd } from "./http-message.ts";
import { isUnenveloped, NEWLINE } from "./json-lines.ts";

/** The response to a Connect call. */
abstract class ConnectResponse extends DirectResponse {
  readonly #request: HttpRequest;
  readonly #type: string;
  #ended = false;

  /** @param type content type of the messages. */
  constructor(request: HttpRequest, response: HttpResponse, context: CallContext, type: string) {
    super(response, context);
    this.#request = request;
    this.#type = type;
  }

  override get open(): boolean {
    return !this.#ended && super.open;
  }

  protected override begin(): void {
    if (!this.response.headersSent) this.head(200, this.#type);
  }

  /** @param trailer sent as headers, as in unary calls. */
  protected head(status: number, type: string, length?: number, trailer?: Headers): void {
    const { response } = this;
    for (const [name, value] of this.context.ownHeader ?? []) response.setHeader(name, value);
    for (const [name, value] of trailer ?? []) response.setHeader(`trailer-${name}`, value);
    response.setHeader("content-type", type);
    if (length !== undefined) response.setHeader("content-length", length);
    (response.writeHead as (status: number) => unknown).call(response, status);
  }

  protected end(pieces: readonly Uint8Array[]): void {
    this.#ended = true;
    this.writeLast(pieces);
    this.wake();
    // A client that streams requests may continue for a long time after a refusal, so do not wait for it.
    if (this.#request.complete || callOf(this.context).streamsRequests) this.response.end();
    else void requestEnd(this.#request, this.response).then(() => this.response.end());
  }

  /** Ends the call with an error as the whole response. */
  protected failPlainly(error: ConnectError): void {
    const { responseHeader, ownTrailer } = this.context;
    mergeNonProtocolHeaders(responseHeader, error.metadata);
    const body = errorToJsonBytes(error, undefined);
    this.head(codeToHttpStatus(error.code), "application/json", body.length, ownTrailer);
    this.end([body]);
  }
}

/** One message, or an error as JSON with an HTTP status. */
export class ConnectUnaryResponse extends ConnectResponse {
  readonly #messageType: string;

  constructor(request: HttpRequest, response: HttpResponse, context: CallContext, type: string) {
    super(request, response, context, type);
    this.#messageType = type;
  }

  override complete(pieces: readonly Uint8Array[] = []): void {
    if (!this.open) return;
    const length = pieces.reduce((sum, piece) => sum + piece.length, 0);
    this.head(200, this.#messageType, length, this.context.ownTrailer);
    this.end(pieces);
  }

  override fail(error: ConnectError): void {
    if (this.open) this.failPlainly(error);
  }
}

/**
 * Lines of JSON. An error is the last line; if there is no other line, it is the whole response and sets the HTTP
 * status.
 */
export class JsonLinesResponse extends ConnectResponse {
  constructor(request: HttpRequest, response: HttpResponse, context: CallContext) {
    super(request, response, context, "application/x-ndjson");
  }

  override complete(line: readonly Uint8Array[] = []): void {
    if (!this.open) return;
    this.begin();
    this.end([...this.take(), ...line]);
  }

  override fail(error: ConnectError): void {
    if (!this.open) return;
    this.flush();
    if (this.response.headersSent) this.end([errorToJsonBytes(error, undefined), NEWLINE]);
    else this.failPlainly(error);
  }
}

const endStream = createEndStreamSerialization(undefined);

function endOf(trailer: Headers | undefined, error: ConnectError | undefined): readonly Uint8Array[] {
  const message = endStream.serialize({ metadata: new Headers(trailer), ...(error && { error }) });
  return frameBytes([message], endStreamFlag);
}

const PLAIN_END = endOf(undefined, undefined);

/** Messages in envelopes. The last envelope says how the call ended. */
export class ConnectStreamResponse extends ConnectResponse {
  override complete(frame: readonly Uint8Array[] = []): void {
    if (this.open) this.#end(frame);
  }

  override fail(error: ConnectError): void {
    if (!this.open) return;
    const { failure } = callOf(this.context);
    // A client that sent plain JSON to a stream cannot read envelopes either.
    if (isUnenveloped(failure?.cause)) this.failPlainly(error);
    else this.#end([], error);
  }

  #end(frame: readonly Uint8Array[], error?: ConnectError): void {
    this.begin();
    const { ownTrailer } = this.context;
    // `Headers` are slow to create, and most calls end in the same way.
    const last = error === undefined && ownTrailer === undefined ? PLAIN_END : endOf(ownTrailer, error);
    this.end([...this.take(), ...frame, ...last]);
  }
}
