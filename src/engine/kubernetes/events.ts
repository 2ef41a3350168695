import { collectEvents } from "../collect-events.ts";
import type { EngineEvent } from "../port.ts";
import { disruptionOf } from "./disruption.ts";
import { describePod, endOf, ROLE_LABEL, refOf } from "./pod.ts";
import type { PodChange, Pods } from "./pods.ts";

/** Events of sandboxes. They are collected from the call on, not from the first iteration. */
export function watchEvents(pods: Pods, signal: AbortSignal): AsyncIterable<EngineEvent> {
  return collectEvents(({ push, fail }) => {
    const stop = pods.listen({
      changed: (change) => {
        const event = eventOf(change);
        if (event !== undefined) push(event);
      },
      lost: fail,
    });
    pods.follow(signal).catch(fail);
    return stop;
  }, signal);
}

function eventOf({ pod, before, gone }: PodChange): EngineEvent | undefined {
  if (pod.metadata?.labels?.[ROLE_LABEL] !== "sandbox") return undefined;
  const ref = refOf(pod);
  const { sandboxId } = describePod(pod);
  if (gone) return { type: "removed", ref, sandboxId };
  if (before === undefined || endOf(before)) return undefined;
  // A removal first ends the pod; the event of the removal follows.
  if (pod.metadata?.deletionTimestamp !== undefined && disruptionOf(pod) === undefined) return undefined;
  const end = endOf(pod);
  return end && { type: "ended", ref, sandboxId, end };
}
