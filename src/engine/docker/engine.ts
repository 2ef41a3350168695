import type { Server } from "node:net";
import type { ContainerInfo, ContainerInspectInfo } from "dockerode";
import { untilAborted, within } from "../../base/async.ts";
import { BerthError, hasReason } from "../../base/errors.ts";
import type { Logger } from "../../base/logger.ts";
import { ownValue } from "../../base/own-value.ts";
import { checkMounts, refusedMount } from "../mounts.ts";
import { OrphanedPipes, type OrphanedPipesBounds } from "../orphaned-pipes.ts";
import { groupsOf } from "../outside/host-process.ts";
import { openLoopbackPort } from "../outside/loopback-port.ts";
import type {
  Engine,
  EngineEvent,
  EngineFigures,
  EngineInfo,
  EngineMount,
  EngineSandbox,
  EngineSandboxEnd,
  EngineSandboxSpec,
  EngineUsage,
  EnsureImageOptions,
  HostMount,
  IsolationLevel,
  LeftProcess,
  NetworkMode,
  OutputSink,
  OutsideControl,
  Resources,
  SpawnedProcess,
  SpawnRequest,
} from "../port.ts";
import {
  type ContainerFacts,
  containerConfig,
  INSTANCE_LABEL,
  parseLabels,
  resourceLimits,
  type SandboxLabels,
} from "./container-config.ts";
import { ContainerPipes, UNDUMPABLE_TARGET } from "./container-pipes.ts";
import {
  CLEANUP_PATIENCE_MS,
  ContainerMaker,
  type CreatedContainer,
  containerName,
  parseUsage,
  removeContainer,
  untilEnded,
} from "./containers.ts";
import { Daemon } from "./daemon.ts";
import { Egress } from "./egress.ts";
import { answerTo, hadNoAnswer } from "./errors.ts";
import { ended, watchEvents } from "./events.ts";
import { Images } from "./images.ts";
import { daemonOpenFilesLimit, readInfo, requireCapabilities, requireLimits } from "./info.ts";
import { type LateTarget, lateTarget, MountStage, mountLate, overlap } from "./mounts.ts";
import { PIPES_TARGET } from "./named-pipes.ts";
import { OutsideViews } from "./outside-views.ts";
import { Pauses } from "./pauses.ts";
import { updateInPodman } from "./podman.ts";
import { Spawner } from "./spawner.ts";
import { EarlyShells } from "./zygote-request.ts";

/** Timeouts of calls to Docker, in milliseconds. */
interface DockerTimeouts {
  /** Short calls. Default 30 s. */
  readonly callMs: number;
  /** Creating a container. Default 60 s. */
  readonly createMs: number;
  /** Starting a container. Default 60 s. */
  readonly startMs: number;
  /** From the start of a container until it is ready for commands. Default 30 s. */
  readonly readyMs: number;
  /** Until Docker knows that a container has ended that was killed in order to remove it. Default 1 s. */
  readonly endMs: number;
  /** Removing a container. Default 60 s. */
  readonly removeMs: number;
  /** Until a registry first answers. Default 30 s. */
  readonly registryMs: number;
  /** A pull without any progress. Default 120 s. */
  readonly pullStallMs: number;
}

const DEFAULT_TIMEOUTS: DockerTimeouts = {
  callMs: 30_000,
  createMs: 60_000,
  startMs: 60_000,
  readyMs: 30_000,
  endMs: 1_000,
  removeMs: 60_000,
  registryMs: 30_000,
  pullStallMs: 120_000,
};

const DEFAULT_EGRESS_DNS = ["1.1.1.1", "8.8.8.8"];

/** Options of a {@link DockerEngine}. */
export interface DockerEngineOptions {
  /** Distinguishes this service's containers from others on the same daemon. */
  readonly instance: string;
  readonly logger: Logger;
  /** Written as in `DOCKER_HOST`. Default: `DOCKER_HOST`, else `unix:///var/run/docker.sock`. */
  readonly host?: string;
  /** Directories whose subdirectories may be mounted, and which may be mounted themselves. Default none. */
  readonly allowedHostPaths?: readonly string[];
  /** Directories of Berth. Callers may mount none of them, nor what is above or below. Default none. */
  readonly hiddenHostPaths?: readonly string[];
  /** OCI runtimes that a spec may name, with the isolation each gives. Default none. */
  readonly allowedRuntimes?: Readonly<Record<string, IsolationLevel>>;
  /**
   * Resolvers of sandboxes with EGRESS. They must have public addresses: the machine's own resolver often has a private
   * one, which such a sandbox cannot reach. Default 1.1.1.1 and 8.8.8.8.
   */
  readonly egressDns?: readonly string[];
  /**
   * A directory, for this service only, for named pipes to containers. Default: none, and Docker's own streams are
   * used.
   */
  readonly pipesDir?: string;
  /** Default: the defaults of {@link OrphanedPipes}. */
  readonly orphanedPipes?: OrphanedPipesBounds;
  readonly timeouts?: Partial<DockerTimeouts>;
}

/**
 * How long a removal may take before Berth kills the container's processes from outside: Docker waits for starts that
 * were stopped halfway.
 */
const STUCK_REMOVAL_MS = 1_500;

/** The engine that uses a Docker daemon. */
export class DockerEngine implements Engine {
  readonly name = "docker";
  readonly #options: DockerEngineOptions;
  readonly #timeouts: DockerTimeouts;
  readonly #daemon: Daemon;
  readonly #images: Images;
  readonly #maker: ContainerMaker;
  readonly #egress: Egress;
  readonly #stage: MountStage;
  /** Default users of containers' commands. A missing one is read from its container. */
  readonly #users = new Map<string, string>();
  /** Containers that accept more mounts, until they are first used. */
  readonly #lateTargets = new Map<string, LateTarget>();
  /** Containers that this engine is removing. Podman reports them as exited meanwhile. */
  readonly #removing = new Set<string>();
  /** Undefined if all streams go through the daemon. */
  readonly #pipes: ContainerPipes | undefined;
  readonly #early: EarlyShells | undefined;
  readonly #orphanedPipes: OrphanedPipes;
  readonly #spawner: Spawner;
  readonly #outside: OutsideViews;
  readonly #pauses = new Pauses({
    call: (ref, paused, signal) => this.#callPause(ref, paused, signal),
    state: async (ref, signal) => (await this.#inspect(ref, signal)).State,
    thaw: async (ref, signal) => {
      await this.outside(ref, signal);
      this.#outside.thaw(ref);
    },
  });
  #info: EngineInfo | undefined;
  /** The recovery of pipes of an earlier run of the service. */
  #recovered: Promise<void> | undefined;

  constructor(options: DockerEngineOptions) {
    this.#options = options;
    this.#timeouts = { ...DEFAULT_TIMEOUTS, ...options.timeouts };
    this.#daemon = new Daemon({ host: options.host, callTimeoutMs: this.#timeouts.callMs });
    this.#images = new Images(this.#daemon, options.logger, {
      firstAnswerMs: this.#timeouts.registryMs,
      stallMs: this.#timeouts.pullStallMs,
    });
    this.#maker = new ContainerMaker(this.#daemon, options.logger, this.#timeouts);
    this.#egress = new Egress(this.#daemon, options.logger);
    this.#stage = new MountStage(options.logger);
    const { pipesDir } = options;
    // A daemon on the network shares no files with the service.
    if (pipesDir !== undefined && this.#daemon.socketPath !== undefined)
      this.#pipes = new ContainerPipes(pipesDir, options.logger);
    this.#early = this.#pipes && new EarlyShells(this.#pipes);
    this.#orphanedPipes = new OrphanedPipes(options.orphanedPipes);
    this.#spawner = new Spawner(this.#daemon, this.#pipes, this.#orphanedPipes, options.logger);
    this.#outside = new OutsideViews(this.#spawner.gate);
  }

  get undumpable(): string | undefined {
    return this.#pipes !== undefined && this.#seesProcesses ? UNDUMPABLE_TARGET : undefined;
  }

  async info(signal?: AbortSignal): Promise<EngineInfo> {
    const runtimes = this.#options.allowedRuntimes ?? {};
    // The firewall rules are for Docker's bridge. They are not known to work with Podman.
    const egress = !(await this.#daemon.isPodman(signal)) && (await this.#egress.available());
    this.#info = await readInfo(
      this.#daemon,
      { runtimes, egress, egressDomains: this.#seesProcesses },
      { signal },
    );
    return this.#info;
  }

  ensureImage(image: string, options: EnsureImageOptions): Promise<void> {
    return this.#images.ensure(image, options);
  }

  async create(spec: EngineSandboxSpec, signal?: AbortSignal): Promise<EngineSandbox> {
    const info = this.#info ?? (await this.info(signal));
    requireCapabilities(spec, info.capabilities);
    const isolation = this.#isolationOf(spec.runtime, info);
    const checked = await this.#checkMounts(spec.mounts);
    const image = await this.#images.facts(spec.image, { signal });
    const labels: SandboxLabels = {
      instance: this.#options.instance,
      sandboxId: spec.sandboxId,
      generation: spec.generation,
      owner: spec.owner,
      user: spec.user || image.user,
      isolation,
    };
    const name = containerName(spec.sandboxId);
    const facts = {
      name,
      labels,
      imageId: image.id,
      imageEnv: image.env,
      network: await this.#network(spec.network, signal),
      openFilesLimit: await daemonOpenFilesLimit(this.#daemon.socketPath),
    };
    // A sandbox with its own kernel sees no later mounts, and cannot open named pipes of the host.
    const sharesKernel = isolation === "CONTAINER";
    const inert = spec.takesMounts && sharesKernel ? (await this.#stage.inert())?.inert : undefined;
    const staged = await this.#stage.stage(checked);
    try {
      const make = (pipes: string | undefined) =>
        this.#maker.create(containerConfig(spec, { ...facts, mounts: staged.mounts, inert, pipes }), signal);
      // With Podman, commands with pipes start too slowly, or not at all.
      const { id: ref, owner } =
        sharesKernel && !(await this.#daemon.isPodman())
          ? await this.#withPipes(labels.user, name, spec, make)
          : await this.#withoutPipes(make);
      this.#users.set(ref, labels.user);
      const late = inert === undefined ? undefined : lateTarget(await this.#inspectNew(ref, signal), owner);
      if (late !== undefined) this.#lateTargets.set(ref, late);
      return { ...describe(ref, labels, { state: "running" }), ...(late && { takesMounts: true }) };
    } catch (error) {
      const words = answerTo(error)?.text ?? "";
      throw refusedMount(spec.mounts, words, (target) => ` to rootfs at ${JSON.stringify(target)}`) ?? error;
    } finally {
      await staged.release();
    }
  }

  pause(ref: string, signal?: AbortSignal): Promise<void> {
    return this.#spawner.gate.closed(ref, () => this.#pauses.set(ref, true, signal), signal);
  }

  resume(ref: string, signal?: AbortSignal): Promise<void> {
    return this.#pauses.set(ref, false, signal);
  }

  async isPaused(ref: string, signal?: AbortSignal): Promise<boolean> {
    return (await this.#inspect(ref, signal)).State.Paused;
  }

  async mount(ref: string, mounts: readonly EngineMount[]): Promise<void> {
    const target = this.#lateTargets.get(ref);
    const stage = await this.#stage.inert();
    if (target === undefined || stage === undefined) {
      throw new BerthError("UNSUPPORTED", "This container was not made to take mounts later.");
    }
    await mountLate(target, await this.#checkMounts(mounts), stage.dir);
  }

  async setResources(ref: string, resources: Resources, signal?: AbortSignal): Promise<void> {
    requireLimits(resources, (this.#info ?? (await this.info(signal))).capabilities);
    const limits = resourceLimits(resources);
    const isPodman = await this.#daemon.isPodman();
    await this.#daemon
      .call(
        "changing a container's limits",
        (docker, abortSignal) =>
          isPodman
            ? updateInPodman(docker, ref, limits, abortSignal)
            : docker.getContainer(ref).update({ ...limits, abortSignal }),
        { signal },
      )
      .catch((error: unknown) => {
        throw answerTo(error)?.text.includes("unable to set memory limit") ? usesMore(error) : error;
      });
  }

  async remove(ref: string, signal?: AbortSignal): Promise<void> {
    const pipesGone = this.#spawner.end(ref);
    this.#removing.add(ref);
    const stuck = setTimeout(() => void this.#unblock(ref), STUCK_REMOVAL_MS).unref();
    try {
      // Asked to remove a container that it takes for a running one, Docker starts a program to kill it, which slows down
      // the end. It removes nothing before that end anyway. Podman answers a wait too late.
      if (this.#outside.end(ref) && !(await this.#daemon.isPodman()))
        await untilEnded(this.#daemon, ref, { timeoutMs: this.#timeouts.endMs, signal });
      await removeContainer(this.#daemon, ref, { timeoutMs: this.#timeouts.removeMs, signal });
    } finally {
      clearTimeout(stuck);
      this.#removing.delete(ref);
    }
    this.#users.delete(ref);
    this.#lateTargets.delete(ref);
    this.#outside.forget(ref);
    this.#pauses.forget(ref);
    this.#spawner.forget(ref);
    await pipesGone;
  }

  /**
   * Kills everything in a container from outside. It thaws the container first: a start that a pause froze halfway
   * could not die.
   */
  async #unblock(ref: string): Promise<void> {
    this.#outside.thaw(ref);
    // Errors do not matter: the container may be gone by now, and the removal reports its own outcome.
    await this.#outside
      .known(ref)
      ?.killAll()
      .catch(() => {});
  }

  async list(signal?: AbortSignal): Promise<EngineSandbox[]> {
    const containers = await this.#daemon.call(
      "listing containers",
      (docker, abortSignal) =>
        docker.listContainers({
          all: true,
          filters: { label: [`${INSTANCE_LABEL}=${this.#options.instance}`] },
          abortSignal,
        }),
      { signal },
    );
    const sandboxes: EngineSandbox[] = [];
    this.#recovered ??= this.#recoverPipes(containers);
    await this.#recovered;
    for (const { Id: ref, State: state, Labels } of containers) {
      const labels = parseLabels(Labels);
      this.#users.set(ref, labels.user);
      if (state === "running" || state === "paused") {
        sandboxes.push(describe(ref, labels, { state }));
        continue;
      }
      const end = await this.#findEnd(ref, signal);
      if (end) sandboxes.push(describe(ref, labels, { state: "ended", end }));
    }
    return sandboxes;
  }

  events(signal: AbortSignal): AsyncIterable<EngineEvent> {
    return watchEvents(this.#daemon, this.#options.instance, (ref) => this.#findEnd(ref, signal), signal);
  }

  async usage(ref: string, signal?: AbortSignal): Promise<EngineUsage> {
    await this.outside(ref, signal);
    const seen = this.#outside.usage(ref);
    if (seen !== undefined) return seen;
    // Docker answers only when it next measures the container, up to a second later.
    const stats = await this.#daemon.call(
      "reading a container's use",
      (docker, abortSignal) => {
        const request = { "one-shot": true, abortSignal };
        return docker.getContainer(ref).stats({ ...request, stream: false });
      },
      { signal },
    );
    return parseUsage(stats);
  }

  async spawn(
    ref: string,
    request: SpawnRequest,
    sink: OutputSink,
    signal?: AbortSignal,
  ): Promise<SpawnedProcess> {
    const user = request.user || (await this.#userOf(ref, signal));
    return this.#spawner.spawn(ref, user, request, sink, signal);
  }

  async listen(ref: string, port: number, signal?: AbortSignal): Promise<Server> {
    const { State, Config } = await this.#inspect(ref, signal);
    // A sandbox with its own kernel has its own loopback interface.
    if (!this.#seesProcesses || parseLabels(Config.Labels).isolation !== "CONTAINER") {
      throw new BerthError(
        "UNSUPPORTED",
        "spec.egress_domains: that needs a service that runs as root on the machine of its Docker daemon, and the daemon's default runtime.",
        { metadata: { capability: "egress_domains" } },
      );
    }
    // If the daemon is in another pid namespace, its pids mean other processes here.
    const isOwn = (): boolean => groupsOf(State.Pid).includes(ref);
    return openLoopbackPort({ pid: State.Pid, isOwn }, port, signal);
  }

  async recover(left: readonly LeftProcess[]): Promise<readonly SpawnedProcess[]> {
    return this.#spawner.recover(left);
  }

  async outside(ref: string, signal?: AbortSignal): Promise<OutsideControl | undefined> {
    // A daemon on the network runs processes on another machine.
    if (this.#daemon.socketPath === undefined) return undefined;
    return untilAborted(
      this.#outside.of(ref, () => this.#inspect(ref)),
      signal,
    );
  }

  figures(): EngineFigures {
    return {
      orphanedPipes: this.#orphanedPipes.count,
      sandboxesWithoutPipes: this.#spawner.withoutPipes,
      waiting: [],
    };
  }

  async close(): Promise<void> {
    this.#spawner.close();
    await this.#pipes?.close();
    await this.#maker.close();
    await this.#stage.close();
    this.#daemon.close();
  }

  /** Whether containers' processes run on this machine and the service may inspect them. */
  get #seesProcesses(): boolean {
    return this.#daemon.socketPath !== undefined && process.getuid?.() === 0;
  }

  #isolationOf(runtime: string, info: EngineInfo): IsolationLevel {
    if (runtime === "") return info.isolation;
    const level = ownValue(this.#options.allowedRuntimes ?? {}, runtime);
    if (level !== undefined) return level;
    throw new BerthError(
      "NOT_ALLOWED",
      `The operator does not allow the OCI runtime ${JSON.stringify(runtime)}.`,
      {
        metadata: { runtime },
      },
    );
  }

  async #checkMounts(mounts: readonly EngineMount[]): Promise<readonly HostMount[]> {
    if (mounts.length === 0) return [];
    const { socketPath } = this.#daemon;
    const { allowedHostPaths = [], hiddenHostPaths = [] } = this.#options;
    if (socketPath !== undefined)
      return checkMounts(mounts, allowedHostPaths, [socketPath, ...hiddenHostPaths]);
    throw new BerthError(
      "UNSUPPORTED",
      "Mounts need a Docker daemon on the machine of the service: paths cannot be checked elsewhere.",
    );
  }

  /** Creates a container, with a directory of pipes if it can have one. */
  async #withPipes(
    user: string,
    name: string,
    { image, mounts, firstShell }: EngineSandboxSpec,
    make: (pipes: string | undefined) => Promise<CreatedContainer>,
  ): Promise<CreatedContainer> {
    const covered = mounts.some(({ target }) => overlap(target, PIPES_TARGET));
    const pipes = covered ? undefined : await this.#pipes?.create(name);
    if (pipes === undefined) return this.#withoutPipes(make);
    const { zygote } = pipes;
    const as = { image, user };
    const early = zygote && firstShell && (await this.#early?.start(name, as, zygote, firstShell));
    try {
      const made = await make(pipes.path);
      const users = this.#spawner.add(made.id, name, { zygote, early });
      users.learn(user, uidOf(made.owner), made.printed);
      this.#early?.learn(as, users.known(user));
      return made;
    } catch (error) {
      early?.abandon();
      zygote?.close();
      await this.#pipes?.remove(name);
      // This error means that the daemon does not share the service's file system.
      if (!answerTo(error)?.text.includes("bind source path does not exist")) throw error;
      pipes.refused(error);
      return this.#withoutPipes(make);
    } finally {
      zygote?.started();
      pipes.settled();
    }
  }

  async #withoutPipes(
    make: (pipes: string | undefined) => Promise<CreatedContainer>,
  ): Promise<CreatedContainer> {
    const made = await make(undefined);
    this.#spawner.add(made.id, undefined);
    return made;
  }

  /** Recovers the pipes of containers from an earlier run of the service. */
  async #recoverPipes(containers: readonly ContainerInfo[]): Promise<void> {
    // Not by the containers' names, which the operator can change. Podman may list no mounts.
    const mounted = new Map(
      containers.flatMap(({ Id, Mounts }) => (Mounts ?? []).map(({ Source }) => [Source, Id])),
    );
    for (const [name, id] of (await this.#pipes?.recover(mounted)) ?? []) this.#spawner.add(id, name);
    for (const { Id: id } of containers) if (!this.#spawner.has(id)) this.#spawner.add(id, undefined);
  }

  async #network(mode: NetworkMode, signal?: AbortSignal): Promise<ContainerFacts["network"]> {
    if (mode === "NONE") return undefined;
    return { name: await this.#egress.ensure(signal), dns: this.#options.egressDns ?? DEFAULT_EGRESS_DNS };
  }

  async #callPause(ref: string, paused: boolean, signal?: AbortSignal): Promise<void> {
    await this.#daemon.call(
      paused ? "pausing a container" : "resuming a container",
      (docker, abortSignal) => {
        const container = docker.getContainer(ref);
        return paused ? container.pause({ abortSignal }) : container.unpause({ abortSignal });
      },
      { signal },
    );
  }

  /** How a stopped container ended; undefined if it is gone or being removed. */
  async #findEnd(ref: string, signal?: AbortSignal): Promise<EngineSandboxEnd | undefined> {
    // Docker would answer only after the removal, and the request would slow that down.
    if (this.#removing.has(ref)) return undefined;
    try {
      const { State: state } = await this.#inspect(ref, signal);
      return state.Status === "removing" || this.#removing.has(ref)
        ? undefined
        : ended(state.ExitCode, state.OOMKilled);
    } catch (error) {
      if (hasReason(error, "SANDBOX_TERMINATED")) return undefined;
      // Docker may be unable to inspect this one, and to answer everything else.
      if (answerTo(error) === undefined && !hadNoAnswer(error)) throw error;
      this.#options.logger.warn({ ref, err: error }, "Docker cannot inspect a container that has ended");
      return { exitCode: -1, outOfMemory: false, cause: "Docker does not say how it ended" };
    }
  }

  async #userOf(ref: string, signal?: AbortSignal): Promise<string> {
    const known = this.#users.get(ref);
    if (known !== undefined) return known;
    const { user } = parseLabels((await this.#inspect(ref, signal)).Config.Labels);
    this.#users.set(ref, user);
    return user;
  }

  /** Inspects a container that was just created. If that fails, removes it. */
  async #inspectNew(ref: string, signal?: AbortSignal): Promise<ContainerInspectInfo> {
    try {
      return await this.#inspect(ref, signal);
    } catch (error) {
      // What cannot be removed either is found by its labels.
      await within(
        this.remove(ref).catch(() => {}),
        CLEANUP_PATIENCE_MS,
      );
      throw error;
    }
  }

  #inspect(ref: string, signal?: AbortSignal): Promise<ContainerInspectInfo> {
    return this.#daemon.call(
      "inspecting a container",
      (docker, abortSignal) => docker.getContainer(ref).inspect({ abortSignal }),
      { signal },
    );
  }
}

/** The error for a limit of memory that the kernel refuses: it cannot free enough of what the sandbox uses. */
function usesMore(cause: unknown): BerthError {
  return new BerthError("UNSUPPORTED", "The sandbox uses more memory than its new limit.", { cause });
}

/** @param owner `uid[:[gid]]`; empty: root. */
function uidOf(owner: string): number {
  return Number(owner.split(":")[0]);
}

function describe(
  ref: string,
  { sandboxId, generation, owner, isolation, user }: SandboxLabels,
  condition: Pick<EngineSandbox, "state" | "end">,
): EngineSandbox {
  return { ref, sandboxId, generation, owner, isolation, user, ...condition };
}
