import type { HttpRequest, HttpResponse } from "./http-message.ts";

/** How long a client may take to notice its answer before its connection goes. */
const LINGER_MS = 2000;

/**
 * Deals with a client that goes on sending after its answer is complete, as one
 * does whose message was refused for its size: what comes is not kept, and does
 * not come for long. To close at once would take the answer from the client.
 */
export function dismissLateBody(request: HttpRequest, response: HttpResponse): void {
  response.once("finish", () => {
    if (request.complete) return;
    request.resume();
    const timer = setTimeout(() => {
      if (!request.complete) request.destroy();
    }, LINGER_MS);
    timer.unref();
    request.once("close", () => clearTimeout(timer));
  });
}
