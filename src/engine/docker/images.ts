import type { Readable } from "node:stream";
import { promisify } from "node:util";
import type Docker from "dockerode";
import type { ImageInspectInfo } from "dockerode";
import { untilAborted } from "../../base/async.ts";
import { abortError, BerthError, canceled, hasReason } from "../../base/errors.ts";
import type { Logger } from "../../base/logger.ts";
import type { EnsureImageOptions, PullProgress } from "../port.ts";
import { jsonLines, readText } from "./answers.ts";
import type { CallOptions, Daemon } from "./daemon.ts";
import {
  answerTo,
  daemonWords,
  hadLongAnswer,
  LongAnswerError,
  NoAnswerError,
  translateError,
} from "./errors.ts";

/** Valid image names. They contain nothing that could redirect a request. */
const REFERENCE =
  /^[a-zA-Z0-9][\w.-]*(:\d+)?(\/[a-z0-9][a-z0-9._-]*)*(:\w[\w.-]{0,127})?(@[a-z0-9+._-]+:[a-f0-9]{32,})?$/;

/** How long the last answer about an image is reused: a create first ensures the image, and then asks for its facts. */
const RECENT_MS = 1_000;

/**
 * How long the description of an image may be, and how many labels, volumes and ports together it may have. Docker
 * repeats these in its answers about each container of the image, and in their events.
 */
const MAX_DESCRIPTION_BYTES = 128 * 1024;
const MAX_ENTRIES = 256;
/** The description with the image's names. */
const MAX_NAMED_BYTES = 2 << 20;

/** What sandboxes need to know about an image. */
interface ImageFacts {
  /** Always means this image, unlike its name. */
  readonly id: string;
  /** Its `USER`; empty: root. */
  readonly user: string;
  /** Its environment, as `NAME=value`. */
  readonly env: readonly string[];
}

interface Pull {
  readonly done: Promise<void>;
  readonly abort: AbortController;
  readonly listeners: Set<(progress: PullProgress) => void>;
  waiters: number;
}

/** Looks up and pulls the images of a daemon. Concurrent pulls of the same image are shared. */
export class Images {
  readonly #daemon: Daemon;
  readonly #logger: Logger;
  readonly #timeouts: PullTimeouts;
  readonly #pulls = new Map<string, Pull>();
  #recent: { readonly image: string; readonly facts: ImageFacts; readonly at: number } | undefined;

  constructor(daemon: Daemon, logger: Logger, timeouts: PullTimeouts) {
    this.#daemon = daemon;
    this.#logger = logger;
    this.#timeouts = timeouts;
  }

  /** The facts about an image, at most a second old. @throws `IMAGE_UNAVAILABLE` if it is not present. */
  async facts(image: string, options?: CallOptions): Promise<ImageFacts> {
    const recent = this.#recent;
    if (recent?.image === image && performance.now() - recent.at < RECENT_MS) return recent.facts;
    return this.#inspect(image, options);
  }

  async #inspect(image: string, options?: CallOptions): Promise<ImageFacts> {
    if (!REFERENCE.test(image)) throw noImageName(image);
    try {
      const found = await this.#daemon.call(
        "looking up an image",
        (docker, abortSignal) => inspectImage(docker, image, abortSignal),
        options,
      );
      const facts = { id: found.Id, user: found.Config?.User ?? "", env: found.Config?.Env ?? [] };
      this.#recent = { image, facts, at: performance.now() };
      return facts;
    } catch (error) {
      if (hadLongAnswer(error)) throw unwieldy(image, error);
      switch (answerTo(error)?.statusCode) {
        case 400:
          throw noImageName(image, error);
        case 404:
          throw new BerthError(
            "IMAGE_UNAVAILABLE",
            `The image "${image}" is not on the engine's machine. Pull it there with: docker pull ${image}`,
            { metadata: { image }, cause: error },
          );
        default:
          throw error;
      }
    }
  }

  /**
   * Pulls the image unless it is present. Callers for the same image share one pull, which is aborted when the last
   * caller leaves.
   */
  async ensure(image: string, { signal, onProgress }: EnsureImageOptions): Promise<void> {
    try {
      await this.#inspect(image, { signal });
      return;
    } catch (error) {
      if (!hasReason(error, "IMAGE_UNAVAILABLE")) throw error;
    }
    const pull = this.#pulls.get(image) ?? this.#startPull(image);
    pull.waiters++;
    if (onProgress) pull.listeners.add(onProgress);
    try {
      await untilAborted(pull.done, signal);
    } finally {
      if (onProgress) pull.listeners.delete(onProgress);
      if (--pull.waiters === 0) {
        // No caller may join a pull that is being aborted.
        if (this.#pulls.get(image) === pull) this.#pulls.delete(image);
        pull.abort.abort(canceled());
      }
    }
  }

  #startPull(image: string): Pull {
    const abort = new AbortController();
    const listeners: Pull["listeners"] = new Set();
    const report = (progress: PullProgress) => {
      for (const listener of listeners) listener(progress);
    };
    this.#logger.info({ image }, "pulling an image");
    const done = pullImage(this.#daemon, image, this.#timeouts, report, abort.signal);
    const pull: Pull = { done, abort, listeners, waiters: 0 };
    this.#pulls.set(image, pull);
    const forget = () => {
      if (this.#pulls.get(image) === pull) this.#pulls.delete(image);
    };
    done.then(
      () => {
        forget();
        this.#logger.info({ image }, "pulled an image");
      },
      (error: unknown) => {
        forget();
        this.#logger.warn({ image, err: error }, "could not pull an image");
      },
    );
    return pull;
  }
}

/** @throws `LongAnswerError` for an image that exceeds the limits. */
async function inspectImage(
  docker: Docker,
  image: string,
  abortSignal: AbortSignal,
): Promise<ImageInspectInfo> {
  const dial = promisify(docker.modem.dial.bind(docker.modem));
  const response = await dial({
    path: `/images/${image}/json`,
    method: "GET",
    isStream: true,
    abortSignal,
    statusCodes: { 200: true },
  });
  const text = await readText(response as Readable, MAX_NAMED_BYTES);
  // Containers do not repeat the names, and whoever may pull the image can add some.
  const description = text.replace(/"Repo(Tags|Digests)":\[[^\]]*\]/g, '"Repo$1":[]');
  if (description.length > MAX_DESCRIPTION_BYTES) throw new LongAnswerError("the description is too long");
  const found: ImageInspectInfo = JSON.parse(description);
  const { Labels, Volumes, ExposedPorts } = found.Config ?? {};
  const entries = Object.keys({ ...Labels, ...Volumes, ...ExposedPorts }).length;
  if (entries > MAX_ENTRIES) throw new LongAnswerError(`there are ${entries} labels, volumes and ports`);
  return found;
}

function unwieldy(image: string, cause: unknown): BerthError {
  return new BerthError(
    "INVALID_ARGUMENT",
    `spec.image: the image "${image}" has too many settings for a sandbox. At most ${MAX_ENTRIES} labels, volumes and ports together are allowed, and ${MAX_DESCRIPTION_BYTES / 1024} KiB in all.`,
    { metadata: { field: "spec.image" }, cause },
  );
}

function noImageName(image: string, cause?: unknown): BerthError {
  return new BerthError(
    "INVALID_ARGUMENT",
    `spec.image: ${JSON.stringify(image)} is not the name of an image.`,
    {
      metadata: { field: "spec.image" },
      cause,
    },
  );
}

/** How long a pull may stall, in milliseconds. */
interface PullTimeouts {
  /** Until the registry first answers. */
  readonly firstAnswerMs: number;
  /** Between two signs of progress afterwards. */
  readonly stallMs: number;
}

const REPORT_INTERVAL_MS = 200;

/** The longest possible timer: the pull has its own timeouts. */
const UNBOUNDED_MS = 2 ** 31 - 1;

/**
 * Pulls an image. Fails with `IMAGE_UNAVAILABLE` when the registry refuses, cannot be reached, or stalls for longer
 * than the timeouts allow. An abort of the signal aborts the pull in Docker too.
 */
async function pullImage(
  daemon: Daemon,
  image: string,
  timeouts: PullTimeouts,
  report: (progress: PullProgress) => void,
  signal: AbortSignal,
): Promise<void> {
  const stop = new AbortController();
  const onAbort = () => stop.abort(abortError(signal));
  signal.addEventListener("abort", onAbort, { once: true });
  const stall = () => stop.abort(new NoAnswerError("the registry stalls"));
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
  } catch (cause) {
    if (stop.signal.reason instanceof NoAnswerError) throw unreachable(image, cause);
    if (signal.aborted) throw abortError(signal);
    const error = translateError(cause, "pulling an image");
    if (hadLongAnswer(error)) throw refused(image, "the answer is too long", error);
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
    `The registry does not provide the image "${image}": ${problem}, or try on the engine's machine: docker pull ${image}`,
    { metadata: { image }, cause },
  );
}

function unreachable(image: string, cause: unknown): BerthError {
  return new BerthError(
    "IMAGE_UNAVAILABLE",
    `The image "${image}" is not on the engine's machine and its registry cannot be reached from there. ` +
      "Check that machine's network, or load the image there with: docker load",
    { metadata: { image }, cause, retryAfterMs: 10_000 },
  );
}

/** One line of Docker's progress report during a pull. */
interface PullMessage {
  readonly id?: string;
  readonly status?: string;
  readonly progressDetail?: { readonly current?: number; readonly total?: number };
  readonly error?: string;
}

interface Layer {
  currentBytes: number;
  totalBytes: number;
  done: boolean;
}

class PullLayers {
  readonly #layers = new Map<string, Layer>();

  apply({ id, status, progressDetail }: PullMessage): void {
    if (id === undefined || status === undefined || status.startsWith("Pulling from")) return;
    const layer = this.#layers.get(id) ?? { currentBytes: 0, totalBytes: 0, done: false };
    this.#layers.set(id, layer);
    switch (status) {
      case "Downloading":
        layer.currentBytes = progressDetail?.current ?? layer.currentBytes;
        layer.totalBytes = progressDetail?.total ?? layer.totalBytes;
        return;
      case "Download complete":
        layer.currentBytes = layer.totalBytes;
        return;
      case "Pull complete":
      case "Already exists":
        layer.done = true;
        return;
    }
  }

  progress(): PullProgress {
    const layers = [...this.#layers.values()];
    const sum = (of: (layer: Layer) => number) => layers.reduce((total, layer) => total + of(layer), 0);
    return {
      currentBytes: sum((layer) => layer.currentBytes),
      totalBytes: sum((layer) => layer.totalBytes),
      layersDone: sum((layer) => Number(layer.done)),
      layersTotal: layers.length,
    };
  }
}
