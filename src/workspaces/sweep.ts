import { setTimeout as sleep } from "node:timers/promises";
import type { Logger } from "../base/logger.ts";
import type { WorkspaceFiles } from "./files-port.ts";
import type { WorkspaceStore } from "./store.ts";
import { isShared } from "./workspace.ts";

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

  /** Begins; every workspace and shared directory is looked through once. */
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
    for (const record of store.all()) {
      if (signal.aborted) return;
      if (record.state !== "ACTIVE") continue;
      const begin = performance.now();
      let directory: string | undefined;
      try {
        directory = isShared(record) ? await files.sharedPathOf(record) : files.pathOf(record);
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
