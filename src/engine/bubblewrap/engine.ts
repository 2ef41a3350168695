import { closeSync } from "node:fs";
import { BerthError, invalidArgument, throwIfAborted } from "../../base/errors.ts";
import { randomBase32 } from "../../base/ids.ts";
import type { Logger } from "../../base/logger.ts";
import { OrphanedPipes, type OrphanedPipesBounds } from "../orphaned-pipes.ts";
import type {
  Engine,
  EngineEvent,
  EngineFigures,
  EngineInfo,
  EngineSandbox,
  EngineSandboxSpec,
  EngineUsage,
  EnsureImageOptions,
  LeftProcess,
  OutputSink,
  OutsideControl,
  Resources,
  SpawnedProcess,
  SpawnRequest,
} from "../port.ts";
import { type StartPlan, startSandbox } from "./create.ts";
import { terminated, translateError } from "./errors.ts";
import { EventFeed } from "./events.ts";
import { requireCapabilities } from "./info.ts";
import { type OpenMount, openMounts } from "./mounts.ts";
import { usageOfTree } from "./process-tree.ts";
import type { BubblewrapSandbox } from "./sandbox.ts";
import { isSandboxUser, SANDBOX_USER } from "./sandbox-user.ts";
import { type BubblewrapSetup, closeInheritedDescriptors, openSetup } from "./setup.ts";
import type { BubblewrapProcess } from "./spawn.ts";
import { spawnProcess } from "./spawn.ts";

/** What a {@link BubblewrapEngine} is made of. */
export interface BubblewrapEngineOptions {
  readonly logger: Logger;
  /** The image that stands for the system sandboxes run: no other can be asked for. */
  readonly image: string;
  /** Root file system of the sandboxes. Default `/`: the machine's own. */
  readonly rootfs?: string;
  /** Directories below which host paths may be mounted. Default none. */
  readonly allowedHostPaths?: readonly string[];
  /** How long a sandbox may take until it is ready, in milliseconds. Default 30 s. */
  readonly readyMs?: number;
  /** How many pipes are kept that something left behind holds. Default: as {@link OrphanedPipes} has it. */
  readonly orphanedPipes?: OrphanedPipesBounds;
}

const READY_MS = 30_000;

/**
 * The embedded engine: sandboxes are children of the service, made by
 * bubblewrap from the machine's own programs. They end with the service,
 * however that ends.
 */
export class BubblewrapEngine implements Engine {
  readonly name = "bubblewrap";
  readonly #options: BubblewrapEngineOptions;
  readonly #sandboxes = new Map<string, BubblewrapSandbox>();
  readonly #starting = new Set<Promise<unknown>>();
  readonly #processes = new Set<BubblewrapProcess>();
  readonly #orphanedPipes: OrphanedPipes;
  readonly #events = new EventFeed();
  readonly #closing = new AbortController();
  #setup: Promise<BubblewrapSetup> | undefined;

  constructor(options: BubblewrapEngineOptions) {
    this.#options = options;
    this.#orphanedPipes = new OrphanedPipes(options.orphanedPipes);
  }

  async info(signal?: AbortSignal): Promise<EngineInfo> {
    throwIfAborted(signal);
    return (await this.#open()).info;
  }

  async ensureImage(image: string, { signal }: EnsureImageOptions): Promise<void> {
    throwIfAborted(signal);
    this.#requireImage(image);
  }

  async create(spec: EngineSandboxSpec, signal?: AbortSignal): Promise<EngineSandbox> {
    const setup = await this.#open();
    throwIfAborted(signal);
    this.#requireImage(spec.image);
    requireCapabilities(spec, setup.program);
    if (!isSandboxUser(spec.user)) throw noSuchUser("spec.user");
    const mounts = await openMounts(spec.mounts, this.#options.allowedHostPaths ?? [], setup.identity);
    try {
      const creating = this.#create(spec, setup, mounts, signal);
      this.#starting.add(creating);
      return await creating.finally(() => this.#starting.delete(creating));
    } finally {
      for (const { fd } of mounts) closeSync(fd);
    }
  }

  async pause(ref: string, signal?: AbortSignal): Promise<void> {
    const { info } = await this.#open();
    if (!info.capabilities.pause) {
      throw new BerthError(
        "UNSUPPORTED",
        "This server cannot pause sandboxes: it may not write control groups. `berth doctor` tells the operator how to mend it.",
        { metadata: { capability: "pause" } },
      );
    }
    await this.#box(ref).pause(signal);
  }

  async resume(ref: string): Promise<void> {
    await this.#box(ref).resume();
  }

  /** A new sandbox is ready as fast as one that waited. */
  async mount(): Promise<void> {
    throw new BerthError("UNSUPPORTED", "Sandboxes of bubblewrap get their mounts when they are made.");
  }

  async setResources(ref: string, resources: Resources): Promise<void> {
    const box = this.#box(ref);
    if (!box.running) throw terminated();
    box.setResources(resources);
  }

  async remove(ref: string, signal?: AbortSignal): Promise<void> {
    throwIfAborted(signal);
    const box = this.#sandboxes.get(ref);
    if (box === undefined) return;
    try {
      await box.remove();
    } catch (error) {
      throw translateError(error, "removing a sandbox");
    }
    if (!this.#sandboxes.delete(ref)) return;
    this.#events.publish({ type: "removed", ref, sandboxId: box.describe().sandboxId });
  }

  async list(signal?: AbortSignal): Promise<EngineSandbox[]> {
    throwIfAborted(signal);
    return [...this.#sandboxes.values()].map((box) => box.describe());
  }

  events(signal: AbortSignal): AsyncIterable<EngineEvent> {
    return this.#events.listen(signal);
  }

  async usage(ref: string): Promise<EngineUsage> {
    const box = this.#box(ref);
    if (!box.running) throw terminated();
    const counted = box.group.usage();
    const { memoryBytes, cpuNanos, pids } = counted;
    if (memoryBytes !== undefined && cpuNanos !== undefined && pids !== undefined) {
      return { memoryBytes, cpuNanos, pids };
    }
    return { ...usageOfTree(box.roots()), ...counted };
  }

  async spawn(
    ref: string,
    request: SpawnRequest,
    sink: OutputSink,
    signal?: AbortSignal,
  ): Promise<SpawnedProcess> {
    const setup = await this.#open();
    const box = this.#box(ref);
    if (!isSandboxUser(request.user ?? "")) throw noSuchUser("user");
    const { attendants, groups } = setup;
    const { memoryBytes, pidsLimit } = box.resources;
    const bounds = {
      pids: groups.limits.pids || !setup.info.capabilities.pidsLimit ? undefined : pidsLimit,
      memoryBytes: groups.limits.memory ? undefined : memoryBytes,
    };
    const parts = { launcher: attendants, bounds, leftovers: this.#orphanedPipes.of(ref) };
    const spawned = await box.starting(spawnProcess(box, request, sink, parts, signal));
    this.#processes.add(spawned);
    void spawned.silent.then(() => this.#processes.delete(spawned));
    return spawned;
  }

  /** Nothing outlives the service. */
  async recover(left: readonly LeftProcess[]): Promise<readonly undefined[]> {
    return left.map(() => undefined);
  }

  async outside(ref: string): Promise<OutsideControl | undefined> {
    const box = this.#box(ref);
    if (!box.running) throw terminated();
    return box.outside;
  }

  figures(): EngineFigures {
    return { orphanedPipes: this.#orphanedPipes.count, sandboxesWithoutPipes: 0 };
  }

  /** Lets go of everything. The sandboxes end: nothing of them is kept beyond the service. */
  async close(): Promise<void> {
    this.#closing.abort();
    await Promise.allSettled(this.#starting);
    await Promise.allSettled([...this.#sandboxes.keys()].map((ref) => this.remove(ref)));
    for (const spawned of this.#processes) spawned.destroy();
    const setup = await this.#setup?.catch(() => undefined);
    await setup?.close();
  }

  #open(): Promise<BubblewrapSetup> {
    if (this.#setup === undefined) {
      const opening = openSetup(this.#options.rootfs ?? "/").catch((error: unknown) => {
        this.#setup = undefined;
        throw translateError(error, "looking at this machine");
      });
      this.#setup = opening;
      closeInheritedDescriptors();
    }
    return this.#setup;
  }

  async #create(
    spec: EngineSandboxSpec,
    setup: BubblewrapSetup,
    mounts: readonly OpenMount[],
    signal?: AbortSignal,
  ): Promise<EngineSandbox> {
    const ref = `bwrap-${randomBase32(20)}`;
    const { sandboxId, generation, owner } = spec;
    const user = spec.user || SANDBOX_USER.name;
    const sandbox: EngineSandbox = {
      ...{ ref, sandboxId, generation, owner, user },
      ...{ state: "running", isolation: setup.info.isolation },
    };
    const { groups, system, etc, stage, identity, keepers, reports } = setup;
    const group = groups.create(ref, spec.resources);
    const plan: StartPlan = {
      ...{ spec, sandbox, group, mounts, system, etc, stage, identity, reports },
      ...{ launcher: keepers, attendants: groups.attendants },
      readyMs: this.#options.readyMs ?? READY_MS,
    };
    let box: BubblewrapSandbox;
    try {
      const closing = this.#closing.signal;
      box = await startSandbox(plan, signal ? AbortSignal.any([signal, closing]) : closing);
    } catch (error) {
      await group.remove().catch((cause: unknown) => {
        this.#options.logger.warn(
          { err: cause },
          "the control group of a failed create could not be removed",
        );
      });
      throw translateError(error, "starting a sandbox");
    }
    this.#sandboxes.set(ref, box);
    void box.ended.then((end) => {
      if (!box.beingRemoved) this.#events.publish({ type: "ended", ref, sandboxId, end });
    });
    return sandbox;
  }

  #box(ref: string): BubblewrapSandbox {
    const box = this.#sandboxes.get(ref);
    if (box === undefined) throw terminated();
    return box;
  }

  #requireImage(image: string): void {
    if (image === this.#options.image) return;
    throw new BerthError(
      "IMAGE_UNAVAILABLE",
      `This server runs sandboxes with bubblewrap, which has no images: they see the machine's own programs. Leave the image unset, or use a server with Docker for ${JSON.stringify(image)}.`,
      { metadata: { image } },
    );
  }
}

function noSuchUser(field: string): BerthError {
  const { name, uid } = SANDBOX_USER;
  return invalidArgument(field, `sandboxes of this server have one user, ${name} (${uid}). Leave it unset.`);
}
