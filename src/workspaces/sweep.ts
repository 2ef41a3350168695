import { rest } from "../base/async.ts";
import type { Logger } from "../base/logger.ts";
import type { WorkspaceStorage } from "./storage.ts";
import type { WorkspaceStore } from "./store.ts";

/** After each directory the sweep rests this many times as long as it took. */
const REST_FACTOR = 9;

interface WorkspaceSweepParts {
  readonly store: WorkspaceStore;
  readonly storage: WorkspaceStorage;
  /** Whether the name of a file shows that an earlier run of the service created it. */
  readonly isLeftBehind: (name: string) => boolean;
  readonly logger: Logger;
}

/**
 * After the start, removes temporary files from workspaces and shared directories. They stay behind if the service or a
 * sandbox is killed during a write.
 */
export class WorkspaceSweep {
  readonly #parts: WorkspaceSweepParts;
  readonly #stop = new AbortController();
  #sweeping: Promise<void> = Promise.resolve();

  constructor(parts: WorkspaceSweepParts) {
    this.#parts = parts;
  }

  /** Starts one pass over all workspaces and shared directories. After a stop, does nothing. */
  start(): void {
    if (this.#stop.signal.aborted) return;
    this.#sweeping = this.#sweep().catch((error: unknown) => {
      // The database cannot be read for now.
      this.#parts.logger.error({ err: error }, "workspaces are not swept: the next start tries again");
    });
  }

  async stop(): Promise<void> {
    this.#stop.abort();
    await this.#sweeping;
  }

  async #sweep(): Promise<void> {
    const { store, storage, isLeftBehind, logger } = this.#parts;
    const { signal } = this.#stop;
    for (const record of store.all()) {
      if (signal.aborted) return;
      if (record.state !== "ACTIVE") continue;
      const begin = performance.now();
      const { owner, workspaceId } = record;
      try {
        const count = await storage.sweep(record, isLeftBehind, signal);
        if (count > 0)
          logger.info({ owner, workspaceId, count }, "removed temporary files of an earlier run");
      } catch (error) {
        if (!signal.aborted) logger.debug({ owner, workspaceId, err: error }, "a workspace was not swept");
      }
      const restMs = (performance.now() - begin) * REST_FACTOR;
      await rest(restMs, signal);
    }
  }
}
