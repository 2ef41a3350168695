import { closeSync } from "node:fs";
import type { Server } from "node:net";
import { BerthError, invalidArgument, throwIfAborted } from "../../base/errors.ts";
import { randomBase32 } from "../../base/ids.ts";
import type { Logger } from "../../base/logger.ts";
import { collectEvents, type EventSink } from "../collect-events.ts";
import { OrphanedPipes, type OrphanedPipesBounds } from "../orphaned-pipes.ts";
import { openLoopbackPort } from "../outside/loopback-port.ts";
import {
  type Engine,
  type EngineEvent,
  type EngineFigures,
  type EngineInfo,
  type EngineSandbox,
  type EngineSandboxSpec,
  type EngineUsage,
  type EnsureImageOptions,
  type LeftProcess,
  type OutputSink,
  type OutsideControl,
  type Resources,
  type SpawnedProcess,
  type SpawnRequest,
  startSignal,
} from "../port.ts";
import type { ControlGroup } from "./control-group.ts";
import { type StartPlan, startSandbox } from "./create.ts";
import { terminated, translateError } from "./errors.ts";
import { requireCapabilities } from "./info.ts";
import { type OpenMount, openMounts } from "./mounts.ts";
import { UNDUMPABLE_TARGET } from "./runtime-dir.ts";
import type { BubblewrapSandbox } from "./sandbox.ts";
import { isSandboxUser, SANDBOX_USER } from "./sandbox-user.ts";
import { type BubblewrapSetup, closeInheritedDescriptors, openSetup } from "./setup.ts";
import type { BubblewrapProcess } from "./spawn.ts";
import { spawnProcess } from "./spawn.ts";

/** Options of a {@link BubblewrapEngine}. */
export interface BubblewrapEngineOptions {
  readonly logger: Logger;
  /** The image name that stands for the sandboxes' system. No other image is available. */
  readonly image: string;
  /** Root file system of the sandboxes. Default `/`: the machine's own. */
  readonly rootfs?: string;
  /** Directories whose subdirectories may be mounted, and which may be mounted themselves. Default none. */
  readonly allowedHostPaths?: readonly string[];
  /** Directories of Berth. Callers may mount none of them, nor what is above or below. Default none. */
  readonly hiddenHostPaths?: readonly string[];
  /** How long a sandbox may take to become ready, in milliseconds. Default 30 s. */
  readonly readyMs?: number;
  /** Default: the defaults of {@link OrphanedPipes}. */
  readonly orphanedPipes?: OrphanedPipesBounds;
}

const READY_MS = 30_000;

const REF_PREFIX = "bwrap-";

/** Whether a sandbox with this ref is, or was, one of this engine. */
export const isBubblewrapRef = (ref: string): boolean => ref.startsWith(REF_PREFIX);

/**
 * The embedded engine: sandboxes run the machine's own programs in namespaces that bubblewrap creates. They end with
 * the service, even if it crashes.
 */
export class BubblewrapEngine implements Engine {
  readonly name = "bubblewrap";
  readonly undumpable = process.getuid?.() === 0 ? UNDUMPABLE_TARGET : undefined;
  readonly #options: BubblewrapEngineOptions;
  readonly #sandboxes = new Map<string, BubblewrapSandbox>();
  readonly #starting = new Set<Promise<unknown>>();
  readonly #processes = new Set<BubblewrapProcess>();
  readonly #orphanedPipes: OrphanedPipes;
  readonly #listeners = new Set<EventSink>();
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
    const { allowedHostPaths: allowed = [], hiddenHostPaths: hidden = [] } = this.#options;
    const mounts = await openMounts(spec.mounts, { allowed, hidden }, setup.identity);
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
        "This server cannot pause sandboxes: it may not write control groups. `berth doctor` shows the operator how to fix it.",
        { metadata: { capability: "pause" } },
      );
    }
    await this.#sandbox(ref).pause(signal);
  }

  async resume(ref: string): Promise<void> {
    await this.#sandbox(ref).resume();
  }

  async isPaused(ref: string): Promise<boolean> {
    return this.#sandbox(ref).describe().state === "paused";
  }

  /** Not supported, because a new sandbox is ready as fast as a claimed one. */
  async mount(): Promise<void> {
    throw new BerthError("UNSUPPORTED", "Sandboxes of bubblewrap get their mounts when they are made.");
  }

  async setResources(ref: string, resources: Resources): Promise<void> {
    this.#running(ref).setResources(resources);
  }

  async remove(ref: string, signal?: AbortSignal): Promise<void> {
    throwIfAborted(signal);
    const sandbox = this.#sandboxes.get(ref);
    if (sandbox === undefined) return;
    try {
      await sandbox.remove();
    } catch (error) {
      throw translateError(error, "removing a sandbox");
    }
    if (!this.#sandboxes.delete(ref)) return;
    this.#publish({ type: "removed", ref, sandboxId: sandbox.describe().sandboxId });
  }

  async list(signal?: AbortSignal): Promise<EngineSandbox[]> {
    throwIfAborted(signal);
    return [...this.#sandboxes.values()].map((sandbox) => sandbox.describe());
  }

  events(signal: AbortSignal): AsyncIterable<EngineEvent> {
    const listen = (sink: EventSink) => {
      this.#listeners.add(sink);
      return () => this.#listeners.delete(sink);
    };
    return collectEvents(listen, signal);
  }

  #publish(event: EngineEvent): void {
    for (const listener of this.#listeners) listener.push(event);
  }

  async usage(ref: string, signal?: AbortSignal): Promise<EngineUsage> {
    throwIfAborted(signal);
    const usage = await this.#running(ref).usage();
    // What ended meanwhile uses nothing.
    this.#running(ref);
    return usage;
  }

  async spawn(
    ref: string,
    request: SpawnRequest,
    sink: OutputSink,
    signal?: AbortSignal,
  ): Promise<SpawnedProcess> {
    const setup = await this.#open();
    const sandbox = this.#sandbox(ref);
    if (!isSandboxUser(request.user ?? "")) throw noSuchUser("user");
    const { attendants, groups } = setup;
    const { memoryBytes, pidsLimit } = sandbox.resources;
    const limits = {
      pids: groups.limits.pids || !setup.info.capabilities.pidsLimit ? undefined : pidsLimit,
      memoryBytes: groups.limits.memory ? undefined : memoryBytes,
    };
    const parts = {
      ...{ launcher: attendants, limits, leftovers: this.#orphanedPipes.of(ref) },
      entryFile: setup.filterFiles?.entry,
    };
    const start = () => sandbox.starting(spawnProcess(sandbox, request, sink, parts, signal));
    const spawned = await sandbox.starts.run(start, startSignal(request, signal));
    this.#processes.add(spawned);
    void spawned.silent.then(() => this.#processes.delete(spawned));
    return spawned;
  }

  async listen(ref: string, port: number, signal?: AbortSignal): Promise<Server> {
    const sandbox = this.#running(ref);
    // Root can enter without the user namespace, in which it would be `nobody`.
    const entry = process.getuid?.() === 0 ? {} : { userNamespace: sandbox.enter() };
    const isOwn = (): boolean => sandbox.running;
    return sandbox.starting(openLoopbackPort({ pid: sandbox.initPid, isOwn, ...entry }, port, signal));
  }

  /** No process outlives the service. */
  async recover(left: readonly LeftProcess[]): Promise<readonly undefined[]> {
    return left.map(() => undefined);
  }

  async outside(ref: string): Promise<OutsideControl | undefined> {
    return this.#running(ref).outside;
  }

  figures(): EngineFigures {
    return { orphanedPipes: this.#orphanedPipes.count, sandboxesWithoutPipes: 0, waiting: [] };
  }

  /** Removes all sandboxes and everything else that the engine has created. */
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
      const opening = openSetup(this.#options.rootfs ?? "/", this.#options.logger).catch((error: unknown) => {
        this.#setup = undefined;
        throw translateError(error, "checking this machine");
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
    const ref = `${REF_PREFIX}${randomBase32(20)}`;
    const { sandboxId, generation, owner } = spec;
    const user = spec.user || SANDBOX_USER.name;
    const description: EngineSandbox = {
      ...{ ref, sandboxId, generation, owner, user },
      ...{ state: "running", isolation: setup.info.isolation },
    };
    const { groups, system, etc, filterFiles, stage, identity, keepers, reports } = setup;
    let group: ControlGroup | undefined;
    let sandbox: BubblewrapSandbox;
    try {
      group = groups.create(ref, spec.resources);
      const plan: StartPlan = {
        ...{ spec, description, group, mounts, system, etc, stage, identity, reports },
        ...{ launcher: keepers, attendants: groups.attendants, filterFile: filterFiles?.program },
        readyMs: this.#options.readyMs ?? READY_MS,
      };
      const closing = this.#closing.signal;
      sandbox = await startSandbox(plan, signal ? AbortSignal.any([signal, closing]) : closing);
    } catch (error) {
      await group?.remove().catch((cause: unknown) => {
        this.#options.logger.warn({ err: cause }, "could not remove the control group of a failed create");
      });
      throw translateError(error, "starting a sandbox");
    }
    this.#sandboxes.set(ref, sandbox);
    void sandbox.ended.then((end) => {
      if (!sandbox.beingRemoved) this.#publish({ type: "ended", ref, sandboxId, end });
    });
    return description;
  }

  #sandbox(ref: string): BubblewrapSandbox {
    const sandbox = this.#sandboxes.get(ref);
    if (sandbox === undefined) throw terminated();
    return sandbox;
  }

  #running(ref: string): BubblewrapSandbox {
    const sandbox = this.#sandbox(ref);
    if (!sandbox.running) throw terminated();
    return sandbox;
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
