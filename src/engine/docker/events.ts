import { BerthError } from "../../base/errors.ts";
import type { EngineEvent, EngineSandboxEnd } from "../port.ts";
import { INSTANCE_LABEL, parseLabels } from "./container-config.ts";
import type { Daemon } from "./daemon.ts";
import { jsonLines } from "./daemon.ts";
import { translateError } from "./errors.ts";

interface DaemonEvent {
  readonly Action: string;
  /** Nanoseconds since 1970, rounded by JSON. */
  readonly timeNano: number;
  readonly Actor: { readonly ID: string; readonly Attributes: Readonly<Record<string, string>> };
}

/** A container whose last kill by the OOM killer is longer ago than this when it ends was ended by another one. */
const OOM_TO_DIE_MS = 3_000;

/** How a container ended. Undefined where it is gone or being removed. */
type FindEnd = (containerId: string, signal: AbortSignal) => Promise<EngineSandboxEnd | undefined>;

/** What happens to the containers of an instance, from the call on, not from the first item taken. */
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
          // The last two are Podman's words for them; what it reports is "die" and "remove".
          event: ["oom", "die", "destroy", "died", "remove"],
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
  // The iterator reports the failure, if anybody iterates.
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
          // A removal kills first, and its own event follows.
          if (end === undefined) break;
          const outOfMemory = end.outOfMemory && sinceOomMs < OOM_TO_DIE_MS;
          yield { type: "ended", ref, sandboxId, end: { ...end, outOfMemory } };
          break;
        }
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
 * How a main process ended. Docker remembers for ever that the OOM killer once
 * killed some process of the container; only together with SIGKILL does that
 * explain the end of the main one, and not where it is known to be long ago.
 */
export function ended(exitCode: number, outOfMemorySeen: boolean): EngineSandboxEnd {
  return { exitCode, outOfMemory: outOfMemorySeen && exitCode === 137 };
}

/** Closes the stream on abort, also where nobody iterates. */
function closeOnAbort(stream: NodeJS.ReadableStream, signal: AbortSignal): void {
  const onAbort = () => destroy(stream);
  signal.addEventListener("abort", onAbort, { once: true });
  stream.once("close", () => signal.removeEventListener("abort", onAbort));
}

function destroy(stream: NodeJS.ReadableStream): void {
  (stream as NodeJS.ReadableStream & { destroy(): void }).destroy();
}
