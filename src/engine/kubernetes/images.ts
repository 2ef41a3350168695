import type { V1Pod } from "@kubernetes/client-node";
import { untilAborted } from "../../base/async.ts";
import { throwIfAborted } from "../../base/errors.ts";
import type { Api } from "./api.ts";
import { containerStatus, type IsolationSpec, type PodFacts, probePod } from "./pod.ts";
import type { Pods } from "./pods.ts";
import { startFailed, untilStarted } from "./start.ts";
import type { PodWarnings } from "./warnings.ts";

/** How long an image's user is cached. A tag may be moved to another image. */
const KNOWN_FOR_MS = 10 * 60_000;
const MAX_IMAGES = 1_000;

interface ImageUsersParts {
  readonly api: Api;
  readonly pods: Pods;
  readonly warnings: PodWarnings;
  readonly facts: PodFacts;
  /** How long it may take to schedule a probe to a node. */
  readonly startTimeoutMs: number;
  /** How long a probe may take, which may have to wait for a first pull. */
  readonly pullTimeoutMs: number;
  /** Returns a new pod name for a probe. */
  newName(): string;
  /** Removes a probe. */
  remove(name: string): Promise<void>;
}

/** A running probe, and how many callers wait for it. */
interface Probe {
  readonly user: Promise<string>;
  readonly abort: AbortController;
  waiting: number;
}

/**
 * Finds the user of an image's processes, which the API does not report, by running the image once in a probe pod. This
 * also shows that a node can pull the image.
 */
export class ImageUsers {
  readonly #parts: ImageUsersParts;
  readonly #known = new Map<string, { readonly user: string; readonly at: number }>();
  /** Callers for the same image and runtime share one probe, which ends when none of them waits any more. */
  readonly #probes = new Map<string, Probe>();

  constructor(parts: ImageUsersParts) {
    this.#parts = parts;
  }

  /**
   * Returns the image's user as `uid` or `uid:gid`; empty: root.
   * @param sandbox the network and the runtime of a sandbox that may run the image.
   * @throws as {@link untilStarted}
   */
  async of(image: string, sandbox: IsolationSpec, signal?: AbortSignal): Promise<string> {
    const key = JSON.stringify([image, sandbox.runtime]);
    const known = this.#known.get(key);
    if (known !== undefined && performance.now() - known.at < KNOWN_FOR_MS) return known.user;
    throwIfAborted(signal);
    const probe = this.#probes.get(key) ?? this.#start(key, image, sandbox);
    probe.waiting++;
    try {
      return await untilAborted(probe.user, signal);
    } finally {
      probe.waiting--;
      if (probe.waiting === 0) {
        probe.abort.abort();
        this.#forget(key, probe);
      }
    }
  }

  #start(key: string, image: string, sandbox: IsolationSpec): Probe {
    const abort = new AbortController();
    const user = this.#ask(image, sandbox, abort.signal).then((found) => {
      if (this.#known.size >= MAX_IMAGES) this.#known.clear();
      this.#known.set(key, { user: found, at: performance.now() });
      return found;
    });
    const probe = { user, abort, waiting: 0 };
    this.#probes.set(key, probe);
    probe.user.catch(() => {}).finally(() => this.#forget(key, probe));
    return probe;
  }

  #forget(key: string, probe: Probe): void {
    if (this.#probes.get(key) === probe) this.#probes.delete(key);
  }

  async #ask(image: string, sandbox: IsolationSpec, signal: AbortSignal): Promise<string> {
    const { api, pods, warnings, facts, newName, remove } = this.#parts;
    const { startTimeoutMs: scheduleMs, pullTimeoutMs: timeoutMs } = this.#parts;
    const name = newName();
    try {
      const body = probePod(name, image, sandbox, timeoutMs, facts);
      await api.call<V1Pod>("POST", api.path("pods"), "probing an image", { body });
      const limits = { timeoutMs, scheduleMs, signal };
      const pod = await untilStarted({ api, pods, warnings, ...limits }, name, image, true);
      const ids = containerStatus(pod)?.state?.terminated?.message ?? "";
      if (!/^\d+(:\d+)?$/.test(ids)) throw startFailed("its image does not report its user", ids);
      return /^0(:0)?$/.test(ids) ? "" : ids;
    } finally {
      await remove(name);
    }
  }
}
