import type { V1Pod } from "@kubernetes/client-node";
import { BerthError, hasReason } from "../../base/errors.ts";
import type { Resources } from "../port.ts";
import { quoted, refusalOf } from "./errors.ts";
import { parseQuantity } from "./info.ts";
import { containerStatus, podResources, refOf } from "./pod.ts";
import type { Pods } from "./pods.ts";

/** How long a kubelet may take to apply new limits. Normally it reports them after two seconds. */
const RESIZE_TIMEOUT_MS = 30_000;

/**
 * Waits until a pod's kubelet has applied new limits. The API server accepts them even if the node has no room for
 * them; then the pod would keep the old ones.
 * @param assertRuns throws if the pod is gone or no longer runs.
 * @throws `UNSUPPORTED` if the limits cannot be changed.
 */
export async function untilResized(
  pods: Pods,
  ref: string,
  resources: Resources,
  assertRuns: () => void,
  signal?: AbortSignal,
): Promise<void> {
  const { limits } = podResources(resources);
  const late = AbortSignal.timeout(RESIZE_TIMEOUT_MS);
  try {
    await pods.until(
      (pod) => refOf(pod) === ref,
      (pod) => {
        assertRuns();
        if (pod === undefined) return undefined;
        const applied = containerStatus(pod)?.resources?.limits ?? {};
        const isApplied = (name: string): boolean =>
          parseQuantity(applied[name] ?? "") === parseQuantity(limits[name] ?? "");
        if (isApplied("cpu") && isApplied("memory")) return true;
        const problem = problemOf(pod);
        if (problem !== undefined) throw impossible(problem);
        return undefined;
      },
      signal === undefined ? late : AbortSignal.any([signal, late]),
    );
  } catch (error) {
    if (signal?.aborted || !late.aborted || !hasReason(error, "CANCELED")) throw error;
    throw pods.broken ?? impossible(`its node has not applied them within ${RESIZE_TIMEOUT_MS / 1000} s`);
  }
}

/**
 * The error for a change of limits that the API server refused: `UNSUPPORTED` if it refuses this change, for instance
 * because Kubernetes 1.33 decreases no memory limit, or because the service lacks the right. A new pod may be accepted.
 */
export function resizeRefused(error: unknown): unknown {
  const { status = 0, message = "" } = refusalOf(error) ?? {};
  return [400, 403, 422].includes(status) ? impossible(quoted(message), error) : error;
}

/** Why a kubelet does not apply limits: the node has no room for them, now or ever, or the runtime refuses them. */
function problemOf({ status }: V1Pod): string | undefined {
  const condition = status?.conditions?.find(
    ({ type, status: holds, reason }) =>
      holds === "True" &&
      (type === "PodResizePending" || (type === "PodResizeInProgress" && reason === "Error")),
  );
  return condition && quoted(condition.message ?? condition.reason ?? "its node refuses them");
}

function impossible(problem: string, cause?: unknown): BerthError {
  return new BerthError("UNSUPPORTED", `The sandbox's limits cannot be changed: ${problem}`, {
    metadata: { capability: "resize" },
    cause,
  });
}
