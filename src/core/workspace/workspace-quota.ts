import { setTimeout as sleep } from "node:timers/promises";
import { BerthError } from "../errors.ts";
import type { Logger } from "../ports/logger.ts";
import type { WorkspaceFiles } from "../ports/workspace-files.ts";
import type { WorkspaceRecord, WorkspaceStore } from "../ports/workspace-store.ts";
import { isOverQuota, type WorkspaceName, workspaceKey } from "./workspace.ts";
import type { WorkspaceSandboxes } from "./workspace-sandboxes.ts";

/** Pause between two rounds over all workspaces. */
const ROUND_MS = 60_000;
/** After a measurement the watch rests for so many times what it took: it never takes more than a tenth of one CPU. */
const REST_FACTOR = 9;

/**
 * Measures workspaces, and keeps an eye on the quota where the file system does
 * not hold it, or where a sandbox's root could take files out of its hold.
 */
export class WorkspaceQuota {
  readonly #store: WorkspaceStore;
  readonly #files: WorkspaceFiles;
  readonly #users: WorkspaceSandboxes;
  readonly #logger: Logger;
  readonly #stop = new AbortController();
  /** Keys of those past the quota of which the log and their sandboxes have been told. */
  readonly #told = new Set<string>();
  #watching: Promise<void> = Promise.resolve();

  constructor(parts: {
    readonly store: WorkspaceStore;
    readonly files: WorkspaceFiles;
    readonly users: WorkspaceSandboxes;
    readonly logger: Logger;
  }) {
    this.#store = parts.store;
    this.#files = parts.files;
    this.#users = parts.users;
    this.#logger = parts.logger;
  }

  /** Begins to watch, where there is a quota. */
  start(roundMs = ROUND_MS): void {
    if (this.#files.quotaBytes !== undefined) this.#watching = this.#watch(roundMs);
  }

  /** Ends the watch. */
  async stop(): Promise<void> {
    this.#stop.abort();
    await this.#watching;
  }

  /** Measures a workspace anew and remembers it. */
  async measure(name: WorkspaceName, signal?: AbortSignal): Promise<number> {
    const sizeBytes = await this.#files.measure(name, signal);
    this.#store.setSize(name, sizeBytes);
    this.#tell(name, sizeBytes);
    return sizeBytes;
  }

  /**
   * Refuses to go on for a workspace past its quota. One that was measured so is
   * measured anew first: files may have been deleted since.
   * @throws `NO_SPACE`
   */
  async assertRoom(record: WorkspaceRecord, signal?: AbortSignal): Promise<void> {
    const { quotaBytes } = this.#files;
    if (quotaBytes === undefined) return;
    const known = this.#store.find(record)?.sizeBytes ?? 0;
    if (known <= quotaBytes) return;
    const sizeBytes = await this.measure(record, signal);
    if (sizeBytes > quotaBytes) throw pastQuota(record, sizeBytes, quotaBytes);
  }

  /** Refuses to add so many bytes where that would pass the quota. @throws `NO_SPACE` */
  async assertRoomFor(bytes: number, record: WorkspaceRecord, signal?: AbortSignal): Promise<void> {
    const { quotaBytes } = this.#files;
    if (quotaBytes === undefined) return;
    const sizeBytes = (await this.measure(record, signal)) + bytes;
    if (sizeBytes > quotaBytes) throw pastQuota(record, sizeBytes, quotaBytes);
  }

  #tell(name: WorkspaceName, sizeBytes: number): void {
    const { quotaBytes, quotaEnforcement } = this.#files;
    if (quotaBytes === undefined) return;
    const key = workspaceKey(name);
    const { owner, workspaceId } = name;
    const usage = { workspaceId, sizeBytes, quotaBytes };
    if (!isOverQuota(usage)) {
      if (this.#told.delete(key)) this.#users.tell(name, { type: "WORKSPACE_WITHIN_QUOTA", ...usage });
      return;
    }
    if (this.#told.has(key)) return;
    this.#told.add(key);
    this.#logger.warn(
      { owner, ...usage, quotaEnforcement },
      "a workspace is past its quota: it gets no new sandbox and no import",
    );
    this.#users.tell(name, { type: "WORKSPACE_OVER_QUOTA", ...usage });
  }

  async #watch(roundMs: number): Promise<void> {
    const { signal } = this.#stop;
    while (!signal.aborted) {
      for (const record of this.#store.all()) {
        if (signal.aborted) return;
        if (record.state !== "ACTIVE") continue;
        const begin = performance.now();
        await this.measure(record, signal).catch((error: unknown) => {
          if (!signal.aborted)
            this.#logger.debug(
              { workspaceId: record.workspaceId, err: error },
              "a workspace was not measured",
            );
        });
        await rest((performance.now() - begin) * REST_FACTOR, signal);
      }
      await rest(roundMs, signal);
    }
  }
}

async function rest(ms: number, signal: AbortSignal): Promise<void> {
  await sleep(ms, undefined, { signal, ref: false }).catch(() => {});
}

function pastQuota({ workspaceId }: WorkspaceName, sizeBytes: number, quotaBytes: number): BerthError {
  return new BerthError(
    "NO_SPACE",
    `The workspace ${JSON.stringify(workspaceId)} takes or would take ${sizeBytes} bytes, and its quota is ${quotaBytes}. Delete files in a sandbox that mounts it, or clean it up with force.`,
    {
      metadata: {
        workspace_id: workspaceId,
        size_bytes: String(sizeBytes),
        quota_bytes: String(quotaBytes),
      },
    },
  );
}
