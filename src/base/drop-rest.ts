import type { Readable } from "node:stream";
import { stayOpen } from "./async.ts";

/**
 * Drops what still arrives of a request, until its end or for `ms`. If its connection were closed before, the kernel would
 * reset it, and the client could lose the response.
 */
export async function dropRest(
  request: Readable & { readonly complete: boolean },
  ms: number,
): Promise<void> {
  if (request.complete) return;
  const ended = new AbortController();
  for (const event of ["end", "close"]) request.once(event, () => ended.abort());
  request.resume();
  await stayOpen(ms, ended.signal);
}
