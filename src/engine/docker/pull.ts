import type { Readable } from "node:stream";
import { abortError, BerthError } from "../../base/errors.ts";
import type { PullProgress } from "../port.ts";
import type { Daemon } from "./daemon.ts";
import { answerTo, daemonWords, NoAnswerError } from "./errors.ts";
import { jsonLines } from "./json-lines.ts";
import { PullLayers, type PullMessage } from "./pull-layers.ts";

/** How long a pull may stand still. */
export interface PullTimeouts {
  /** Until the registry first answers. */
  readonly firstAnswerMs: number;
  /** Between two signs of progress afterwards. */
  readonly stallMs: number;
}

/** Least time between two reports of progress. */
const REPORT_INTERVAL_MS = 200;

/** What a daemon waits for where nothing else bounds it. */
const UNBOUNDED_MS = 2 ** 31 - 1;

/**
 * Pulls an image. Fails with `IMAGE_UNAVAILABLE` when the registry refuses,
 * cannot be reached, or stands still for longer than the timeouts allow.
 * Docker gives the pull up when the signal is aborted.
 */
export async function pullImage(
  daemon: Daemon,
  image: string,
  timeouts: PullTimeouts,
  report: (progress: PullProgress) => void,
  signal: AbortSignal,
): Promise<void> {
  const stop = new AbortController();
  const onAbort = () => stop.abort(abortError(signal));
  signal.addEventListener("abort", onAbort, { once: true });
  const stall = () => stop.abort(new NoAnswerError("the registry stands still"));
  let timer = setTimeout(stall, timeouts.firstAnswerMs);
  try {
    const stream = await daemon.call(
      "pulling an image",
      (docker, abortSignal) => docker.pull(image, { abortSignal }),
      { signal: stop.signal, timeoutMs: UNBOUNDED_MS },
    );
    const layers = new PullLayers();
    let reportedMs = 0;
    stop.signal.addEventListener("abort", () => (stream as Readable).destroy(), { once: true });
    for await (const message of jsonLines<PullMessage>(stream)) {
      clearTimeout(timer);
      timer = setTimeout(stall, timeouts.stallMs);
      if (message.error) throw refused(image, message.error);
      layers.apply(message);
      if (performance.now() - reportedMs < REPORT_INTERVAL_MS) continue;
      reportedMs = performance.now();
      report(layers.progress());
    }
    if (stop.signal.aborted) throw stop.signal.reason;
    report(layers.progress());
  } catch (error) {
    if (stop.signal.reason instanceof NoAnswerError) throw unreachable(image, error);
    if (signal.aborted) throw abortError(signal);
    const answer = answerTo(error);
    throw answer ? refused(image, answer.text, error) : error;
  } finally {
    clearTimeout(timer);
    signal.removeEventListener("abort", onAbort);
  }
}

function refused(image: string, text: string, cause: unknown = new Error(text)): BerthError {
  if (/dial tcp|lookup |i\/o timeout|timeout exceeded|connection re|TLS handshake|EOF/i.test(text)) {
    return unreachable(image, cause);
  }
  if (/no space left/i.test(text)) {
    return new BerthError("NO_SPACE", `The disk is too full for the image "${image}".`, { cause });
  }
  const problem = /denied|unauthorized|unknown|not found|not exist|no basic auth/i.test(text)
    ? "it does not exist there, or needs a login. Check the name"
    : `${daemonWords(text)}. Check the registry`;
  return new BerthError(
    "IMAGE_UNAVAILABLE",
    `The registry does not give out the image "${image}": ${problem}, or try on the engine's machine: docker pull ${image}`,
    { metadata: { image }, cause },
  );
}

function unreachable(image: string, cause: unknown): BerthError {
  return new BerthError(
    "IMAGE_UNAVAILABLE",
    `The image "${image}" is not on the engine's machine and its registry cannot be reached from there. ` +
      "Check that machine's network, or bring the image over with: docker load",
    { metadata: { image }, cause, retryAfterMs: 10_000 },
  );
}
