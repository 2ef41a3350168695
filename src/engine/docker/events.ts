import { BerthError } from "../../base/errors.ts";
import type { EngineEvent, EngineSandboxEnd } from "../port.ts";
import { jsonLines } from "./answers.ts";
import { INSTANCE_LABEL, parseLabels } from "./container-config.ts";
import type { Daemon } from "./daemon.ts";
import { translateError } from "./errors.ts";

interface DaemonEvent {
  readonly Action: string;
  /** Nanoseconds since 1970, rounded by JSON. */
  readonly timeNano: number;
  readonly Actor: { readonly ID: string; readonly Attributes: Readonly<Record<string, string>> };
}

/** If a container ends within this time after an OOM kill, the OOM killer is taken as the cause. */
const OOM_TO_DIE_MS = 3_000;

/** How a container ended. Undefined if it is gone or being removed. */
type FindEnd = (containerId: string, signal: AbortSignal) => Promise<EngineSandboxEnd | undefined>;

/** Events of an instance's containers. They are collected from the call on, not from the first iteration. */
export function watchEvents(
  daemon: Daemon,
  instance: string,
  findEnd: FindEnd,
  signal: AbortSignal,
): AsyncIterable<EngineEvent> {
  const opening = daemon.call(
    "opening the stream of events",
    async (docker, abortSignal) => {
      const stream = await docker.getEvents({
        filters: {
          type: ["container"],
          // The last two are Podman's names in filters. It reports the events as "die" and "remove".
          event: ["oom", "die", "destroy", "pause", "unpause", "died", "remove"],
          label: [`${INSTANCE_LABEL}=${instance}`],
        },
        abortSignal,
      });
      if (abortSignal.aborted) destroy(stream);
      closeOnAbort(stream, signal);
      return stream;
    },
    { signal },
  );
  // The iterator reports the failure.
  opening.catch(() => {});
  return translateEvents(opening, findEnd, signal);
}

async function* translateEvents(
  opening: Promise<NodeJS.ReadableStream>,
  findEnd: FindEnd,
  signal: AbortSignal,
): AsyncGenerator<EngineEvent> {
  let stream: NodeJS.ReadableStream | undefined;
  const oomKilledAt = new Map<string, number>();
  try {
    stream = await opening;
    for await (const { Action: action, Actor: actor, timeNano } of jsonLines<DaemonEvent>(
      stream as AsyncIterable<Buffer>,
    )) {
      const ref = actor.ID;
      const { sandboxId } = parseLabels(actor.Attributes);
      const timeMs = timeNano / 1e6;
      switch (action) {
        case "oom":
          oomKilledAt.set(ref, timeMs);
          break;
        case "die": {
          const sinceOomMs = timeMs - (oomKilledAt.get(ref) ?? timeMs);
          oomKilledAt.delete(ref);
          const end = await findEnd(ref, signal);
          // A removal first kills the container; the event of the removal follows.
          if (end === undefined) break;
          const outOfMemory = end.outOfMemory && sinceOomMs < OOM_TO_DIE_MS;
          yield { type: "ended", ref, sandboxId, end: { ...end, outOfMemory } };
          break;
        }
        case "pause":
        case "unpause":
          yield { type: action === "pause" ? "paused" : "resumed", ref, sandboxId };
          break;
        case "destroy":
        case "remove":
          oomKilledAt.delete(ref);
          yield { type: "removed", ref, sandboxId };
          break;
      }
    }
  } catch (error) {
    if (signal.aborted) return;
    throw translateError(error, "listening for events");
  } finally {
    if (stream) destroy(stream);
  }
  if (signal.aborted) return;
  throw new BerthError("ENGINE_UNAVAILABLE", "Docker closed the stream of events.", { retryAfterMs: 1000 });
}

/**
 * How a main process ended. Docker never forgets that the OOM killer killed some process of the container. That
 * explains the end of the main process only if it ended by SIGKILL, and not if the OOM kill is known to be long ago.
 */
export function ended(exitCode: number, outOfMemorySeen: boolean): EngineSandboxEnd {
  return { exitCode, outOfMemory: outOfMemorySeen && exitCode === 137 };
}

/** Closes the stream on abort, even if nobody iterates. */
function closeOnAbort(stream: NodeJS.ReadableStream, signal: AbortSignal): void {
  const onAbort = () => destroy(stream);
  signal.addEventListener("abort", onAbort, { once: true });
  stream.once("close", () => signal.removeEventListener("abort", onAbort));
}

function destroy(stream: NodeJS.ReadableStream): void {
  (stream as NodeJS.ReadableStream & { destroy(): void }).destroy();
}
