import type { Server } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import type { V1Pod } from "@kubernetes/client-node";
import { untilAborted, within } from "../../base/async.ts";
import { BerthError, hasReason, throwIfAborted } from "../../base/errors.ts";
import type { Logger } from "../../base/logger.ts";
import { ownValue } from "../../base/own-value.ts";
import { Turns } from "../../base/turns.ts";
import { OrphanedPipes } from "../orphaned-pipes.ts";
import type {
  Engine,
  EngineEvent,
  EngineFigures,
  EngineInfo,
  EngineSandbox,
  EngineSandboxSpec,
  EngineUsage,
  EnsureImageOptions,
  IsolationLevel,
  LeftProcess,
  OutputSink,
  Resources,
  SpawnedProcess,
  SpawnRequest,
} from "../port.ts";
import { Api, type ApiOptions } from "./api.ts";
import { Claims } from "./claims.ts";
import { isRefusal, isUnanswered, quoted, refusalOf } from "./errors.ts";
import { watchEvents } from "./events.ts";
import type { ExecStatus } from "./exec-socket.ts";
import { ImageUsers } from "./images.ts";
import { largestNodeOf, type NetworkPolicyWord, readInfo, requireCapabilities } from "./info.ts";
import { InstanceLease } from "./lease.ts";
import { NetworkGuard } from "./network/guard.ts";
import { PolicyKeeper } from "./network/keeper.ts";
import type { NetworkOptions } from "./network/policies.ts";
import { probeNetwork, removeProbes } from "./network/probe.ts";
import {
  CONTAINER,
  describePod,
  endOf,
  labelsOfNone,
  newPodName,
  type PodFacts,
  type PodOptions,
  parseRef,
  podResources,
  ROLE_LABEL,
  refOf,
  sandboxPod,
} from "./pod.ts";
import { Pods } from "./pods.ts";
import { runPlain, spawnInPod, startError } from "./process.ts";
import { resizeRefused, untilResized } from "./resize.ts";
import { parseUsage, passesSpawn, USAGE_COMMAND } from "./scripts.ts";
import { POD_END_MS, setUp, untilStarted, waitingPods } from "./start.ts";
import type { ClaimOptions } from "./volumes.ts";
import { PodWarnings } from "./warnings.ts";

/** Options of a {@link KubernetesEngine}. */
export interface KubernetesEngineOptions extends ApiOptions, PodOptions, NetworkOptions {
  /** Distinguishes this service's pods from others in the namespace. */
  readonly instance: string;
  readonly logger: Logger;
  /**
   * Runtime classes that a spec may name, with the isolation each gives. Also gives the isolation of `runtimeClass`.
   * Default none.
   */
  readonly allowedRuntimes?: Readonly<Record<string, IsolationLevel>>;
  readonly networkPolicy?: NetworkPolicyWord;
  /**
   * The image of pods that test the network, with `enforced`: any image with a shell. Without it there is no test, and
   * no network is offered.
   */
  readonly probeImage?: string | undefined;
  /**
   * The name under which to take the lease on the instance. Default: no lease is taken, so other services may use the
   * instance too.
   */
  readonly holder?: string;
  /** How long a sandbox may take to start, including the pull of its image. Default 2 minutes. */
  readonly startTimeoutMs?: number;
  /** How long the probe of an image may take, which may have to wait for a first pull. Default 15 minutes. */
  readonly pullTimeoutMs?: number;
  /** How to create claims for sandboxes to mount. Default: sandboxes have no volumes. */
  readonly volumes?: ClaimOptions | undefined;
}

const START_TIMEOUT_MS = 120_000;
const PULL_TIMEOUT_MS = 15 * 60_000;
const SETUP_TIMEOUT_MS = 30_000;
/** Each setup is an exec. API servers and kubelets handle only a few at a time. */
const SETUPS_AT_ONCE = 16;
const REMOVE_TIMEOUT_MS = 60_000;
/** How often to ask the API server whether a pod is gone. Normally the watch reports it at once. */
const GONE_POLL_MS = 1_000;
/** How long a failed create waits for its pod to be gone. After that, the removal continues in the background. */
const CLEAN_UP_MS = 10_000;

/** Roles of Berth's own short-lived pods. */
const HELPER_ROLES: ReadonlySet<string> = new Set(["probe", "network-probe", "volume"]);

/** The engine that uses a Kubernetes cluster. A sandbox is a pod. */
export class KubernetesEngine implements Engine {
  readonly name = "kubernetes";
  readonly undumpable = undefined;
  readonly volumes: Claims | undefined;
  readonly #options: KubernetesEngineOptions;
  readonly #api: Api;
  readonly #pods: Pods;
  readonly #warnings: PodWarnings;
  readonly #images: ImageUsers;
  readonly #orphanedPipes = new OrphanedPipes();
  readonly #setUps = new Turns(SETUPS_AT_ONCE);
  readonly #removing = new Set<string>();
  /** Names of Berth's own pods that this engine is using. */
  readonly #helpers = new Set<string>();
  readonly #lease: InstanceLease | undefined;
  readonly #keeper: PolicyKeeper;
  /** Set if the operator declares that the cluster enforces NetworkPolicy. */
  readonly #guard: NetworkGuard | undefined;
  readonly #largestNode: ReturnType<typeof largestNodeOf>;

  private constructor(options: KubernetesEngineOptions, api: Api, lease: InstanceLease | undefined) {
    this.#options = options;
    this.#api = api;
    this.#lease = lease;
    this.#pods = new Pods(api, options.instance, options.logger);
    this.#warnings = new PodWarnings(api);
    this.#largestNode = largestNodeOf(api);
    const remove = (name: string) => this.#removeHelper(name);
    const newName = () => {
      const name = newPodName();
      this.#helpers.add(name);
      return name;
    };
    const facts = this.#facts("", this.#isolation);
    const parts = { api, pods: this.#pods, warnings: this.#warnings, facts, newName, remove };
    const { instance, logger, probeImage: image, volumes } = options;
    const { startTimeoutMs = START_TIMEOUT_MS, pullTimeoutMs = PULL_TIMEOUT_MS } = options;
    this.#images = new ImageUsers({ ...parts, startTimeoutMs, pullTimeoutMs });
    const assertHeld = () => this.#lease?.assertHeld();
    this.volumes = volumes && new Claims({ ...parts, options: volumes, logger, startTimeoutMs, assertHeld });
    this.#keeper = new PolicyKeeper({ api, instance, options, labels: labelsOfNone(facts), logger });
    if (options.networkPolicy !== "enforced") return;
    const probe = async (signal: AbortSignal) => {
      if (image === undefined) throw new Error("no image is given for it");
      await removeProbes(api, instance, remove);
      return probeNetwork({ ...parts, image, signal });
    };
    this.#guard = new NetworkGuard({ keeper: this.#keeper, probe, logger });
  }

  /** @throws `INVALID_ARGUMENT` for a kubeconfig that cannot be used, or an instance that another service has. */
  static async open(options: KubernetesEngineOptions, signal?: AbortSignal): Promise<KubernetesEngine> {
    const api = await Api.open(options);
    const { holder, instance, logger } = options;
    const lease =
      holder === undefined
        ? undefined
        : await InstanceLease.acquire({ api, holder, instance, logger }, signal);
    const engine = new KubernetesEngine(options, api, lease);
    try {
      await engine.#guard?.start();
    } catch (error) {
      await engine.close();
      throw error;
    }
    return engine;
  }

  async info(signal?: AbortSignal): Promise<EngineInfo> {
    this.#lease?.assertHeld();
    const { networkPolicy } = this.#options;
    await untilAborted(this.#guard?.look() ?? Promise.resolve(), signal);
    const options = {
      ...{ isolation: this.#isolation, networkPolicy, guard: this.#guard },
      largestNode: this.#largestNode,
    };
    return readInfo(this.#api, options, signal);
  }

  /** Waits for the test of the network, and returns why a network is not enforced. Undefined without `enforced`. */
  async networkProblems(
    signal?: AbortSignal,
  ): Promise<{ readonly none: string | undefined; readonly egress: string | undefined } | undefined> {
    const guard = this.#guard;
    if (guard === undefined) return undefined;
    await guard.tested(signal);
    return { none: guard.problemOf("NONE"), egress: guard.problemOf("EGRESS") };
  }

  /** Removes the instance's network policies. The instance must have no sandboxes. */
  async removePolicies(): Promise<void> {
    await this.#keeper.remove();
  }

  async ensureImage(image: string, { sandbox, signal }: EnsureImageOptions): Promise<void> {
    this.#lease?.assertHeld();
    if (sandbox !== undefined) await this.#admit(sandbox, signal);
    await this.#pods.follow(signal);
    await this.#images.of(image, sandbox ?? { network: "NONE", runtime: "" }, signal);
  }

  async create(spec: EngineSandboxSpec, signal?: AbortSignal): Promise<EngineSandbox> {
    throwIfAborted(signal);
    this.#lease?.assertHeld();
    const isolation = await this.#admit(spec, signal);
    await this.#pods.follow(signal);
    const user = spec.user || (await this.#images.of(spec.image, spec, signal));
    const name = newPodName();
    const body = sandboxPod(name, spec, this.#facts(user, isolation), this.#pods.all);
    // An aborted call may still create the pod, so do not abort it: wait for it, then remove the pod.
    const making = this.#api.call<V1Pod>("POST", this.#api.path("pods"), "creating a pod", { body });
    try {
      await making;
      throwIfAborted(signal);
      const parts = { api: this.#api, pods: this.#pods, warnings: this.#warnings, signal };
      const { startTimeoutMs = START_TIMEOUT_MS } = this.#options;
      const pod = await untilStarted({ ...parts, timeoutMs: startTimeoutMs }, name, spec.image);
      const settings = { ...parts, timeoutMs: SETUP_TIMEOUT_MS };
      await this.#setUps.run(() => setUp(settings, name, spec.workingDir, user, spec.mounts), signal);
      throwIfAborted(signal);
      return describePod(pod);
    } catch (error) {
      const refused = refusalOf(await making.then(undefined, (made: unknown) => made));
      // The pod may have been created even if the API server failed.
      if (refused === undefined || refused.status >= 500) {
        // A server that does not answer confirms no removal. What it creates late, the next lists show.
        const isAway = isUnanswered(error) || hasReason(signal?.reason, "ENGINE_UNAVAILABLE");
        await within(this.#removeNamed(name), isAway ? 0 : CLEAN_UP_MS);
      }
      throw (await this.volumes?.explain(error, spec.mounts)) ?? error;
    }
  }

  async pause(ref: string): Promise<void> {
    throw this.#unsupported(ref, "pause", "pause sandboxes");
  }

  async resume(ref: string): Promise<void> {
    throw this.#unsupported(ref, "pause", "resume sandboxes");
  }

  async isPaused(): Promise<boolean> {
    return false;
  }

  async mount(ref: string): Promise<void> {
    throw this.#unsupported(ref, "mounts", "mount anything in a sandbox that runs");
  }

  async setResources(ref: string, resources: Resources, signal?: AbortSignal): Promise<void> {
    await this.#pods.follow(signal);
    const { name } = parseRef(ref);
    const body = { spec: { containers: [{ name: CONTAINER, resources: podResources(resources) }] } };
    const contentType = "application/strategic-merge-patch+json";
    await this.#api
      .call("PATCH", this.#api.path(`pods/${name}/resize`), "changing a pod's limits", {
        ...{ body, contentType, signal },
      })
      .catch((error: unknown) => {
        throw resizeRefused(error);
      });
    await untilResized(this.#pods, ref, resources, () => void this.#running(ref), signal);
  }

  async remove(ref: string, signal?: AbortSignal): Promise<void> {
    throwIfAborted(signal);
    const { name, uid } = parseRef(ref);
    // No pod of this engine has a ref without a uid.
    if (uid === "") return;
    this.#lease?.assertHeld();
    this.#removing.add(ref);
    try {
      const timeout = AbortSignal.timeout(REMOVE_TIMEOUT_MS);
      const limit = signal === undefined ? timeout : AbortSignal.any([signal, timeout]);
      await this.#remove(name, uid, limit).catch((error: unknown) => {
        throwIfAborted(signal);
        throw timeout.aborted ? this.#removalStuck(ref, error) : error;
      });
    } finally {
      this.#removing.delete(ref);
    }
  }

  async list(signal?: AbortSignal): Promise<EngineSandbox[]> {
    const pods = await this.#pods.list(signal);
    this.#removeLeft(pods);
    void this.volumes?.removeLeft().catch((error: unknown) => {
      this.#options.logger.warn({ err: error }, "could not remove a claim; Berth tries again later");
    });
    return pods.filter(({ metadata }) => metadata?.labels?.[ROLE_LABEL] === "sandbox").map(describePod);
  }

  events(signal: AbortSignal): AsyncIterable<EngineEvent> {
    return watchEvents(this.#pods, signal);
  }

  async usage(ref: string, signal?: AbortSignal): Promise<EngineUsage> {
    await this.#pods.follow(signal);
    this.#running(ref);
    const { name } = parseRef(ref);
    const { stdout, status } = await runPlain(this.#api, name, USAGE_COMMAND, signal);
    const usage = parseUsage(stdout);
    if (usage !== undefined) return usage;
    const unreadable = "The sandbox's resource usage cannot be read.";
    throw startError(status) ?? new BerthError("ENGINE_UNAVAILABLE", unreadable, { retryAfterMs: 1000 });
  }

  async spawn(
    ref: string,
    request: SpawnRequest,
    sink: OutputSink,
    signal?: AbortSignal,
  ): Promise<SpawnedProcess> {
    throwIfAborted(signal);
    await this.#pods.follow(signal);
    const pod = this.#running(ref);
    const ownEnv = pod.spec?.containers.find(({ name }) => name === CONTAINER)?.env ?? [];
    const value = (text = ""): string => text.replaceAll("$$", "$");
    // The script that starts the process would drop these.
    const special = ownEnv
      .filter(({ name }) => !passesSpawn(name))
      .map((entry) => [entry.name, value(entry.value)]);
    return spawnInPod({
      api: this.#api,
      pod: parseRef(ref).name,
      user: request.user || describePod(pod).user,
      setsHome: ownEnv.some((entry) => entry.name === "HOME" && entry.value),
      request: { ...request, env: { ...Object.fromEntries(special), ...request.env } },
      sink,
      leftovers: this.#orphanedPipes.of(ref),
      signal,
      whyLost: (status) => this.#whyLost(ref, status),
    });
  }

  async listen(ref: string): Promise<Server> {
    throw this.#unsupported(ref, "egress_domains", "open ports in sandboxes, which egress_domains need");
  }

  /** The streams of an exec cannot be opened again, so nobody knows how a process ended. */
  async recover(left: readonly LeftProcess[]): Promise<readonly undefined[]> {
    return left.map(() => undefined);
  }

  /** Not supported, because nodes are other machines. */
  async outside(): Promise<undefined> {
    return undefined;
  }

  figures(): EngineFigures {
    return {
      orphanedPipes: this.#orphanedPipes.count,
      sandboxesWithoutPipes: 0,
      waiting: waitingPods(this.#pods.all, this.#warnings),
    };
  }

  async close(): Promise<void> {
    await this.#guard?.close();
    this.#pods.close();
    this.#warnings.close();
    await this.#lease?.release();
  }

  get #isolation(): IsolationLevel {
    const { runtimeClass = "", allowedRuntimes } = this.#options;
    return allowedRuntimes?.[runtimeClass] ?? "CONTAINER";
  }

  #facts(user: string, isolation: IsolationLevel): PodFacts {
    return { ...this.#options, user, isolation };
  }

  /** Refuses a sandbox whose isolation cannot be guaranteed, before anything of its image runs. */
  async #admit(spec: EngineSandboxSpec, signal?: AbortSignal): Promise<IsolationLevel> {
    requireCapabilities(spec, this.#options.networkPolicy);
    await this.#guard?.require(spec.network, signal);
    return this.#isolationOf(spec.runtime);
  }

  #isolationOf(runtime: string): IsolationLevel {
    if (runtime === "") return this.#isolation;
    const level = ownValue(this.#options.allowedRuntimes ?? {}, runtime);
    if (level !== undefined) return level;
    throw new BerthError(
      "NOT_ALLOWED",
      `The operator does not allow the runtime class ${JSON.stringify(runtime)}.`,
      { metadata: { runtime } },
    );
  }

  /** The pod of a running sandbox, as far as is known. @throws `SANDBOX_TERMINATED` */
  #running(ref: string): V1Pod {
    const pod = this.#pods.get(ref);
    if (pod !== undefined && endOf(pod) === undefined && !this.#removing.has(ref)) return pod;
    throw terminated(pod);
  }

  async #whyLost(ref: string, status: ExecStatus | undefined): Promise<BerthError> {
    const error = startError(status);
    if (error !== undefined) return error;
    if (this.#removing.has(ref)) return terminated(undefined);
    // If Kubernetes ended the streams, the pod itself may have ended, which becomes visible later.
    const limit = AbortSignal.timeout(status === undefined ? 0 : POD_END_MS);
    const isEnded = await this.#pods
      .until(
        (pod) => refOf(pod) === ref,
        (pod) =>
          pod === undefined || endOf(pod) !== undefined || pod.metadata?.deletionTimestamp ? true : undefined,
        limit,
      )
      .catch(() => false);
    if (isEnded) return terminated(this.#pods.get(ref));
    return new BerthError(
      "ENGINE_UNAVAILABLE",
      "The connection to the process broke, so how it ended is lost. It may still run.",
      { retryAfterMs: 1000 },
    );
  }

  async #removeNamed(name: string): Promise<void> {
    await this.#remove(name, undefined, AbortSignal.timeout(REMOVE_TIMEOUT_MS)).catch((error: unknown) =>
      this.#options.logger.warn({ err: error, pod: name }, "could not remove a pod; Berth tries again later"),
    );
  }

  async #removeHelper(name: string): Promise<void> {
    await this.#removeNamed(name);
    this.#helpers.delete(name);
  }

  /** Removes Berth's own pods that are no longer used: those of an earlier run, and those whose removal failed. */
  #removeLeft(pods: readonly V1Pod[]): void {
    // Without the lease they may belong to another service.
    if (!this.#lease?.isHeld) return;
    for (const { metadata } of pods) {
      const { name = "", labels, deletionTimestamp } = metadata ?? {};
      if (!HELPER_ROLES.has(labels?.[ROLE_LABEL] ?? "") || this.#helpers.has(name)) continue;
      if (deletionTimestamp !== undefined) continue;
      this.#helpers.add(name);
      void this.#removeHelper(name);
    }
  }

  /** Deletes a pod, and waits until it is gone. */
  async #remove(name: string, uid: string | undefined, signal: AbortSignal): Promise<void> {
    const path = this.#api.path(`pods/${name}`);
    // Send this even if nobody waits any more.
    const known = uid === undefined ? undefined : this.#pods.get(`${name}.${uid}`);
    // A lost node cannot confirm the removal. If it comes back, its kubelet ends containers whose pod is gone.
    const gracePeriodSeconds = known && endOf(known)?.lostNode !== undefined ? 0 : 1;
    const body = { gracePeriodSeconds, ...(uid !== undefined && { preconditions: { uid } }) };
    const isGone = async (): Promise<boolean> => {
      const pod = await this.#api
        .call<V1Pod>("GET", path, "looking for a pod", { signal })
        .catch((error: unknown) => {
          if (isRefusal(error, 404)) return undefined;
          throw error;
        });
      return pod === undefined || (uid !== undefined && pod.metadata?.uid !== uid);
    };
    const gone = Promise.withResolvers<void>();
    const stop = this.#pods.listen({
      changed: (change) => {
        if (change.gone && change.pod.metadata?.name === name) gone.resolve();
      },
    });
    try {
      await this.#api.call("DELETE", path, "removing a pod", { body, signal });
      for (;;) {
        const isSeen = await Promise.race([
          gone.promise.then(() => true),
          sleep(GONE_POLL_MS, false, { signal, ref: false }),
        ]);
        if (isSeen || (await isGone())) return;
      }
    } catch (error) {
      if (isRefusal(error, 404)) return;
      // A conflict: another pod has this name, or the pod has changed meanwhile and still exists.
      if (!isRefusal(error, 409) || !(await isGone())) throw error;
    } finally {
      stop();
    }
  }

  #removalStuck(ref: string, cause: unknown): BerthError {
    const { metadata, spec } = this.#pods.get(ref) ?? {};
    const where = spec?.nodeName === undefined ? "Its node" : `The node ${spec.nodeName}`;
    const finalizers = metadata?.finalizers?.join(", ");
    const why = finalizers
      ? `The sandbox's pod ${metadata?.name} is not gone after ${REMOVE_TIMEOUT_MS / 1000} s: it has finalizers (${quoted(finalizers)}). See who set them`
      : `${where} has not ended the sandbox within ${REMOVE_TIMEOUT_MS / 1000} s. Check the node`;
    return new BerthError("ENGINE_UNAVAILABLE", `${why}; Berth keeps retrying.`, {
      cause,
      retryAfterMs: 5000,
    });
  }

  #unsupported(ref: string, capability: string, what: string): BerthError {
    try {
      this.#running(ref);
    } catch (error) {
      if (error instanceof BerthError) return error;
    }
    return new BerthError("UNSUPPORTED", `The engine kubernetes cannot ${what}.`, {
      metadata: { capability },
    });
  }
}

function terminated(pod: V1Pod | undefined): BerthError {
  const { cause, lostNode } = (pod && endOf(pod)) ?? {};
  const why = cause === undefined ? "is gone or no longer runs." : `has ended: ${cause}`;
  return new BerthError("SANDBOX_TERMINATED", `The sandbox's pod ${why}`, {
    ...(lostNode !== undefined && { metadata: { node: lostNode } }),
  });
}
