import type http from "node:http";
import http2 from "node:http2";
import querystring from "node:querystring";
import type { Readable } from "node:stream";
import { stayOpen } from "../base/async.ts";
import { dropRest } from "../base/drop-rest.ts";

/** A request of either version of HTTP. */
export type HttpRequest = http.IncomingMessage | http2.Http2ServerRequest;

/** The response to a {@link HttpRequest} of the same version. */
export type HttpResponse = http.ServerResponse | http2.Http2ServerResponse;

/** A request's target in absolute form: the authority, then the path and the query. */
const ABSOLUTE_FORM = /^https?:\/\/([^/?#]*)(.*)$/is;

/** Reads a target in absolute form, as clients send it to proxies. Its host counts, not that of the header (RFC 9112, 3.2.2). */
export function normalizeTarget(request: HttpRequest): void {
  if (request.httpVersionMajor !== 1 || request.url?.startsWith("/")) return;
  const [, authority, rest = ""] = ABSOLUTE_FORM.exec(request.url ?? "") ?? [];
  if (authority === undefined) return;
  request.headers.host = authority;
  request.url = rest.startsWith("/") ? rest : `/${rest}`;
}

/** The path of a request, without its query. */
export function pathOf(request: HttpRequest): string {
  const { url = "" } = request;
  const end = url.indexOf("?");
  return end === -1 ? url : url.slice(0, end);
}

/** The query of a request. */
export function queryOf({ url = "" }: HttpRequest): URLSearchParams {
  const start = url.indexOf("?");
  return new URLSearchParams(start === -1 ? "" : url.slice(start + 1));
}

/** The bytes of a value in the query of a request. The first one of a name counts. */
export function queryBytes({ url = "" }: HttpRequest, name: string): Buffer {
  // As Latin-1, which keeps each byte: other text would have a replacement for what is not UTF-8.
  const toLatin1 = (text: string): string =>
    text.replace(/%([\da-f]{2})/gi, (_, hex: string) => String.fromCharCode(Number.parseInt(hex, 16)));
  const query = querystring.parse(url.slice(url.indexOf("?") + 1), "&", "=", {
    decodeURIComponent: toLatin1,
    // No limit but that of the URL.
    maxKeys: 0,
  });
  const [value = ""] = [query[name] ?? []].flat();
  return Buffer.from(value, "latin1");
}

/** The URL of a request, as far as it is known. */
export function urlOf(request: HttpRequest): string {
  const { headers, socket } = request;
  const scheme = "encrypted" in socket ? "https" : "http";
  const url = `${scheme}://${headers[":authority"] ?? headers.host}${request.url}`;
  return URL.canParse(url) ? url : `${scheme}://localhost${request.url}`;
}

/** The headers of a request without HTTP/2's pseudo-headers. */
export function headersOf(request: HttpRequest): Headers {
  const headers = new Headers();
  for (const [name, value] of Object.entries(request.headers)) {
    if (name.startsWith(":") || value === undefined) continue;
    for (const one of Array.isArray(value) ? value : [value]) headers.append(name, one);
  }
  return headers;
}

/** The peers of connections. Cached, because over HTTP/2 asking the socket takes longer. */
const peers = new WeakMap<object, string>();

/** Address of a request's sender, or `unix`. */
export function peerOf(request: HttpRequest): string {
  const connection = ("stream" in request && request.stream.session) || request.socket;
  const known = peers.get(connection);
  if (known !== undefined) return known;
  const peer = addressOf(request);
  peers.set(connection, peer);
  return peer;
}

function addressOf({ socket }: HttpRequest): string {
  const { remoteAddress, remotePort } = socket;
  if (remoteAddress === undefined) return "unix";
  return remoteAddress.includes(":") ? `[${remoteAddress}]:${remotePort}` : `${remoteAddress}:${remotePort}`;
}

/** The memory that a piece of a stream takes besides its bytes. */
const PIECE_BYTES = 256;

/** How much memory the part of a stream takes that was not read. */
export function memoryOf(stream: Readable): number {
  // Node's types lack it.
  const { readableBuffer } = stream as Readable & { readonly readableBuffer: { readonly length: number } };
  return stream.readableLength + PIECE_BYTES * readableBuffer.length;
}

/** Ends a response. The types of the two HTTP versions differ. */
export function endResponse(response: HttpResponse): void {
  (response.end as () => unknown).call(response);
}

/** The protocol of an RPC. */
export type RpcProtocol = "grpc" | "grpc-web" | "connect";

/** The protocol of a request, by its content type. A GET has none, and only Connect uses it. */
export function protocolOf(request: HttpRequest): RpcProtocol {
  if (request.method === "GET") return "connect";
  const type = contentTypeOf(request);
  if (type.startsWith("application/grpc-web")) return "grpc-web";
  return type.startsWith("application/grpc") ? "grpc" : "connect";
}

/** The content type of a request. For gRPC, without parameters such as `charset`, which mean nothing there. */
export function contentTypeOf({ headers }: HttpRequest): string {
  const type = headers["content-type"] ?? "";
  if (type === "application/grpc" || !/^application\/grpc/i.test(type)) return type;
  return (type.split(";", 1)[0] ?? "").trimEnd().toLowerCase();
}

/**
 * How long a client may continue to send after its response is complete, or leave a response unread after its call is
 * over.
 */
const LINGER_MS = 2000;

/** How long an early response over HTTP/2 waits for the end of its request. */
const COURTESY_MS = 500;

/**
 * Handles a client that continues to send after its response is complete, for example because its message was too
 * large: drops what arrives, for a short time. Closing at once could keep the response from the client.
 */
export function dismissLateBody(request: HttpRequest, response: HttpResponse): void {
  // Over HTTP/2, a response reports "finish" only when its request has ended as well, so listen on its stream.
  const answer = "stream" in response ? response.stream : response;
  answer.once("finish", () => {
    if (request.complete) return;
    request.resume();
    const closed = new AbortController();
    request.once("close", () => closed.abort());
    void stayOpen(LINGER_MS, closed.signal).then(() => {
      if (!closed.signal.aborted && !request.complete) close(request, http2.constants.NGHTTP2_NO_ERROR);
    });
  });
}

/**
 * Closes a finished call whose client does not read the end of its response, which would keep the call open. Over
 * HTTP/1.1 a response may first have to wait for those of earlier requests.
 */
export function dismissReader(request: HttpRequest, response: HttpResponse): void {
  if (response.socket === null) {
    response.once("socket", () => dismissReader(request, response));
    return;
  }
  const closed = new AbortController();
  response.once("close", () => closed.abort());
  void stayOpen(LINGER_MS, closed.signal).then(() => {
    if (!closed.signal.aborted) close(request, http2.constants.NGHTTP2_CANCEL);
  });
}

/**
 * Destroying the request is not enough: over HTTP/1.1 it leaves the connection open if the request has arrived
 * completely, and over HTTP/2 the stream, and with it the call. Closing the stream does not end it either while parts
 * of it are unread.
 */
function close(request: HttpRequest, code: number): void {
  if (!("stream" in request)) request.socket.destroy();
  else {
    request.stream.close(code);
    request.stream.destroy();
  }
}

/**
 * Resolves when the rest of a request has arrived and was dropped, or after a short time. A client may lose a response
 * that ends before its request. Over HTTP/2 Node resets the stream: that is allowed, but curl drops the response. Over
 * HTTP/1 Node closes a connection that is not kept, and the kernel resets it when more arrives.
 */
export async function requestEnd(request: HttpRequest, response: HttpResponse): Promise<void> {
  if ("stream" in response) await dropRest(request, COURTESY_MS);
  else if (!response.shouldKeepAlive) await dropRest(request, LINGER_MS);
}

/** Sends the body of a response, and ends it after its request. */
export async function endAfterRequest(
  request: HttpRequest,
  response: HttpResponse,
  body: string,
): Promise<void> {
  response.setHeader("content-length", Buffer.byteLength(body));
  if (request.method !== "HEAD") (response.write as (body: string) => unknown).call(response, body);
  await requestEnd(request, response);
  endResponse(response);
}
