import type { V1Pod } from "@kubernetes/client-node";
import { untilAborted } from "../../base/async.ts";
import type { Api } from "./api.ts";
import { containerStatus, newPodName, type PodFacts, probePod } from "./pod.ts";
import type { Pods } from "./pods.ts";
import { PROBE_COMMAND } from "./scripts.ts";
import { startFailed, untilStarted } from "./start.ts";
import type { PodWarnings } from "./warnings.ts";

/** A tag may move. */
const KNOWN_FOR_MS = 10 * 60_000;
/** Images whose users are remembered. */
const MAX_IMAGES = 1_000;
/** A first pull takes minutes. */
const PULL_TIMEOUT_MS = 15 * 60_000;

/** What {@link ImageUsers} is made of. */
interface ImageUsersParts {
  readonly api: Api;
  readonly pods: Pods;
  readonly warnings: PodWarnings;
  readonly facts: PodFacts;
  /** Removes a probe. */
  remove(name: string): Promise<void>;
}

/**
 * The user of an image's processes, which the API does not say: a probe's pod runs it once and reports. That
 * also shows that some node can have the image.
 */
export class ImageUsers {
  readonly #parts: ImageUsersParts;
  readonly #known = new Map<string, { readonly user: string; readonly at: number }>();
  /** Callers that ask for the same image share one probe. */
  readonly #asking = new Map<string, Promise<string>>();

  constructor(parts: ImageUsersParts) {
    this.#parts = parts;
  }

  /** The image's user as `uid:gid`; empty: root. @throws as {@link untilStarted} */
  async of(image: string, signal?: AbortSignal): Promise<string> {
    const known = this.#known.get(image);
    if (known !== undefined && performance.now() - known.at < KNOWN_FOR_MS) return known.user;
    const asking = this.#asking.get(image) ?? this.#ask(image).finally(() => this.#asking.delete(image));
    this.#asking.set(image, asking);
    return untilAborted(asking, signal);
  }

  async #ask(image: string): Promise<string> {
    const { api, pods, warnings, facts, remove } = this.#parts;
    const name = newPodName();
    try {
      const body = probePod(name, image, PROBE_COMMAND, facts);
      await api.call<V1Pod>("POST", api.path("pods"), "probing an image", { body });
      const pod = await untilStarted({ api, pods, warnings, timeoutMs: PULL_TIMEOUT_MS }, name, image, true);
      const ids = containerStatus(pod)?.state?.terminated?.message ?? "";
      if (!/^\d+:\d+$/.test(ids)) throw startFailed("its image does not report its user", ids);
      const user = ids === "0:0" ? "" : ids;
      if (this.#known.size >= MAX_IMAGES) this.#known.clear();
      this.#known.set(image, { user, at: performance.now() });
      return user;
    } finally {
      await remove(name);
    }
  }
}
