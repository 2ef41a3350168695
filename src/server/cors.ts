import { cors } from "@connectrpc/connect";
import { endResponse, type HttpRequest, type HttpResponse } from "./http-message.ts";
import { IGNORE_UNKNOWN_HEADER } from "./unknown-fields.ts";

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
