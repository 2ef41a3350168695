import type http from "node:http";
import type http2 from "node:http2";

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

/** Address of a request's sender, or `unix`. */
export function peerOf(request: HttpRequest): string {
  const { remoteAddress, remotePort } = request.socket;
  if (remoteAddress === undefined) return "unix";
  return remoteAddress.includes(":") ? `[${remoteAddress}]:${remotePort}` : `${remoteAddress}:${remotePort}`;
}

/** Ends a response, with a last piece of body if there is one. The two versions of HTTP type this apart. */
export function endResponse(response: HttpResponse, body?: string): void {
  (response.end as (body?: string) => unknown).call(response, body);
}
