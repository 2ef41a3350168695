import { cors } from "@connectrpc/connect";
import { TENANT_HEADER } from "./call.ts";
import { printable } from "./http-endpoints.ts";
import { endResponse, type HttpRequest, type HttpResponse } from "./http-message.ts";
import { isLoopbackName, type ListenAddress } from "./listen-address.ts";
import { IGNORE_UNKNOWN_HEADER } from "./message-check.ts";

interface OriginGuardOptions {
  readonly listen: ListenAddress;
  /** Further host names without port that clients may use. */
  readonly allowHosts: readonly string[];
  /** Origins of web pages, such as `https://app.example.com`, that may call and read the responses. */
  readonly corsOrigins: readonly string[];
}

/**
 * Refuses requests under a foreign name. A web page that makes its own name point to this machine ("DNS rebinding")
 * sends that name as Host, and a page that posts across sites sends its Origin. No token protects a loopback port from
 * the user's own browser, so these checks do.
 */
export class OriginGuard {
  readonly #exempt: boolean;
  readonly #names: ReadonlySet<string>;
  readonly #corsOrigins: ReadonlySet<string>;
  /** The last accepted authority: nearly every request has the same one. */
  #accepted: string | undefined;

  constructor({ listen, allowHosts, corsOrigins }: OriginGuardOptions) {
    this.#exempt = listen.kind === "unix";
    const names = listen.kind === "tcp" && listen.host !== "" ? [listen.host, ...allowHosts] : allowHosts;
    this.#names = new Set(names.map((name) => name.toLowerCase()));
    this.#corsOrigins = new Set(corsOrigins);
  }

  /** Whether pages of this origin may call across sites and read the responses. */
  allowsCors(origin: string): boolean {
    return this.#corsOrigins.has(origin);
  }

  /** Why the request is refused, as a message for its sender. Undefined: it is not. */
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
   * Why the request may not be a call. Undefined: it may. A browser sends a GET, without Origin, for an image or a link
   * on any page.
   */
  refusalOfCall({ headers }: HttpRequest): string | undefined {
    if (this.#exempt || headers.origin !== undefined || headers["sec-fetch-site"] !== "cross-site")
      return undefined;
    return "Pages of other sites may not call this server.";
  }

  #isKnown(name: string, request: HttpRequest): boolean {
    // The address on which the connection arrived is not a name that someone else could have pointed here.
    return this.#isName(name) || name === unmapped(request.socket.localAddress);
  }

  /** Whether it is a name of this server, whatever the connection. */
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

/** Converts an IPv4-mapped IPv6 address to IPv4. */
function unmapped(address: string | undefined): string | undefined {
  return address?.replace(/^::ffff:(?=\d+\.)/, "");
}

const OWN_HEADERS = ["Authorization", TENANT_HEADER, IGNORE_UNKNOWN_HEADER];
const ALLOW_HEADERS = [...cors.allowedHeaders, ...OWN_HEADERS].join(", ");
const EXPOSE_HEADERS = cors.exposedHeaders.join(", ");
const MAX_AGE_SECONDS = "7200";

/** Allows pages of the origin to read this response. */
export function allowOrigin(response: HttpResponse, origin: string): void {
  response.setHeader("access-control-allow-origin", origin);
  response.setHeader("access-control-expose-headers", EXPOSE_HEADERS);
  response.setHeader("vary", "origin");
}

/** Whether this is a browser's preflight request. */
export function isPreflight(request: HttpRequest): boolean {
  return request.method === "OPTIONS" && request.headers["access-control-request-method"] !== undefined;
}

/** Answers a preflight from an allowed origin. */
export function answerPreflight(response: HttpResponse): void {
  response.statusCode = 204;
  response.setHeader("access-control-allow-methods", "GET, POST");
  response.setHeader("access-control-allow-headers", ALLOW_HEADERS);
  response.setHeader("access-control-max-age", MAX_AGE_SECONDS);
  endResponse(response);
}
