import { cors } from "@connectrpc/connect";
import { printable } from "./http-endpoints.ts";
import { endResponse, type HttpRequest, type HttpResponse } from "./http-message.ts";
import { isLoopbackName, type ListenAddress } from "./listen-address.ts";
import { IGNORE_UNKNOWN_HEADER } from "./request-messages.ts";

/** Which names the server answers to. */
interface OriginGuardOptions {
  readonly listen: ListenAddress;
  /** Further host names, without port, that clients may use. */
  readonly allowHosts: readonly string[];
  /** Origins of web pages, as `https://app.example.com`, that may call and read the answers. */
  readonly corsOrigins: readonly string[];
}

/**
 * Refuses requests made under a foreign name. A web page that has its own name
 * point at this machine ("DNS rebinding") reaches the port with that name as
 * Host, and one that posts across sites carries its Origin; no token protects a
 * loopback port from the user's own browser, so the names do.
 */
export class OriginGuard {
  readonly #exempt: boolean;
  readonly #names: ReadonlySet<string>;
  readonly #corsOrigins: ReadonlySet<string>;
  /** The last authority that holds a name of this server, as nearly every request's does. */
  #accepted: string | undefined;

  constructor({ listen, allowHosts, corsOrigins }: OriginGuardOptions) {
    this.#exempt = listen.kind === "unix";
    const names = listen.kind === "tcp" && listen.host !== "" ? [listen.host, ...allowHosts] : allowHosts;
    this.#names = new Set(names.map((name) => name.toLowerCase()));
    this.#corsOrigins = new Set(corsOrigins);
  }

  /** Whether pages of this origin may call across sites and read the answers. */
  allowsCors(origin: string): boolean {
    return this.#corsOrigins.has(origin);
  }

  /** Why the request is refused, for its sender; undefined: it is not. */
  refusal(request: HttpRequest): string | undefined {
    if (this.#exempt) return undefined;
    const { headers } = request;
    const authority = String(headers[":authority"] ?? headers.host ?? "");
    if (authority !== this.#accepted) {
      const host = hostNameOf(authority);
      if (host === undefined || !this.#isKnown(host, request)) {
        return `This server does not answer to the host name "${printable(authority)}". Call it by an address it listens on, or start it with --allow-host.`;
      }
      if (this.#isName(host)) this.#accepted = authority;
    }
    const { origin } = headers;
    if (origin === undefined || this.#corsOrigins.has(origin)) return undefined;
    const originHost = originHostOf(origin);
    if (originHost === undefined || !this.#isKnown(originHost, request)) {
      return `Pages of the origin "${printable(origin)}" may not call this server.`;
    }
    return undefined;
  }

  /**
   * Why the request may not be a call. A browser sends a GET for a picture or a
   * link of any page, and no Origin with it.
   */
  refusalOfCall({ headers }: HttpRequest): string | undefined {
    if (this.#exempt || headers.origin !== undefined || headers["sec-fetch-site"] !== "cross-site")
      return undefined;
    return "Pages of other sites may not call this server.";
  }

  #isKnown(name: string, request: HttpRequest): boolean {
    // The address that the connection came in on is not a name that someone else could have pointed here.
    return this.#isName(name) || name === unmapped(request.socket.localAddress);
  }

  /** Whether it is a name of this server on every connection. */
  #isName(name: string): boolean {
    return this.#names.has(name) || isLoopbackName(name);
  }
}

/** The host of `host`, `host:port` or `[v6]:port`, in lower case and without brackets. */
function hostNameOf(authority: string): string | undefined {
  const match = /^(?:\[([0-9a-fA-F:.]+)\]|([^:@/?#[\]\s]+))(?::\d{1,5})?$/.exec(authority);
  return (match?.[1] ?? match?.[2])?.toLowerCase();
}

function originHostOf(origin: string): string | undefined {
  const match = /^https?:\/\/(.+)$/.exec(origin);
  return match?.[1] === undefined ? undefined : hostNameOf(match[1]);
}

/** An IPv4 address that came in on an IPv6 socket, as IPv4. */
function unmapped(address: string | undefined): string | undefined {
  return address?.replace(/^::ffff:(?=\d+\.)/, "");
}

const ALLOW_HEADERS = [...cors.allowedHeaders, "Authorization", IGNORE_UNKNOWN_HEADER].join(", ");
const EXPOSE_HEADERS = cors.exposedHeaders.join(", ");
const MAX_AGE_SECONDS = "7200";

/** Lets pages of the origin read this response. */
export function allowOrigin(response: HttpResponse, origin: string): void {
  response.setHeader("access-control-allow-origin", origin);
  response.setHeader("access-control-expose-headers", EXPOSE_HEADERS);
  response.setHeader("vary", "origin");
}

/** Whether a browser asks with this request if it may send another. */
export function isPreflight(request: HttpRequest): boolean {
  return request.method === "OPTIONS" && request.headers["access-control-request-method"] !== undefined;
}

/** Answers a preflight of an allowed origin. */
export function answerPreflight(response: HttpResponse): void {
  response.statusCode = 204;
  response.setHeader("access-control-allow-methods", "GET, POST");
  response.setHeader("access-control-allow-headers", ALLOW_HEADERS);
  response.setHeader("access-control-max-age", MAX_AGE_SECONDS);
  endResponse(response);
}
