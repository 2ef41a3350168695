import type { CoreV1Event, CoreV1EventList } from "@kubernetes/client-node";
import { rest } from "../../base/async.ts";
import type { Api } from "./api.ts";
import { ApiError, isRefusal, quoted } from "./errors.ts";

const RETRY_MS = 2_000;
/** Pause before a retry without the permission, which may be granted later. */
const NO_RIGHT_RETRY_MS = 60_000;
/** How long the watch continues after the last listener has left: creates come in bursts. */
const LINGER_MS = 30_000;

/**
 * Kubernetes' warnings about pods that are starting, from a single watch for all of them: to list the events of one
 * pod, an API server searches all events of the namespace. Without the permission to see events there are no warnings.
 */
export class PodWarnings {
  readonly #api: Api;
  /** Listeners by the pod's name. */
  readonly #listeners = new Map<string, { readonly heard: (words: string) => void; last?: string }>();
  #watching: AbortController | undefined;
  #over: NodeJS.Timeout | undefined;

  constructor(api: Api) {
    this.#api = api;
  }

  /** Calls `heard` with warnings about a pod from now on, until the result is disposed. */
  listen(pod: string, heard: (words: string) => void): Disposable {
    this.#listeners.set(pod, { heard });
    clearTimeout(this.#over);
    if (this.#watching === undefined) {
      this.#watching = new AbortController();
      void this.#watch(this.#watching.signal);
    }
    return {
      [Symbol.dispose]: () => {
        this.#listeners.delete(pod);
        if (this.#listeners.size === 0) this.#over = setTimeout(() => this.close(), LINGER_MS).unref();
      },
    };
  }

  /** The latest warning about a pod that has a listener. */
  lastOf(pod: string): string | undefined {
    return this.#listeners.get(pod)?.last;
  }

  close(): void {
    clearTimeout(this.#over);
    this.#watching?.abort();
    this.#watching = undefined;
  }

  async #watch(signal: AbortSignal): Promise<void> {
    const path = this.#api.path("events");
    let version: string | undefined;
    while (!signal.aborted) {
      const began = performance.now();
      let pauseMs = 0;
      try {
        version ??= await this.#now(path, signal);
        const query = {
          fieldSelector: "type=Warning",
          resourceVersion: version,
          allowWatchBookmarks: "true",
        };
        for await (const { type, object } of this.#api.watch<CoreV1Event>(path, query, signal)) {
          if (type === "ERROR") throw ApiError.of((object as { code?: number }).code ?? 0, "");
          version = object.metadata.resourceVersion ?? version;
          const { reason = "", message = "", involvedObject } = object;
          const listener = this.#listeners.get(involvedObject?.name ?? "");
          if (type === "BOOKMARK" || listener === undefined) continue;
          listener.last = quoted(`${reason}: ${message}`);
          listener.heard(listener.last);
        }
      } catch (error) {
        version = undefined;
        pauseMs = isRefusal(error, 403) ? NO_RIGHT_RETRY_MS : RETRY_MS;
      }
      // Pause before a retry if the watch ended at once.
      if (performance.now() - began < RETRY_MS) pauseMs ||= RETRY_MS;
      await rest(pauseMs, signal);
    }
  }

  /** The version from which a watch reports only new events. */
  async #now(path: string, signal: AbortSignal): Promise<string> {
    const list = await this.#api.call<CoreV1EventList>("GET", `${path}?limit=1`, "reading events", {
      signal,
    });
    return list.metadata?.resourceVersion ?? "0";
  }
}
