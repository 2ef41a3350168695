import type { V1ContainerStatus, V1Pod } from "@kubernetes/client-node";
import { rest, untilAborted } from "../../base/async.ts";
import { abortError, type BerthError, throwIfAborted } from "../../base/errors.ts";
import type { Logger } from "../../base/logger.ts";
import type { Api, WatchEvent } from "./api.ts";
import { ApiError, isRefusal, NoAnswerError, translateError } from "./errors.ts";
import { CONTAINER, INSTANCE_LABEL, instanceLabel, refOf } from "./pod.ts";

const MAX_RETRY_MS = 5_000;
/** After a watch that lasted this long, the next one starts at once. */
const CALM_MS = 5_000;
/** How long the first list may take before callers that need it fail. */
const FIRST_LOOK_MS = 30_000;

/** A change of a pod: its latest state, and whether it is gone. */
export interface PodChange {
  readonly pod: V1Pod;
  readonly before: V1Pod | undefined;
  readonly gone: boolean;
}

/**
 * Receives changes. `lost` is called when the connection breaks; changes that happen meanwhile are reported once it is
 * back.
 */
interface PodListener {
  changed(change: PodChange): void;
  lost?(error: BerthError): void;
}

/**
 * The pods of an instance, kept current by a single watch: it lists once and then receives every change in order. If
 * the API server no longer knows the changes since the last one (410), it lists again and reports the differences.
 */
export class Pods {
  readonly #api: Api;
  readonly #selector: string;
  readonly #logger: Logger;
  /** Pods by ref. */
  readonly #pods = new Map<string, V1Pod>();
  readonly #listeners = new Set<PodListener>();
  readonly #stop = new AbortController();
  #following = false;
  #isListed = false;
  /** Settles when the pods have been listed once, or when that failed. */
  readonly #tried = Promise.withResolvers<void>();
  #broken: BerthError | undefined;

  constructor(api: Api, instance: string, logger: Logger) {
    this.#api = api;
    this.#selector = `${INSTANCE_LABEL}=${instanceLabel(instance)}`;
    this.#logger = logger;
  }

  /** Why the watch does not receive changes at present; undefined while it does. */
  get broken(): BerthError | undefined {
    return this.#broken;
  }

  /** All known pods, in their latest state. */
  get all(): Iterable<V1Pod> {
    return this.#pods.values();
  }

  /** The latest state of a pod; undefined if there is no such pod. */
  get(ref: string): V1Pod | undefined {
    return this.#pods.get(ref);
  }

  /** Watches the pods from now on. @throws `ENGINE_UNAVAILABLE` if they could not be listed yet. */
  async follow(signal?: AbortSignal): Promise<void> {
    if (!this.#following) {
      this.#following = true;
      void this.#run();
    }
    if (this.#isListed) return;
    const late = AbortSignal.timeout(FIRST_LOOK_MS);
    const limit = signal === undefined ? late : AbortSignal.any([signal, late]);
    await untilAborted(this.#tried.promise, limit).catch((error: unknown) => {
      if (signal?.aborted || !late.aborted) throw error;
      throw translateError(new NoAnswerError(), "listing pods");
    });
    if (!this.#isListed && this.#broken !== undefined) throw this.#broken;
  }

  async list(signal?: AbortSignal): Promise<V1Pod[]> {
    const { items } = await this.#list(signal);
    return items;
  }

  listen(listener: PodListener): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /**
   * Waits until `find` returns something for a pod's state. Its argument is undefined while the pod does not exist, or
   * no longer does.
   * @param isPod whether this is the pod to wait for.
   */
  async until<T>(
    isPod: (pod: V1Pod) => boolean,
    find: (pod: V1Pod | undefined) => T | undefined,
    signal?: AbortSignal,
  ): Promise<T> {
    const { promise, resolve, reject } = Promise.withResolvers<T>();
    const look = (pod: V1Pod | undefined): void => {
      try {
        const found = find(pod);
        if (found !== undefined) resolve(found);
      } catch (error) {
        reject(error);
      }
    };
    const stop = this.listen({ changed: ({ pod, gone }) => isPod(pod) && look(gone ? undefined : pod) });
    const onAbort = (): void => reject(signal && abortError(signal));
    signal?.addEventListener("abort", onAbort, { once: true });
    try {
      throwIfAborted(signal);
      look([...this.#pods.values()].find(isPod));
      return await promise;
    } finally {
      stop();
      signal?.removeEventListener("abort", onAbort);
    }
  }

  close(): void {
    this.#stop.abort();
  }

  async #run(): Promise<void> {
    const { signal } = this.#stop;
    let version: string | undefined;
    for (let retryMs = 0; !signal.aborted; ) {
      const began = performance.now();
      const lists = version === undefined;
      try {
        if (version === undefined) {
          const { items, resourceVersion } = await this.#list(signal);
          this.#replace(items);
          version = resourceVersion;
          this.#isListed = true;
          this.#tried.resolve();
        }
        for await (const event of this.#watch(version, signal)) {
          version = event.object.metadata?.resourceVersion ?? version;
          this.#take(event);
        }
      } catch (error) {
        if (signal.aborted) return;
        // The API server no longer has the changes since this version.
        if (isRefusal(error, 410)) {
          version = undefined;
          if (!lists) continue;
        } else {
          this.#lose(error);
        }
      }
      // Pause before a retry if the watch ended at once.
      retryMs = performance.now() - began >= CALM_MS ? 0 : Math.min(retryMs * 2 + 100, MAX_RETRY_MS);
      await rest(retryMs, signal);
    }
  }

  #watch(resourceVersion: string, signal: AbortSignal): AsyncGenerator<WatchEvent<V1Pod>> {
    const query = { labelSelector: this.#selector, resourceVersion, allowWatchBookmarks: "true" };
    return this.#api.watch<V1Pod>(this.#api.path("pods"), query, signal, () => {
      this.#broken = undefined;
    });
  }

  #list(signal?: AbortSignal): Promise<{ readonly items: V1Pod[]; readonly resourceVersion: string }> {
    return this.#api.list(this.#api.path("pods"), "listing pods", essence, {
      ...{ labelSelector: this.#selector, signal },
    });
  }

  #take({ type, object }: WatchEvent<V1Pod>): void {
    switch (type) {
      case "BOOKMARK":
        return;
      case "ERROR": {
        const {
          code = 0,
          message = "",
          reason = "",
        } = object as { code?: number; message?: string; reason?: string };
        throw new ApiError(code, reason, message);
      }
      case "DELETED":
        this.#change(essence(object), true);
        return;
      default:
        this.#change(essence(object), false);
    }
  }

  #replace(pods: readonly V1Pod[]): void {
    const there = new Set(pods.map(refOf));
    for (const [ref, pod] of this.#pods) if (!there.has(ref)) this.#change(pod, true);
    for (const pod of pods) {
      const known = this.#pods.get(refOf(pod));
      if (known?.metadata?.resourceVersion !== pod.metadata?.resourceVersion) this.#change(pod, false);
    }
  }

  #change(pod: V1Pod, gone: boolean): void {
    const ref = refOf(pod);
    const before = this.#pods.get(ref);
    if (gone) this.#pods.delete(ref);
    else this.#pods.set(ref, pod);
    for (const listener of [...this.#listeners]) listener.changed({ pod, before, gone });
  }

  #lose(error: unknown): void {
    const lost = translateError(error, "watching pods");
    if (this.#broken === undefined)
      this.#logger.warn({ err: lost }, "lost sight of the pods; Berth keeps retrying");
    this.#broken = lost;
    this.#tried.resolve();
    for (const listener of [...this.#listeners]) listener.lost?.(lost);
  }
}

/** The fields of a pod that the engine reads. Only these, a tenth of it, are kept for each of thousands of pods. */
function essence({ metadata = {}, spec, status = {} }: V1Pod): V1Pod {
  const {
    name,
    uid,
    resourceVersion,
    labels,
    annotations,
    creationTimestamp,
    deletionTimestamp,
    finalizers,
  } = metadata;
  const { phase, reason, message, conditions, containerStatuses, initContainerStatuses } = status;
  const main = spec?.containers.find((container) => container.name === CONTAINER);
  const statusOfMain = containerStatuses?.find((one) => one.name === CONTAINER);
  return {
    metadata: {
      ...{ name, uid, resourceVersion, labels, annotations, creationTimestamp },
      ...(deletionTimestamp !== undefined && { deletionTimestamp }),
      ...(finalizers !== undefined && { finalizers }),
    },
    spec: {
      ...{ nodeName: spec?.nodeName },
      containers: main === undefined ? [] : [{ name: CONTAINER, image: main.image, env: main.env }],
    },
    status: {
      ...{ phase, reason, message },
      // Conditions that hold need no reason or message.
      conditions: conditions?.map(({ type, status: holds, reason: why, message: words }) => ({
        ...{ type, status: holds },
        ...(why !== undefined && { reason: why, message: words }),
      })),
      ...(initContainerStatuses && {
        initContainerStatuses: initContainerStatuses.map(({ name: own, image, state }) => ({
          ...{ name: own, image, state },
        })),
      }),
      containerStatuses: statusOfMain && [
        {
          ...{ name: CONTAINER, ready: statusOfMain.ready, state: statusOfMain.state },
          resources: { limits: statusOfMain.resources?.limits },
        } as V1ContainerStatus,
      ],
    },
  } as V1Pod;
}
