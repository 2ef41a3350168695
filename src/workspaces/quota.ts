import { rest } from "../base/async.ts";
import type { Clock } from "../base/clock.ts";
import { BerthError } from "../base/errors.ts";
import type { Logger } from "../base/logger.ts";
import { TurnShare } from "../base/turn-share.ts";
import type { TenantQuotas } from "../sandboxes/tenant-quotas.ts";
import { REST_FACTOR, Rechecks, type RoomRequest } from "./rechecks.ts";
import type { WorkspaceSandboxes } from "./sandboxes.ts";
import type { WorkspaceStorage } from "./storage.ts";
import type { WorkspaceRecord, WorkspaceStore } from "./store.ts";
import type { Transfers } from "./transfers.ts";
import {
  isOverQuota,
  isShared,
  type QuotaEnforcement,
  sharedOf,
  type WorkspaceName,
  workspaceKey,
  workspaceNotFound,
} from "./workspace.ts";

/** How much of a quota is used. */
export interface QuotaUsage {
  /** The last measured size. Undefined before the first measurement. */
  readonly sizeBytes: number | undefined;
  readonly quotaBytes: number;
  readonly quotaEnforcement: QuotaEnforcement;
}

interface ImportOptions {
  /** Whether it replaces the existing content. */
  readonly replace: boolean;
  readonly signal: AbortSignal;
}

/** A running import. */
interface Incoming extends Disposable {
  /** Reserves the bytes received so far. @throws `TENANT_QUOTA` */
  admit(bytes: number): Promise<void>;
  /**
   * Measures the workspace after the files were moved in. From then on this size counts instead of the reservation. Never
   * rejects: the import has succeeded.
   */
  settle(): Promise<void>;
}

/** Rounds use a share of each turn of the event loop: an owner may have any number of workspaces. */
const turns = new TurnShare();
/** Pause between two rounds over all directories. */
const ROUND_MS = 60_000;

/**
 * Measures workspaces and shared directories. Also watches their quotas: the file system may not enforce them, and root
 * in a sandbox could move files out of their project.
 */
export class WorkspaceQuota {
  readonly #store: WorkspaceStore;
  readonly #storage: WorkspaceStorage;
  readonly #users: WorkspaceSandboxes;
  readonly #quotas: TenantQuotas;
  readonly #logger: Logger;
  readonly #stop = new AbortController();
  /** Keys of those over their quota that this run logged and reported in events. */
  readonly #reported = new Set<string>();
  /** Sizes of shared directories with a quota, by owner. */
  readonly #shared = new Map<string, number>();
  /** Bytes of running imports, by owner. */
  readonly #incoming = new Map<string, number>();
  readonly #transfers: Transfers;
  readonly #clock: Clock;
  readonly #rechecks: Rechecks;
  #watching: Promise<void> = Promise.resolve();

  constructor(parts: {
    readonly store: WorkspaceStore;
    readonly storage: WorkspaceStorage;
    readonly users: WorkspaceSandboxes;
    readonly quotas: TenantQuotas;
    readonly transfers: Transfers;
    readonly clock: Clock;
    readonly logger: Logger;
  }) {
    this.#store = parts.store;
    this.#storage = parts.storage;
    this.#users = parts.users;
    this.#quotas = parts.quotas;
    this.#transfers = parts.transfers;
    this.#clock = parts.clock;
    this.#rechecks = new Rechecks(parts.clock);
    this.#logger = parts.logger;
  }

  /** Takes over the size that an earlier run measured. */
  resume(record: WorkspaceRecord): void {
    if (record.sizeBytes !== undefined) this.#recordShared(record, record.sizeBytes);
  }

  /** Starts the watch. After a stop, does nothing. */
  start(): void {
    if (this.#storage.measuresOften) this.#watching = this.#watch();
  }

  /** Ends the watch. */
  async stop(): Promise<void> {
    this.#stop.abort();
    await this.#watching;
  }

  /** The last measured size of all shared directories with a quota, and how many exceed it. */
  get shared(): { readonly sizeBytes: number; readonly over: number } {
    let sizeBytes = 0;
    let over = 0;
    for (const [owner, bytes] of this.#shared) {
      sizeBytes += bytes;
      if (isOverQuota({ sizeBytes: bytes, ...this.#storage.quotaOf(sharedOf(owner)) })) over++;
    }
    return { sizeBytes, over };
  }

  /**
   * The use of the quota of an owner's shared directory. Undefined: it has no quota.
   * @param options.measure whether to measure again.
   * @throws `WORKSPACE_BROKEN` if it cannot be measured.
   */
  async sharedUsage(
    owner: string,
    { measure, signal }: { readonly measure: boolean; readonly signal: AbortSignal },
  ): Promise<QuotaUsage | undefined> {
    const name = sharedOf(owner);
    const { quotaBytes, quotaEnforcement } = this.#storage.quotaOf(name);
    if (quotaBytes === undefined) return undefined;
    if (measure && this.#store.find(name) !== undefined) await this.measureAgain(name, signal);
    return { sizeBytes: this.#store.find(name)?.sizeBytes, quotaBytes, quotaEnforcement };
  }

  /**
   * Measures a directory for a caller who wants to know its size. Callers who ask often share measurements, with rests in
   * between. @throws like {@link measure}.
   */
  async measureAgain(name: WorkspaceName, signal: AbortSignal): Promise<void> {
    const request = { signal, arrivedMs: this.#clock.monotonicMs() };
    const measure = () => this.measure(name, this.#stop.signal);
    const work = () => this.#rechecks.run(workspaceKey(name), measure, request);
    await this.#transfers.copy(name.owner, work, signal);
  }

  /** Measures a directory and stores its size. @throws `WORKSPACE_NOT_FOUND`, also if it is deleted meanwhile. */
  async measure(name: WorkspaceName, signal?: AbortSignal): Promise<number> {
    const place = this.#store.find(name);
    if (place === undefined) throw workspaceNotFound(name);
    const sizeBytes = await this.#storage.measure(place, signal);
    const before = this.#store.find(name);
    // What was created again under its name has another size.
    if (before?.number !== place.number) throw workspaceNotFound(name);
    // So has what an import put in its place, which measured that itself.
    if (before.tree !== place.tree) return this.measure(name, signal);
    this.#store.setSize(name, sizeBytes);
    this.#recordShared(name, sizeBytes);
    this.#report(name, sizeBytes, before.sizeBytes);
    return sizeBytes;
  }

  /** Call this when a workspace is gone: what is created again under its name is reported again. */
  forget(name: WorkspaceName): void {
    this.#reported.delete(workspaceKey(name));
  }

  /** The last measured size of everything an owner has, plus running imports. */
  ownerBytes(owner: string): number {
    return this.#store.ownerBytes(owner) + (this.#incoming.get(owner) ?? 0);
  }

  /**
   * Refuses a directory over its quota, or of a tenant over its own. Measures again before it refuses: files may have
   * been deleted since.
   * @throws `NO_SPACE`, `TENANT_QUOTA`
   */
  async assertRoom(name: WorkspaceName, request: RoomRequest = {}): Promise<void> {
    await this.assertTenantRoom(name.owner, request);
    const { quotaBytes } = this.#storage.quotaOf(name);
    if (quotaBytes === undefined) return;
    const sizeBytes = (): number => this.#store.find(name)?.sizeBytes ?? 0;
    if (sizeBytes() <= quotaBytes) return;
    await this.#rechecks.run(workspaceKey(name), () => this.measure(name, this.#stop.signal), request);
    if (sizeBytes() > quotaBytes) throw pastQuota(name, sizeBytes(), quotaBytes);
  }

  /** Refuses a tenant over its quota. Measures again before it refuses. @throws `TENANT_QUOTA` */
  assertTenantRoom(owner: string, request: RoomRequest = {}): Promise<void> {
    return this.#assertOwnerRoom(owner, () => 0, request);
  }

  /** Refuses an addition of `bytes` that would exceed the quota of the directory. @throws `NO_SPACE` */
  async assertRoomFor(bytes: number, name: WorkspaceName, signal?: AbortSignal): Promise<void> {
    const { quotaBytes } = this.#storage.quotaOf(name);
    if (quotaBytes === undefined) return;
    const sizeBytes = (await this.measure(name, signal)) + bytes;
    if (sizeBytes > quotaBytes) throw pastQuota(name, sizeBytes, quotaBytes);
  }

  /** Reserves the bytes of an import from the tenant's quota as they arrive, until the result is disposed of. */
  incoming(name: WorkspaceName, { replace, signal }: ImportOptions): Incoming {
    const { owner } = name;
    let reserved = 0;
    const reserve = (bytes: number): void => {
      const all = (this.#incoming.get(owner) ?? 0) + bytes - reserved;
      reserved = bytes;
      if (all > 0) this.#incoming.set(owner, all);
      else this.#incoming.delete(owner);
    };
    const admit = async (bytes: number): Promise<void> => {
      if (bytes === reserved || this.#quotas.quotaOf(owner).workspaceBytes === undefined) return;
      const added = (): number => {
        const replaced = replace ? this.#store.find(name)?.sizeBytes : 0;
        return bytes - reserved - (replaced ?? 0);
      };
      await this.#assertOwnerRoom(owner, added, { signal });
      // Others may have taken the space meanwhile.
      this.#quotas.assertWorkspaceRoom(owner, this.ownerBytes(owner), added());
      reserve(bytes);
    };
    const settle = async (): Promise<void> => {
      await this.#tryToMeasure(name);
      reserve(0);
    };
    return { admit, settle, [Symbol.dispose]: () => reserve(0) };
  }

  /**
   * The maximum size of a fork. Its record reserves the size of its source.
   * @throws `NO_SPACE`, `TENANT_QUOTA` if that is too much already
   */
  async roomForFork(fork: WorkspaceName, sizeBytes: number, signal: AbortSignal): Promise<number> {
    this.#store.setSize(fork, sizeBytes);
    const { quotaBytes = Number.POSITIVE_INFINITY } = this.#storage.quotaOf(fork);
    if (sizeBytes > quotaBytes) throw pastQuota(fork, sizeBytes, quotaBytes);
    await this.assertTenantRoom(fork.owner, { signal });
    const { workspaceBytes = Number.POSITIVE_INFINITY } = this.#quotas.quotaOf(fork.owner);
    return Math.min(quotaBytes, workspaceBytes - this.ownerBytes(fork.owner) + sizeBytes);
  }

  /** @param added bytes to be added, computed from the latest measurements. */
  async #assertOwnerRoom(owner: string, added: () => number, request: RoomRequest): Promise<void> {
    const limit = this.#quotas.quotaOf(owner).workspaceBytes;
    if (limit === undefined || this.ownerBytes(owner) + added() <= limit) return;
    await this.#rechecks.run(owner, () => this.#measureAll(owner), request);
    this.#quotas.assertWorkspaceRoom(owner, this.ownerBytes(owner), added());
  }

  /** A directory that cannot be measured keeps its last size. */
  async #tryToMeasure(name: WorkspaceName, signal?: AbortSignal): Promise<void> {
    try {
      await this.measure(name, signal);
    } catch (error) {
      if (signal?.aborted) return;
      const { owner, workspaceId } = name;
      this.#logger.debug({ owner, workspaceId, err: error }, "a directory was not measured");
    }
  }

  async #measureAll(owner: string): Promise<void> {
    for (const record of this.#store.ofOwner(owner)) {
      if (record.state === "ACTIVE") await this.#tryToMeasure(record, this.#stop.signal);
    }
  }

  #recordShared(name: WorkspaceName, sizeBytes: number): void {
    if (isShared(name) && this.#storage.quotaOf(name).quotaBytes !== undefined)
      this.#shared.set(name.owner, sizeBytes);
  }

  /** @param beforeBytes the size as it was stored before, perhaps by an earlier run, which reported it. */
  #report(name: WorkspaceName, sizeBytes: number, beforeBytes: number | undefined): void {
    const { quotaBytes, quotaEnforcement } = this.#storage.quotaOf(name);
    if (quotaBytes === undefined) return;
    const kind = isShared(name) ? "SHARED" : "WORKSPACE";
    const key = workspaceKey(name);
    const { owner, workspaceId } = name;
    const usage = { workspaceId, sizeBytes, quotaBytes };
    if (!isOverQuota(usage)) {
      this.#reported.delete(key);
      if (isOverQuota({ sizeBytes: beforeBytes, quotaBytes }))
        this.#users.emit(name, { type: `${kind}_WITHIN_QUOTA`, ...usage });
      return;
    }
    if (this.#reported.has(key)) return;
    this.#reported.add(key);
    this.#logger.warn(
      { owner, ...usage, quotaEnforcement },
      kind === "SHARED"
        ? "a shared directory is past its quota: its owner's workspaces get no new sandboxes"
        : "a workspace is past its quota: it gets no new sandbox and no import",
    );
    this.#users.emit(name, { type: `${kind}_OVER_QUOTA`, ...usage });
  }

  async #watch(): Promise<void> {
    const { signal } = this.#stop;
    while (!signal.aborted) {
      try {
        await this.#round(signal);
      } catch (error) {
        // The database cannot be read for now.
        this.#logger.error({ err: error }, "quotas are not watched: the next round tries again");
      }
      await rest(ROUND_MS, signal);
    }
  }

  async #round(signal: AbortSignal): Promise<void> {
    for await (const record of this.#watched()) {
      if (signal.aborted) return;
      if (record.state !== "ACTIVE") continue;
      const begin = performance.now();
      await this.#tryToMeasure(record, signal);
      await rest((performance.now() - begin) * REST_FACTOR, signal);
    }
  }

  /** Directories with a quota, or that count towards the quota of their tenant. */
  async *#watched(): AsyncGenerator<WorkspaceRecord> {
    for (const owner of this.#store.owners()) {
      const ofTenant = this.#quotas.quotaOf(owner).workspaceBytes !== undefined;
      if (!ofTenant && !this.#storage.hasQuotas) continue;
      for (const record of this.#store.ofOwner(owner)) {
        const turn = turns.enter();
        if (turn) await turn;
        if (ofTenant || this.#storage.quotaOf(record).quotaBytes !== undefined) yield record;
      }
    }
  }
}

function pastQuota(name: WorkspaceName, sizeBytes: number, quotaBytes: number): BerthError {
  const metadata = { size_bytes: String(sizeBytes), quota_bytes: String(quotaBytes) };
  if (isShared(name)) {
    return new BerthError(
      "NO_SPACE",
      `The shared directory takes ${sizeBytes} bytes, and its quota is ${quotaBytes}. Delete files in /shared, in a sandbox that runs or in one that mounts a workspace.`,
      { metadata },
    );
  }
  const { workspaceId } = name;
  return new BerthError(
    "NO_SPACE",
    `The workspace ${JSON.stringify(workspaceId)} takes or would take ${sizeBytes} bytes, and its quota is ${quotaBytes}. Delete files in a sandbox that mounts it, or clean it up with force.`,
    { metadata: { workspace_id: workspaceId, ...metadata } },
  );
}
