import type { V1Pod } from "@kubernetes/client-node";
import { abortError, BerthError, hasReason, invalidArgument } from "../../base/errors.ts";
import type { EngineMount, WaitingSandbox, WaitReason } from "../port.ts";
import type { Api } from "./api.ts";
import { disruptionOf } from "./disruption.ts";
import { quoted } from "./errors.ts";
import { CONTAINER, containerStatus, describePod, endOf, ROLE_LABEL, waitingStatus } from "./pod.ts";
import type { Pods } from "./pods.ts";
import { runPlain, startError } from "./process.ts";
import { SETUP_MARKERS, setupCommand } from "./scripts.ts";
import type { PodWarnings } from "./warnings.ts";

/** How long it takes until the end of a pod is visible, once its processes have ended. */
export const POD_END_MS = 4_000;

/** What {@link untilStarted} needs. */
interface StartParts {
  readonly api: Api;
  readonly pods: Pods;
  readonly warnings: PodWarnings;
  /** How long a pod may take to start. */
  readonly timeoutMs: number;
  /** How long the pod may take to be scheduled to a node. Default: `timeoutMs`. */
  readonly scheduleMs?: number | undefined;
  readonly signal?: AbortSignal | undefined;
}

/**
 * Waits until a new pod's container runs or, with `ends`, has run.
 * @throws `IMAGE_UNAVAILABLE`, `UNSUPPORTED` for a runtime that its node lacks, `SANDBOX_START_FAILED` with the cause.
 */
export async function untilStarted(
  { pods, warnings, timeoutMs, scheduleMs = timeoutMs, signal }: StartParts,
  name: string,
  image: string,
  ends = false,
): Promise<V1Pod> {
  const over = new AbortController();
  const limit = AbortSignal.timeout(timeoutMs);
  const unscheduled = new AbortController();
  const signals = [over.signal, limit, unscheduled.signal, ...(signal ? [signal] : [])];
  let seen: V1Pod | undefined;
  const scheduling = setTimeout(() => {
    if (seen?.spec?.nodeName === undefined) unscheduled.abort();
  }, scheduleMs).unref();
  let said = "";
  const unsupported = Promise.withResolvers<never>();
  unsupported.promise.catch(() => {});
  using _listening = warnings.listen(name, (words) => {
    said = words;
    if (/no runtime for|RuntimeHandler .* not supported/i.test(words)) {
      unsupported.reject(
        new BerthError("UNSUPPORTED", `The sandbox's node does not have its runtime: ${words}`),
      );
    }
  });
  try {
    const started = pods.until(
      (pod) => pod.metadata?.name === name,
      (pod) => {
        if (pod === undefined) {
          if (seen !== undefined) throw endedMeanwhile(undefined);
          return undefined;
        }
        seen = pod;
        return look(pod, image, ends);
      },
      AbortSignal.any(signals),
    );
    started.catch(() => {});
    return await Promise.race([started, unsupported.promise]);
  } catch (error) {
    if (signal?.aborted) throw abortError(signal);
    if (!limit.aborted && !unscheduled.signal.aborted) throw error;
    const why = [seen && pendingCause(seen), said].filter((text) => text).join("; ");
    const afterMs = unscheduled.signal.aborted ? scheduleMs : timeoutMs;
    throw startFailed(`it was not ready within ${afterMs / 1000} s`, why, pods.broken ?? error);
  } finally {
    clearTimeout(scheduling);
    over.abort();
  }
}

/** Returns the pod if it runs; undefined while it may still start. */
function look(pod: V1Pod, image: string, ends: boolean): V1Pod | undefined {
  const { running, terminated } = containerStatus(pod)?.state ?? {};
  if (ends && terminated?.exitCode === 0) return pod;
  if (isEnding(pod)) throw endedMeanwhile(pod);
  if (!ends && running !== undefined) return pod;
  const waiting = waitingStatus(pod);
  const isInit = waiting !== undefined && waiting.name !== CONTAINER;
  const { reason = "", message = "" } = waiting?.state?.waiting ?? {};
  if (
    /^(ErrImagePull|ImagePullBackOff|ErrImageNeverPull|InvalidImageName|ImageInspectError|RegistryUnavailable)$/.test(
      reason,
    )
  ) {
    throw imageUnavailable(isInit ? waiting.image : image, `${reason}: ${quoted(message)}`);
  }
  if (/^(CreateContainerConfigError|CreateContainerError|RunContainerError|StartError)$/.test(reason)) {
    const which = isInit ? `init container ${JSON.stringify(waiting.name)}` : "container";
    throw startFailed(`its ${which} could not start`, quoted(message));
  }
  const end = endOf(pod);
  if (end === undefined) return undefined;
  if (terminated === undefined) throwIfInitFailed(pod);
  const words = quoted(terminated?.message ?? end.cause ?? "");
  throw startFailed("its main process ended at once. The image needs a working /bin/sh", words);
}

/** Throws if a pod has ended because a container that has to end before Berth's failed. */
function throwIfInitFailed({ status }: V1Pod): void {
  for (const { name, state } of status?.initContainerStatuses ?? []) {
    const { exitCode = 0, reason = "", message } = state?.terminated ?? {};
    if (exitCode === 0) continue;
    const words = message ?? (reason === "Error" ? "" : reason);
    throw startFailed(
      `its init container ${JSON.stringify(name)} failed with exit code ${exitCode}`,
      quoted(words),
    );
  }
}

/** Whether somebody or Kubernetes itself ends a pod. */
function isEnding(pod: V1Pod): boolean {
  return pod.metadata?.deletionTimestamp !== undefined || disruptionOf(pod) !== undefined;
}

/** The error for a pod that has ended, is being ended, or is gone. */
function endedMeanwhile(pod: V1Pod | undefined): BerthError {
  const isDeleted = pod?.metadata?.deletionTimestamp !== undefined && disruptionOf(pod) === undefined;
  if (pod === undefined || isDeleted) return startFailed("its pod was deleted meanwhile", "");
  const { cause, outOfMemory } = endOf(pod) ?? {};
  return startFailed("its pod ended meanwhile", cause ?? (outOfMemory ? "out of memory" : ""));
}

/** Throws if a new pod ends. @param ms how long to wait for a sign of that. */
async function throwIfEnding({ pods, signal }: StartParts, name: string, ms: number): Promise<void> {
  const limit = AbortSignal.timeout(ms);
  const ended = await pods
    .until(
      (pod) => pod.metadata?.name === name,
      (pod) => (pod === undefined || isEnding(pod) || endOf(pod) !== undefined ? { pod } : undefined),
      signal === undefined ? limit : AbortSignal.any([signal, limit]),
    )
    .catch(() => undefined);
  if (ended !== undefined) throw endedMeanwhile(ended.pod);
}

/** Why a pod waits: the scheduler's words if no node accepts it. */
function pendingCause(pod: V1Pod): string {
  const scheduled = pod.status?.conditions?.find(({ type }) => type === "PodScheduled");
  if (scheduled?.status === "False")
    return `${scheduled.reason ?? "not scheduled"}: ${quoted(scheduled.message ?? "")}`;
  const { reason, message } = waitingStatus(pod)?.state?.waiting ?? {};
  return reason === undefined ? "" : `${reason}${message === undefined ? "" : `: ${quoted(message)}`}`;
}

/** Prepares a new pod: scripts, working directory, volumes. @throws `INVALID_ARGUMENT`, `SANDBOX_START_FAILED`. */
export async function setUp(
  parts: StartParts,
  pod: string,
  workingDir: string,
  user: string,
  mounts: readonly EngineMount[],
): Promise<void> {
  try {
    await runSetUp(parts, pod, setupCommand(workingDir, user, mounts));
  } catch (error) {
    // A pod that others end refuses the set-up or breaks it off, which may be seen before its end.
    if (hasReason(error, "SANDBOX_TERMINATED") || hasReason(error, "ENGINE_UNAVAILABLE"))
      await throwIfEnding(parts, pod, POD_END_MS);
    throw error;
  }
  await throwIfEnding(parts, pod, 0);
}

async function runSetUp(
  { api, timeoutMs, signal }: StartParts,
  pod: string,
  command: readonly string[],
): Promise<void> {
  const limit = AbortSignal.timeout(timeoutMs);
  const { stdout, stderr, exitCode, status } = await runPlain(
    api,
    pod,
    command,
    signal === undefined ? limit : AbortSignal.any([signal, limit]),
  ).catch((error: unknown) => {
    if (signal?.aborted || !limit.aborted) throw error;
    throw new BerthError("ENGINE_UNAVAILABLE", "The new sandbox's pod did not answer in time.", {
      cause: error,
      retryAfterMs: 1000,
    });
  });
  const printed = (marker: string): boolean => stdout.split("\n").includes(marker);
  if (printed(SETUP_MARKERS.ready)) return;
  if (printed(SETUP_MARKERS.unknownUser))
    throw invalidArgument("spec.user", "the image has no such user or group");
  if (printed(SETUP_MARKERS.badVolume))
    throw startFailed("its volume takes no owner or mode, so its user could not write to it", quoted(stderr));
  if (printed(SETUP_MARKERS.badWorkingDir)) throw invalidArgument("spec.working_dir", quoted(stderr));
  if (exitCode === undefined) {
    const broke = "The connection to the new sandbox broke.";
    throw startError(status) ?? new BerthError("ENGINE_UNAVAILABLE", broke, { retryAfterMs: 1000 });
  }
  throw startFailed("it could not be set up", quoted(stderr));
}

/** The error for an image that cannot be pulled. */
function imageUnavailable(image: string, words: string): BerthError {
  return new BerthError(
    "IMAGE_UNAVAILABLE",
    `The image ${JSON.stringify(image)} cannot be pulled: ${words}. Check its name, the registry and --image-pull-secret.`,
  );
}

/** The error for a pod that fails to start. */
export function startFailed(problem: string, words: string, cause?: unknown): BerthError {
  const details = words === "" ? "." : `: ${words}`;
  return new BerthError("SANDBOX_START_FAILED", `The sandbox did not start: ${problem}${details}`, { cause });
}

/** Pods of sandboxes and of image probes that do not run yet, and what each waits for. */
export function waitingPods(pods: Iterable<V1Pod>, warnings: Pick<PodWarnings, "lastOf">): WaitingSandbox[] {
  const waiting: WaitingSandbox[] = [];
  for (const pod of pods) {
    const { labels, name = "", creationTimestamp, deletionTimestamp } = pod.metadata ?? {};
    const role = labels?.[ROLE_LABEL];
    if ((role !== "sandbox" && role !== "probe") || deletionTimestamp !== undefined) continue;
    if (endOf(pod) !== undefined || containerStatus(pod)?.state?.running !== undefined) continue;
    const { sandboxId, owner } = describePod(pod);
    const warning = warnings.lastOf(name) ?? "";
    const image = pod.spec?.containers[0]?.image ?? "";
    const message = quoted([pendingCause(pod), warning].filter((text) => text !== "").join("; "));
    const sinceMs = creationTimestamp === undefined ? Date.now() : Number(new Date(creationTimestamp));
    waiting.push({ sandboxId, owner, image, reason: reasonOf(pod, warning), message, sinceMs });
  }
  return waiting;
}

function reasonOf(pod: V1Pod, warning: string): WaitReason {
  const scheduled = pod.status?.conditions?.find(({ type }) => type === "PodScheduled");
  if (scheduled?.status === "False")
    return /persistentvolumeclaim|volume node affinity/i.test(scheduled.message ?? "")
      ? "VOLUME"
      : "UNSCHEDULABLE";
  const { reason = "" } = waitingStatus(pod)?.state?.waiting ?? {};
  if (/Image|Registry/.test(reason)) return "IMAGE";
  // Only events show problems that precede the container.
  if (/no runtime for|RuntimeHandler .* not supported/i.test(warning)) return "RUNTIME";
  if (/^(FailedMount|FailedAttachVolume|FailedMapVolume|VolumeResizeFailed)\b/.test(warning)) return "VOLUME";
  if (/^Failed: .*pull/i.test(warning)) return "IMAGE";
  return "STARTING";
}
