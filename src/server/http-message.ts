import type http from "node:http";
import http2 from "node:http2";
import { setTimeout as sleep } from "node:timers/promises";

/** A request, whatever version of HTTP it came in. */
export type HttpRequest = http.IncomingMessage | http2.Http2ServerRequest;

/** The response to a {@link HttpRequest} of the same version. */
export type HttpResponse = http.ServerResponse | http2.Http2ServerResponse;

/** The path of a request, without its query. */
export function pathOf(request: HttpRequest): string {
  const { url = "" } = request;
  const end = url.indexOf("?");
  return end === -1 ? url : url.slice(0, end);
}

/** The URL a request was made to, as far as it says. */
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

/** The peers of connections: over HTTP/2, to ask a socket takes longer than to look here. */
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

/** Ends a response, with a last piece of body if there is one. The two versions of HTTP type this apart. */
export function endResponse(response: HttpResponse, body?: string): void {
  (response.end as (body?: string) => unknown).call(response, body);
}

/** How a client speaks to the port. */
export type RpcProtocol = "grpc" | "grpc-web" | "connect";

/** The protocol of a request, by its content type. Only Connect has calls by GET, which need none. */
export function protocolOf(request: HttpRequest): RpcProtocol {
  if (request.method === "GET") return "connect";
  const type = contentTypeOf(request);
  if (type.startsWith("application/grpc-web")) return "grpc-web";
  return type.startsWith("application/grpc") ? "grpc" : "connect";
}

/** The content type of a request; that of gRPC without parameters such as `charset`, which have no meaning there. */
export function contentTypeOf({ headers }: HttpRequest): string {
  const type = headers["content-type"] ?? "";
  if (type === "application/grpc" || !/^application\/grpc/i.test(type)) return type;
  return (type.split(";", 1)[0] ?? "").trimEnd().toLowerCase();
}

/** How long a client may go on sending once its answer is complete, or leave the rest of an answer unread once its call is over. */
const LINGER_MS = 2000;

/** How long an early answer waits for the end of its request. */
const COURTESY_MS = 500;

/**
 * Deals with a client that goes on sending after its answer is complete, as one
 * does whose message was refused for its size: what comes is not kept, and does
 * not come for long. To close at once would take the answer from the client.
 */
export function dismissLateBody(request: HttpRequest, response: HttpResponse): void {
  // Over HTTP/2, a response says so only once its request has ended as well: its stream knows.
  const answer = "stream" in response ? response.stream : response;
  answer.once("finish", () => {
    if (request.complete) return;
    request.resume();
    const timer = setTimeout(() => {
      if (!request.complete) close(request, http2.constants.NGHTTP2_NO_ERROR);
    }, LINGER_MS);
    timer.unref();
    request.once("close", () => clearTimeout(timer));
  });
}

/** Ends a call that is over though its client does not read the end of it, which would keep it in flight. */
export function dismissReader(request: HttpRequest, response: HttpResponse): void {
  const timer = setTimeout(() => close(request, http2.constants.NGHTTP2_CANCEL), LINGER_MS);
  timer.unref();
  response.once("close", () => clearTimeout(timer));
}

/**
 * To destroy a request leaves the connection of HTTP/1.1 alone where all of it
 * has come, and over HTTP/2 its stream open, and the call with it; so does to
 * close the stream while a reader has left a part of it unread.
 */
function close(request: HttpRequest, code: number): void {
  if (!("stream" in request)) request.socket.destroy();
  else {
    request.stream.close(code);
    request.stream.destroy();
  }
}

/**
 * Resolves when the rest of a request has come and gone, or a short time has
 * passed. An answer over HTTP/2 that ends before its request makes Node reset
 * the stream, which is allowed, and makes curl lose the answer.
 */
export async function requestEnd(request: HttpRequest): Promise<void> {
  if (request.httpVersionMajor !== 2 || request.complete) return;
  const ended = new Promise<void>((resolve) => {
    request.once("end", resolve);
    request.once("close", resolve);
  });
  request.resume();
  await Promise.race([ended, sleep(COURTESY_MS, undefined, { ref: false })]);
}
