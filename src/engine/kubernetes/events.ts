import { throwIfAborted } from "../../base/errors.ts";
import type { EngineEvent } from "../port.ts";
import { disruptionOf } from "./disruption.ts";
import { describePod, endOf, ROLE_LABEL, refOf } from "./pod.ts";
import type { PodChange, Pods } from "./pods.ts";

/** Limit of unread events. Beyond it the reader counts as gone, and must list again. */
const MAX_UNREAD = 100_000;

/** Events of sandboxes. They are collected from the call on, not from the first iteration. */
export function watchEvents(pods: Pods, signal: AbortSignal): AsyncIterable<EngineEvent> {
  const unread: EngineEvent[] = [];
  let lost: Error | undefined;
  let wake = (): void => {};
  const stop = pods.listen({
    changed: (change) => {
      const event = eventOf(change);
      if (event === undefined) return;
      if (unread.length >= MAX_UNREAD) lost ??= new Error("too many events are unread");
      else unread.push(event);
      wake();
    },
    lost: (error) => {
      lost = error;
      wake();
    },
  });
  signal.addEventListener("abort", () => wake(), { once: true });
  const following = pods.follow(signal);
  following.catch(() => {});
  return (async function* () {
    try {
      await following;
      for (;;) {
        throwIfAborted(signal);
        const event = unread.shift();
        if (event !== undefined) yield event;
        else if (lost !== undefined) throw lost;
        else await new Promise<void>((resolve) => (wake = resolve));
      }
    } catch (error) {
      if (!signal.aborted) throw error;
    } finally {
      stop();
    }
  })();
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
