import { setImmediate, setTimeout as sleep } from "node:timers/promises";
import { throwIfAborted } from "../base/errors.ts";
import { noteStreamed } from "../base/memory.ts";
import type { Call } from "./call.ts";
import { untilAborted } from "./error-boundary.ts";
import type { FairQueue } from "./fair-queue.ts";
import type { HttpRequest } from "./http-message.ts";
import type { ReceiveBudget } from "./limits.ts";
import type { Route } from "./routes.ts";

/**
 * A Node client that cancels a stream over HTTP/2 ends it first as if it were
 * whole, and resets it a moment later. Berth waits this long for the reset, so that
 * half an upload does not pass for a whole one; and again where a wait took twice as
 * long, as on a machine that is as slow for the client.
 */
const RESET_GRACE_MS = 10;
const MAX_GRACES = 5;

async function graceForReset(): Promise<void> {
  for (let waits = 0; waits < MAX_GRACES; waits++) {
    const sinceMs = performance.now();
    await sleep(RESET_GRACE_MS);
    // A reset that came meanwhile is read after the timers and before this.
    await setImmediate();
    if (performance.now() - sinceMs < 2 * RESET_GRACE_MS) return;
  }
}

/** What reading a request needs beside the call. */
export interface RequestBytesOptions {
  readonly receiving: ReceiveBudget;
  /** Undefined: all callers are one tenant's. */
  readonly queue: FairQueue | undefined;
}

/** The body of a request until its call is over, as it comes. @throws what ended the call, and what the budget throws */
export async function* requestBytes(
  route: Route,
  call: Call,
  request: HttpRequest,
  { receiving, queue }: RequestBytesOptions,
): AsyncGenerator<Uint8Array> {
  const account = receiving.open();
  // A handler that refuses its call may leave the rest unread, and this generator where it is.
  call.signal.addEventListener("abort", account.close, { once: true });
  let size = 0;
  // Destroying the request would take its connection along, and with it the error response.
  const chunks: AsyncIterator<Buffer> = request.iterator({ destroyOnReturn: false });
  try {
    for (;;) {
      const { done, value } = await untilAborted(chunks.next(), call.signal);
      if (done) break;
      throwIfAborted(call.signal);
      // Of a stream of messages, the library never holds more than the one that is coming.
      account.charge(Math.min(size + value.length, route.readMaxBytes) - Math.min(size, route.readMaxBytes));
      size += value.length;
      noteStreamed(value.length);
      await queue?.again(call);
      yield value;
    }
    if (call.streamsRequests && request.httpVersionMajor === 2) {
      await untilAborted(graceForReset(), call.signal);
    }
  } finally {
    call.signal.removeEventListener("abort", account.close);
    account.close();
    void chunks.return?.().catch(() => {});
  }
}
