import http2 from "node:http2";
import { setTimeout as sleep } from "node:timers/promises";
import type { HttpRequest, HttpResponse } from "./http-message.ts";

/** How long a client may go on sending once its answer is complete. */
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
      if (!request.complete) close(request);
    }, LINGER_MS);
    timer.unref();
    request.once("close", () => clearTimeout(timer));
  });
}

/**
 * Over HTTP/2, to destroy a request leaves its stream open, and the call with
 * it; so does to close the stream while a reader has left a part of it unread.
 */
function close(request: HttpRequest): void {
  if (!("stream" in request)) request.destroy();
  else {
    request.stream.close(http2.constants.NGHTTP2_NO_ERROR);
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
