import type { ImageInspectOptions } from "dockerode";
import { BerthError, canceled } from "../../base/errors.ts";
import type { Logger } from "../../base/logger.ts";
import { untilAborted } from "../../base/until.ts";
import type { EnsureImageOptions, PullProgress } from "../port.ts";
import type { CallOptions, Daemon } from "./daemon.ts";
import { answerTo } from "./errors.ts";
import { type PullTimeouts, pullImage } from "./pull.ts";

/** Names of images as Docker takes them, and nothing that would lead a request elsewhere. */
const REFERENCE =
  /^[a-zA-Z0-9][\w.-]*(:\d+)?(\/[a-z0-9][a-z0-9._-]*)*(:\w[\w.-]{0,127})?(@[a-z0-9+._-]+:[a-f0-9]{32,})?$/;

/** What is to be known of an image. */
export interface ImageFacts {
  /** Its `USER`; empty: root. */
  readonly user: string;
}

interface Pull {
  readonly done: Promise<void>;
  readonly abort: AbortController;
  readonly listeners: Set<(progress: PullProgress) => void>;
  waiters: number;
}

/** The images of a daemon: looks them up and pulls them, each once however many ask for it. */
export class Images {
  readonly #daemon: Daemon;
  readonly #logger: Logger;
  readonly #timeouts: PullTimeouts;
  readonly #pulls = new Map<string, Pull>();

  constructor(daemon: Daemon, logger: Logger, timeouts: PullTimeouts) {
    this.#daemon = daemon;
    this.#logger = logger;
    this.#timeouts = timeouts;
  }

  /** @throws `IMAGE_UNAVAILABLE` where the image is not there. */
  async inspect(image: string, options?: CallOptions): Promise<ImageFacts> {
    if (!REFERENCE.test(image)) throw noImageName(image);
    try {
      const found = await this.#daemon.call(
        "looking up an image",
        (docker, abortSignal) => {
          const request: ImageInspectOptions & { abortSignal: AbortSignal } = { abortSignal };
          return docker.getImage(image).inspect(request);
        },
        options,
      );
      return { user: found.Config?.User ?? "" };
    } catch (error) {
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

  /** Makes sure that the image is there. Callers of one image share one pull, which ends when the last of them leaves. */
  async ensure(image: string, { signal, onProgress }: EnsureImageOptions): Promise<void> {
    try {
      await this.inspect(image, { signal });
      return;
    } catch (error) {
      if (!(error instanceof BerthError) || error.reason !== "IMAGE_UNAVAILABLE") throw error;
    }
    const pull = this.#pulls.get(image) ?? this.#startPull(image);
    pull.waiters++;
    if (onProgress) pull.listeners.add(onProgress);
    try {
      await untilAborted(pull.done, signal);
    } finally {
      if (onProgress) pull.listeners.delete(onProgress);
      if (--pull.waiters === 0) {
        // Nobody may join a pull that is being given up.
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
        this.#logger.warn({ image, err: error }, "an image could not be pulled");
      },
    );
    return pull;
  }
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
