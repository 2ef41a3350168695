import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import type { CoreV1EventList, V1PersistentVolumeClaim, V1Pod } from "@kubernetes/client-node";
import { within } from "../../base/async.ts";
import { BerthError, hasReason, throwIfAborted } from "../../base/errors.ts";
import type { Logger } from "../../base/logger.ts";
import { OrphanedPipes } from "../orphaned-pipes.ts";
import type {
  EngineMount,
  EngineVolume,
  EngineVolumes,
  OpenVolume,
  OutputSink,
  SpawnedProcess,
  SpawnRequest,
  VolumeLabels,
  VolumeMount,
} from "../port.ts";
import type { Api } from "./api.ts";
import { isRefusal, mayHaveHappened, quoted, refusalOf } from "./errors.ts";
import { endOf, INSTANCE_LABEL, instanceLabel, type PodFacts, ROLE_LABEL, workPod } from "./pod.ts";
import type { Pods } from "./pods.ts";
import { spawnInPod, startError } from "./process.ts";
import { setUp, untilStarted } from "./start.ts";
import { addClaims, type ClaimOptions, claimLabel, volumeMountsOf } from "./volumes.ts";
import type { PodWarnings } from "./warnings.ts";

/** What {@link Claims} needs. */
interface ClaimsParts {
  readonly api: Api;
  readonly pods: Pods;
  readonly warnings: PodWarnings;
  readonly facts: PodFacts;
  readonly options: ClaimOptions;
  readonly logger: Logger;
  /** How long a pod may take to start. */
  readonly startTimeoutMs: number;
  /** Returns a new pod name. */
  newName(): string;
  /** Removes a pod; returns when it is gone. Never rejects. */
  remove(pod: string): Promise<void>;
  /** @throws if this service must not change anything at present. */
  assertHeld(): void;
}

const ANNOTATION = {
  owner: "berth.dev/owner",
  workspaceId: "berth.dev/workspace",
  /** Identifies the call that created the claim. */
  making: "berth.dev/making",
} as const;
/** The role of pods in which the service itself works on claims. */
const WORK = "volume";
/** Where such a pod mounts the claim. */
const VOLUME = "/volume";
/** Where it mounts a second claim. */
const OTHER = "/other-volume";

const GONE_POLL_MS = 200;
const REMOVE_TIMEOUT_MS = 60_000;
/** How long to keep asking an API server after its answer was lost. Longer than a restart takes. */
const ANSWER_MS = 15_000;
/** How long a claim may still appear after the call that creates it has failed. API servers end calls after a minute. */
const LATE_MS = 5 * 60_000;
const SETUP_TIMEOUT_MS = 30_000;
/** How long a failed start waits for its pod to be removed. */
const CLEAN_UP_MS = 10_000;

/** Volumes as PersistentVolumeClaims of the namespace. Their storage class decides what provisions them. */
export class Claims implements EngineVolumes {
  readonly shareable: boolean;
  readonly clones: boolean;
  readonly sizeBytes: number;
  readonly #parts: ClaimsParts;
  /** Failed calls that may have created a claim nevertheless: the claim's name, by the call's nonce. */
  readonly #unsure = new Map<string, { readonly name: string; readonly failedAt: number }>();
  /** The claims on which the service works at present, by the pod in which it does. */
  readonly #working = new Map<string, readonly string[]>();

  constructor(parts: ClaimsParts) {
    this.#parts = parts;
    this.shareable = parts.options.accessMode === "ReadWriteMany";
    this.clones = parts.options.clones;
    this.sizeBytes = parts.options.sizeBytes;
  }

  locate(name: string): string {
    return `${this.#parts.api.namespace}/${name}`;
  }

  async recover(signal?: AbortSignal): Promise<void> {
    const { pods, remove } = this.#parts;
    const left = (await pods.list(signal)).filter(({ metadata }) => metadata?.labels?.[ROLE_LABEL] === WORK);
    await Promise.all(left.map(({ metadata }) => remove(metadata?.name ?? "")));
  }

  async make(volume: VolumeLabels, { cloneOf }: { readonly cloneOf?: string } = {}): Promise<boolean> {
    const { api, facts, options, assertHeld } = this.#parts;
    assertHeld();
    await this.#removeUnsure(volume.name);
    const body = claimOf(volume, facts.instance, options);
    const nonce = randomUUID();
    Object.assign(body.metadata?.annotations ?? {}, { [ANNOTATION.making]: nonce });
    if (cloneOf !== undefined && body.spec !== undefined)
      body.spec.dataSource = { kind: "PersistentVolumeClaim", name: cloneOf };
    try {
      await api.call("POST", api.path("persistentvolumeclaims"), "creating a claim", { body });
      return true;
    } catch (error) {
      // Check the reason: a quota that changes meanwhile is also a conflict.
      if (refusalOf(error)?.reason === "AlreadyExists") return false;
      if (mayHaveHappened(error)) {
        const wasMade = await this.#wasMade(volume.name, nonce);
        if (wasMade !== undefined) return wasMade;
        // Another call for the same owner may already use a shared directory that this one created.
        if (volume.workspaceId !== "")
          this.#unsure.set(nonce, { name: volume.name, failedAt: performance.now() });
      }
      const words = quoted(refusalOf(error)?.message ?? "");
      if (isRefusal(error, 403) && /exceeded quota/i.test(words)) {
        throw new BerthError(
          "NO_SPACE",
          `The namespace's quota leaves no room for the claim. Ask the operator to raise it, or clean up other workspaces: ${words}`,
          { cause: error },
        );
      }
      throw error;
    }
  }

  /** Whether a call whose answer was lost created the claim; undefined if there is no claim, or no answer. */
  async #wasMade(name: string, nonce: string): Promise<boolean | undefined> {
    const limit = AbortSignal.timeout(ANSWER_MS);
    while (!limit.aborted) {
      try {
        const { metadata } = (await this.#get(name, limit)) ?? {};
        return metadata && metadata.annotations?.[ANNOTATION.making] === nonce;
      } catch {
        await sleep(GONE_POLL_MS, undefined, { ref: false });
      }
    }
    return undefined;
  }

  /** Removes the claims that failed calls created nevertheless. */
  async removeLeft(): Promise<void> {
    const names = new Set([...this.#unsure.values()].map(({ name }) => name));
    for (const name of names) await this.#removeUnsure(name);
  }

  async #removeUnsure(name: string): Promise<void> {
    const { assertHeld } = this.#parts;
    for (const [nonce, call] of this.#unsure) {
      if (call.name !== name) continue;
      assertHeld();
      const claim = await this.#get(name);
      const isThere = claim?.metadata?.annotations?.[ANNOTATION.making] === nonce;
      if (isThere) await this.#delete(claim);
      if (isThere || performance.now() - call.failedAt > LATE_MS) this.#unsure.delete(nonce);
    }
  }

  async find(name: string, signal?: AbortSignal): Promise<EngineVolume | undefined> {
    const claim = await this.#find(name, signal);
    return claim && this.#describe(claim);
  }

  async #find(name: string, signal?: AbortSignal): Promise<V1PersistentVolumeClaim | undefined> {
    const claim = await this.#get(name, signal);
    const { labels, annotations } = claim?.metadata ?? {};
    const isOurs = labels?.[INSTANCE_LABEL] === instanceLabel(this.#parts.facts.instance);
    // What a failed call has created is removed before another claim gets its name.
    const isLeft = this.#unsure.has(annotations?.[ANNOTATION.making] ?? "");
    return isOurs && !isLeft ? claim : undefined;
  }

  async list(signal?: AbortSignal): Promise<EngineVolume[]> {
    const { api, facts } = this.#parts;
    const labelSelector = `${INSTANCE_LABEL}=${instanceLabel(facts.instance)}`;
    const { items } = await api.list<V1PersistentVolumeClaim, V1PersistentVolumeClaim>(
      api.path("persistentvolumeclaims"),
      "listing claims",
      (claim) => claim,
      { labelSelector, signal },
    );
    // Other claims of the instance, such as the one for its own data, have no such annotation.
    return items
      .filter(({ metadata }) => metadata?.annotations?.[ANNOTATION.owner] !== undefined)
      .map((claim) => this.#describe(claim));
  }

  async remove(name: string, signal?: AbortSignal): Promise<void> {
    this.#parts.assertHeld();
    const claim = await this.#find(name, signal);
    if (claim !== undefined) await this.#delete(claim, signal);
  }

  /**
   * Deletes a claim, and waits until it is gone. A later claim of its name stays, even if the API server acts late on a
   * call that it left unanswered.
   */
  async #delete({ metadata }: V1PersistentVolumeClaim, signal?: AbortSignal): Promise<void> {
    const { api } = this.#parts;
    const { name = "", uid = "" } = metadata ?? {};
    const timeout = AbortSignal.timeout(REMOVE_TIMEOUT_MS);
    const limit = signal === undefined ? timeout : AbortSignal.any([signal, timeout]);
    const isThere = async (): Promise<boolean> => (await this.#get(name, limit))?.metadata?.uid === uid;
    try {
      const options = { body: { preconditions: { uid } }, signal: limit };
      await api
        .call("DELETE", api.path(`persistentvolumeclaims/${name}`), "removing a claim", options)
        .catch((error: unknown) => {
          // A conflict: another claim has this name.
          if (!isRefusal(error, 404) && !isRefusal(error, 409)) throw error;
        });
      while (await isThere()) await sleep(GONE_POLL_MS, undefined, { signal: limit });
    } catch (error) {
      throwIfAborted(signal);
      if (!timeout.aborted) throw error;
      throw new BerthError(
        "ENGINE_UNAVAILABLE",
        `The claim ${this.locate(name)} is not gone after ${REMOVE_TIMEOUT_MS / 1000} s: a pod still uses it, or its class does not remove it. See: kubectl --namespace ${api.namespace} describe pvc ${name}`,
        { cause: error, retryAfterMs: 5000 },
      );
    }
  }

  open(name: string, signal?: AbortSignal): Promise<OpenVolume> {
    return this.#open([mountAt(VOLUME, name)], [name], { signal });
  }

  async openBeside(
    name: string,
    other: string,
    options: { readonly signal: AbortSignal; readonly timeoutMs?: number },
  ): Promise<OpenVolume & { readonly otherPath: string }> {
    const mounts = [mountAt(VOLUME, name), { ...mountAt(OTHER, other), readOnly: true }];
    // If sandboxes have mounted the other volume, it may be available only on their node. No pod has mounted this one
    // yet.
    return Object.assign(await this.#open(mounts, [other], options), { otherPath: OTHER });
  }

  async #open(
    mounts: readonly VolumeMount[],
    near: readonly string[],
    start: { readonly signal?: AbortSignal | undefined; readonly timeoutMs?: number },
  ): Promise<WorkPlace> {
    const { api, pods, warnings, facts, options, startTimeoutMs, newName, assertHeld } = this.#parts;
    const { signal, timeoutMs = startTimeoutMs } = start;
    throwIfAborted(signal);
    assertHeld();
    await pods.follow(signal);
    const claims = mounts.map(({ volume }) => volume);
    for (const claim of claims) this.#assertFree(claim);
    const pod = newName();
    const remove = (): Promise<void> => {
      this.#working.delete(pod);
      return this.#parts.remove(pod);
    };
    const body = workPod(pod, WORK, options.image, facts);
    addClaims(body, mounts, options, { near, others: pods.all });
    this.#working.set(pod, claims);
    const making = api.call<V1Pod>("POST", api.path("pods"), "creating a pod", { body });
    try {
      await making;
      throwIfAborted(signal);
      const parts = { api, pods, warnings, signal };
      await untilStarted({ ...parts, timeoutMs }, pod, options.image);
      await setUp({ ...parts, timeoutMs: SETUP_TIMEOUT_MS }, pod, "/", "", []);
    } catch (error) {
      await making.catch(() => {});
      await within(remove(), CLEAN_UP_MS);
      throw await this.explain(error, mounts);
    }
    return new WorkPlace(this.#parts, pod, remove);
  }

  /** Adds to the error for a pod that did not start what Kubernetes reports about claims that are not bound. */
  async explain(error: unknown, mounts: readonly EngineMount[]): Promise<unknown> {
    if (!hasReason(error, "SANDBOX_START_FAILED")) return error;
    const claims = new Set(volumeMountsOf(mounts).map(({ volume }) => volume));
    const words = await Promise.all(
      [...claims].map((claim) => this.#whyUnbound(claim).catch(() => undefined)),
    );
    const said = words.filter((text) => text !== undefined).join(" ");
    if (said === "") return error;
    return new BerthError("SANDBOX_START_FAILED", `${error.message} ${said}`, { cause: error });
  }

  async #whyUnbound(name: string): Promise<string | undefined> {
    const { api } = this.#parts;
    const claim = await this.#get(name);
    if (claim === undefined) return `The claim ${this.locate(name)} is gone.`;
    if (claim.status?.phase === "Bound") return undefined;
    const fieldSelector = `involvedObject.kind=PersistentVolumeClaim,involvedObject.name=${name}`;
    const { items } = await api.call<CoreV1EventList>(
      "GET",
      `${api.path("events")}?${new URLSearchParams({ fieldSelector })}`,
      "reading events",
    );
    const time = ({ lastTimestamp, eventTime, metadata }: CoreV1EventList["items"][number]): string =>
      String(lastTimestamp ?? eventTime ?? metadata.creationTimestamp ?? "");
    // Of events at the same time, a warning says more than a message about waiting.
    const last = items
      .filter(({ metadata }) => metadata !== undefined)
      .sort(
        (a, b) => Number(a.type === "Warning") - Number(b.type === "Warning") || (time(a) < time(b) ? -1 : 1),
      )
      .at(-1);
    const why = last === undefined ? "" : `: ${last.reason}: ${quoted(last.message ?? "")}`;
    const storageClass = claim.spec?.storageClassName;
    const of =
      storageClass === undefined
        ? "has no class, nor has the cluster a default one"
        : `of the class ${storageClass}`;
    return `The claim ${this.locate(name)} (${of}) is not bound${why}`;
  }

  /**
   * A pod of the service's own that is being removed does not count: Kubernetes starts the next one when it is gone.
   * @throws `WORKSPACE_IN_USE`
   */
  #assertFree(name: string): void {
    const { pods, options } = this.#parts;
    if (options.accessMode !== "ReadWriteOncePod") return;
    for (const pod of pods.all) {
      const { labels = {} } = pod.metadata ?? {};
      if (labels[ROLE_LABEL] !== WORK && claimLabel(name) in labels && endOf(pod) === undefined)
        throw this.#inUse(name, "a sandbox has it. Stop the workspace's sandbox, and try again.");
    }
    for (const claims of this.#working.values())
      if (claims.includes(name))
        throw this.#inUse(name, "another call works on it. Try again once it has ended.");
  }

  #inUse(name: string, why: string): BerthError {
    return new BerthError(
      "WORKSPACE_IN_USE",
      `The claim ${this.locate(name)} is for one pod alone (--volume-access-mode ReadWriteOncePod), and ${why}`,
      { retryAfterMs: 1000 },
    );
  }

  async #get(name: string, signal?: AbortSignal): Promise<V1PersistentVolumeClaim | undefined> {
    const { api } = this.#parts;
    try {
      return await api.call("GET", api.path(`persistentvolumeclaims/${name}`), "looking for a claim", {
        signal,
      });
    } catch (error) {
      if (isRefusal(error, 404)) return undefined;
      throw error;
    }
  }

  #describe({ metadata, status }: V1PersistentVolumeClaim): EngineVolume {
    const { annotations, name = "", deletionTimestamp } = metadata ?? {};
    return {
      name,
      owner: annotations?.[ANNOTATION.owner] ?? "",
      workspaceId: annotations?.[ANNOTATION.workspaceId] ?? "",
      problem:
        deletionTimestamp !== undefined
          ? "somebody deletes its claim, which goes once no pod uses it."
          : status?.phase === "Lost"
            ? "the volume of its claim is lost."
            : undefined,
    };
  }
}

/** A pod in which Berth itself works on a claim. */
class WorkPlace implements OpenVolume {
  readonly path = VOLUME;
  readonly #parts: ClaimsParts;
  readonly #pod: string;
  readonly #remove: () => Promise<void>;
  readonly #leftovers = new OrphanedPipes();
  #closing: Promise<void> | undefined;

  constructor(parts: ClaimsParts, pod: string, remove: () => Promise<void>) {
    this.#parts = parts;
    this.#pod = pod;
    this.#remove = remove;
  }

  spawn(request: SpawnRequest, sink: OutputSink, signal?: AbortSignal): Promise<SpawnedProcess> {
    return spawnInPod({
      api: this.#parts.api,
      pod: this.#pod,
      user: "",
      setsHome: false,
      request,
      sink,
      leftovers: this.#leftovers.of(this.#pod),
      signal,
      whyLost: async (status) =>
        startError(status) ??
        new BerthError(
          "ENGINE_UNAVAILABLE",
          "The pod that works on the workspace's claim ended or cannot be reached.",
          {
            retryAfterMs: 1000,
          },
        ),
    });
  }

  close(): Promise<void> {
    this.#closing ??= this.#remove();
    return this.#closing;
  }
}

function mountAt(target: string, volume: string): VolumeMount {
  return { kind: "volume", target, readOnly: false, giveToUser: false, volume, directory: "" };
}

function claimOf(
  { name, owner, workspaceId }: VolumeLabels,
  instance: string,
  { sizeBytes, storageClass, accessMode }: ClaimOptions,
): V1PersistentVolumeClaim {
  return {
    apiVersion: "v1",
    kind: "PersistentVolumeClaim",
    metadata: {
      name,
      labels: {
        "app.kubernetes.io/managed-by": "berth",
        [INSTANCE_LABEL]: instanceLabel(instance),
        [ROLE_LABEL]: workspaceId === "" ? "shared" : "workspace",
      },
      annotations: { [ANNOTATION.owner]: owner, [ANNOTATION.workspaceId]: workspaceId },
    },
    spec: {
      accessModes: [accessMode],
      resources: { requests: { storage: String(sizeBytes) } },
      ...(storageClass !== undefined && { storageClassName: storageClass }),
    },
  };
}
