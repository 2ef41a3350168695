import { setTimeout as sleep } from "node:timers/promises";
import type { Logger } from "../ports/logger.ts";
import type { WorkspaceFiles } from "../ports/workspace-files.ts";
import type { WorkspaceStore } from "../ports/workspace-store.ts";

/** After a look the sweep rests for so many times what it took. */
const REST_FACTOR = 9;

/**
 * Removes, after the start, the temporary files that earlier lives of the
 * service left in workspaces and shared directories when they, or their
 * sandboxes, were killed in the middle of a write.
 */
export class WorkspaceSweep {
  readonly #parts: {
    readonly store: WorkspaceStore;
    readonly files: WorkspaceFiles;
    readonly isLeftBehind: (name: string) => boolean;
    readonly logger: Logger;
  };
  readonly #stop = new AbortController();
  #sweeping: Promise<void> = Promise.resolve();

  constructor(parts: {
    readonly store: WorkspaceStore;
    readonly files: WorkspaceFiles;
    /** Whether the name of a file says that an earlier life of the service made it. */
    readonly isLeftBehind: (name: string) => boolean;
    readonly logger: Logger;
  }) {
    this.#parts = parts;
  }

  /** Begins; every workspace is looked through once. */
  start(): void {
    this.#sweeping = this.#sweep();
  }

  async stop(): Promise<void> {
    this.#stop.abort();
    await this.#sweeping;
  }

  async #sweep(): Promise<void> {
    const { store, files, isLeftBehind, logger } = this.#parts;
    const { signal } = this.#stop;
    const active = store.all().filter(({ state }) => state === "ACTIVE");
    const owners = new Set(active.map(({ owner }) => owner));
    const directories = [
      ...Array.from(owners, (owner) => () => files.sharedPathOf(owner)),
      ...active.map((record) => async () => files.pathOf(record)),
    ];
    for (const locate of directories) {
      if (signal.aborted) return;
      const begin = performance.now();
      let directory: string | undefined;
      try {
        directory = await locate();
        const count = await files.sweep(directory, isLeftBehind, signal);
        if (count > 0) logger.info({ directory, count }, "removed temporary files of an earlier run");
      } catch (error) {
        if (!signal.aborted) logger.debug({ directory, err: error }, "a directory was not swept");
      }
      const restMs = (performance.now() - begin) * REST_FACTOR;
      await sleep(restMs, undefined, { signal, ref: false }).catch(() => {});
    }
  }
}
