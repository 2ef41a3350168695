import {
  type ImagePull,
  type Sandbox,
  SandboxEventType,
  type WatchEventsResponse,
  WatchEventsResponseSchema,
} from "../../gen/ts/berth/v1/sandbox_pb.js";
import type { ServiceClient } from "./client.ts";
import { remarkLine } from "./colour.ts";
import { formatSize, messageJson } from "./format.ts";
import { type Io, writeJson } from "./io.ts";
import { ProgressLine } from "./progress-line.ts";
import type { SpecInit } from "./spec-flags.ts";
import { visible } from "./visible.ts";

interface MakeSandboxOptions {
  readonly sandboxId: string;
  readonly spec: SpecInit;
  /** Shows the pull of the image. */
  readonly display: PullDisplay;
  readonly signal: AbortSignal;
}

/** Creates a sandbox, and shows the pull of its image meanwhile. */
export async function makeSandbox(
  client: ServiceClient,
  { sandboxId, spec, display, signal }: MakeSandboxOptions,
): Promise<Sandbox> {
  const { sandbox } = await withPullDisplay(client, sandboxId, display, signal, () =>
    client.sandboxes.createSandbox({ sandboxId, spec }, { signal }),
  );
  if (sandbox === undefined) throw new Error("the service answered without a sandbox");
  return sandbox;
}

/** Shows the progress of the pull of a sandbox's image. */
interface PullDisplay {
  show(item: WatchEventsResponse): void | Promise<void>;
  /** Clears the progress line. */
  end(): void;
}

/** How often, at most, a line of progress is printed without a terminal. */
const PLAIN_INTERVAL_MS = 5000;

/** For people: on stderr, as a progress line on a terminal or as plain lines. */
export function textDisplay(io: Io): PullDisplay {
  const line = ProgressLine.on(io);
  return line ? terminalDisplay(line) : plainDisplay(io);
}

/** Shows nothing. */
export const NO_DISPLAY: PullDisplay = { show() {}, end() {} };

/** One line that is redrawn. */
function terminalDisplay(line: ProgressLine): PullDisplay {
  return {
    show(item) {
      const pull = pullOf(item);
      if (pull) line.draw(`pulling ${visible(pull.image)}`, progressOf(pull));
    },
    end: () => line.clear(),
  };
}

/** Plain lines at intervals. */
function plainDisplay(io: Io): PullDisplay {
  let shownMs = -PLAIN_INTERVAL_MS;
  return {
    show(item) {
      const pull = pullOf(item);
      if (!pull || performance.now() - shownMs < PLAIN_INTERVAL_MS) return;
      shownMs = performance.now();
      io.stderr.write(remarkLine(`pulling ${pull.image}${progressOf(pull)}`));
    },
    end() {},
  };
}

/** Every event of the API as JSON, one per line. */
export function jsonDisplay(io: Io, signal: AbortSignal): PullDisplay {
  return {
    show: (item) => writeJson(io.stdout, messageJson(WatchEventsResponseSchema, item), signal),
    end() {},
  };
}

/**
 * Shows the events of a sandbox, from its first one, while `work` runs. If the events are not available, the work
 * continues without them.
 */
async function withPullDisplay<T>(
  client: ServiceClient,
  sandboxId: string,
  display: PullDisplay,
  signal: AbortSignal,
  work: () => Promise<T>,
): Promise<T> {
  const stop = new AbortController();
  const watching = watch(client, sandboxId, display, AbortSignal.any([signal, stop.signal])).catch(() => {});
  try {
    return await work();
  } finally {
    stop.abort();
    await watching;
    display.end();
  }
}

async function watch(
  client: ServiceClient,
  sandboxId: string,
  display: PullDisplay,
  signal: AbortSignal,
): Promise<void> {
  for await (const item of client.sandboxes.watchEvents({ sandboxId }, { signal })) {
    if (item.item.case === "event") await display.show(item);
  }
}

function pullOf({ item }: WatchEventsResponse): ImagePull | undefined {
  if (item.case !== "event" || item.value.type !== SandboxEventType.IMAGE_PULL) return undefined;
  return item.value.imagePull;
}

function progressOf({ currentBytes, totalBytes, layersDone, layersTotal }: ImagePull): string {
  if (layersTotal === 0) return " …";
  const total = Math.max(Number(totalBytes), Number(currentBytes));
  return `: ${formatSize(Number(currentBytes))} of ${formatSize(total)}, ${layersDone} of ${layersTotal} layers`;
}
