import { randomBytes } from "node:crypto";
import type { Duplex } from "node:stream";
import { setTimeout as sleep } from "node:timers/promises";
import type { ContainerStats } from "dockerode";
import { untilAborted } from "../../base/async.ts";
import { abortError, BerthError } from "../../base/errors.ts";
import { failpoint } from "../../base/failpoints.ts";
import type { Logger } from "../../base/logger.ts";
import type { EngineUsage } from "../port.ts";
import type { NamedContainer } from "./container-config.ts";
import type { Daemon } from "./daemon.ts";
import { answerTo, daemonWords } from "./errors.ts";
import { type SetupReport, setupDone, startFailed } from "./setup.ts";

/** Timeouts of the steps of a create, in milliseconds. */
interface CreateTimeouts {
  readonly createMs: number;
  readonly startMs: number;
  /** From the attach until the setup reports that it is ready. */
  readonly readyMs: number;
  readonly removeMs: number;
}

/** A container in which commands can be spawned. */
export interface CreatedContainer extends SetupReport {
  readonly id: string;
}

/** How long a caller waits for the cleanup of a failed create. After that, the cleanup continues in the background. */
export const CLEANUP_PATIENCE_MS = 5_000;

/** When to look again for a container whose create got no answer and may appear late, or that could not be removed. */
const LATE_LOOKS_MS = [1_000, 5_000, 30_000];

/** A unique container name. It contains the sandbox id if the id is valid in a name. */
export function containerName(sandboxId: string): string {
  const readable = /^[a-zA-Z0-9_.-]{1,64}$/.test(sandboxId) ? sandboxId : "sandbox";
  return `berth-${readable}-${randomBytes(6).toString("hex")}`;
}

/** Creates and starts containers. Leaves nothing behind on failure. */
export class ContainerMaker {
  readonly #daemon: Daemon;
  readonly #logger: Logger;
  readonly #timeouts: CreateTimeouts;
  readonly #removals = new Set<Promise<void>>();
  readonly #closing = new AbortController();

  constructor(daemon: Daemon, logger: Logger, timeouts: CreateTimeouts) {
    this.#daemon = daemon;
    this.#logger = logger;
    this.#timeouts = timeouts;
  }

  /** Creates and starts a container, and returns when commands can be spawned in it. On failure nothing is left. */
  async create(config: NamedContainer, signal?: AbortSignal): Promise<CreatedContainer> {
    // By default the driver puts the whole configuration into the URL as well. Its length is limited, and Docker logs it.
    const { name, ...body } = config;
    const options: object = { _query: { name }, _body: body };
    // This request is never aborted, because Docker would carry it out anyway.
    const creating = this.#daemon.call(
      "creating a container",
      (docker, abortSignal) => docker.createContainer({ ...options, abortSignal }),
      { timeoutMs: this.#timeouts.createMs },
    );
    try {
      const { id } = await untilAborted(creating, signal);
      failpoint("create.container");
      return { id, ...(await this.#start(id, signal)) };
    } catch (error) {
      await this.#discard(name, creating);
      throw error;
    }
  }

  /** Waits a short time for cleanups in progress, and stops looking for late containers. */
  async close(): Promise<void> {
    this.#closing.abort();
    await Promise.race([Promise.all(this.#removals), sleep(CLEANUP_PATIENCE_MS, undefined, { ref: false })]);
  }

  async #start(id: string, signal?: AbortSignal): Promise<SetupReport> {
    // Attach before the start, to get the output even of a process that dies at once.
    const output = await this.#daemon.call(
      "attaching to a container",
      async (docker, abortSignal) => {
        const container = docker.getContainer(id);
        const opened = await container.attach({
          stream: true,
          stdout: true,
          stderr: true,
          hijack: true,
          abortSignal,
        });
        if (abortSignal.aborted) (opened as Duplex).destroy();
        return opened as Duplex;
      },
      { signal },
    );
    try {
      const done = setupDone(output, this.#timeouts.readyMs);
      done.catch(() => {});
      await this.#daemon
        .call(
          "starting a container",
          (docker, abortSignal) => docker.getContainer(id).start({ abortSignal }),
          {
            signal,
            timeoutMs: this.#timeouts.startMs,
          },
        )
        .catch((error: BerthError) => {
          throw startError(error);
        });
      return await untilAborted(done, signal);
    } finally {
      output.destroy();
    }
  }

  /** Removes what a failed create may have left. Returns when done, or when it takes too long. */
  async #discard(name: string, creating: Promise<unknown>): Promise<void> {
    const removal = this.#removeCreated(name, creating)
      .catch((error: unknown) => {
        this.#logger.warn(
          { container: name, err: error },
          "could not remove the container of a failed create",
        );
      })
      .finally(() => this.#removals.delete(removal));
    this.#removals.add(removal);
    await Promise.race([removal, sleep(CLEANUP_PATIENCE_MS, undefined, { ref: false })]);
  }

  async #removeCreated(name: string, creating: Promise<unknown>): Promise<void> {
    const answered = await creating.then(
      () => true,
      (error: unknown) => answerTo(error) !== undefined,
    );
    const remove = () => removeContainer(this.#daemon, name, { timeoutMs: this.#timeouts.removeMs });
    const signal = this.#closing.signal;
    for (const delayMs of LATE_LOOKS_MS) {
      const isGone = await remove().then(
        () => true,
        () => false,
      );
      // Without an answer it may still appear.
      if (isGone && answered) return;
      await sleep(delayMs, undefined, { signal }).catch(() => {});
    }
    return remove();
  }
}

/** A refused start is SANDBOX_START_FAILED, unless the refusal has a more specific reason. */
function startError(error: BerthError): BerthError {
  const answer = answerTo(error);
  if (!answer || error.reason === "NO_SPACE" || error.reason === "UNSUPPORTED") return error;
  return startFailed("Docker could not start its container", daemonWords(answer.text), error.cause);
}

/** Waits until Docker knows that a container has ended, or at most for `timeoutMs`. */
export async function untilEnded(
  daemon: Daemon,
  id: string,
  options: { readonly timeoutMs: number; readonly signal?: AbortSignal | undefined },
): Promise<void> {
  await daemon
    .call(
      "waiting for the end of a container",
      (docker, abortSignal) => docker.getContainer(id).wait({ condition: "not-running", abortSignal }),
      options,
    )
    // The container may be gone, or not end in time. Its removal reports what is wrong.
    .catch(() => {});
}

/** Number of attempts while Docker says that it cannot remove the container. */
const MAX_FAILURES = 5;

/**
 * Removes a container with its anonymous volumes. Returns when it is gone, also if someone else is removing it.
 * `timeoutMs` limits all attempts together.
 */
export async function removeContainer(
  daemon: Daemon,
  idOrName: string,
  options: { readonly timeoutMs: number; readonly signal?: AbortSignal | undefined },
): Promise<void> {
  const { signal, timeoutMs } = options;
  const deadline = performance.now() + timeoutMs;
  let pauseMs = 10;
  for (let failures = 0; ; ) {
    try {
      await daemon.call(
        "removing a container",
        (docker, abortSignal) => docker.getContainer(idOrName).remove({ force: true, v: true, abortSignal }),
        { signal, timeoutMs: Math.max(1, deadline - performance.now()) },
      );
      return;
    } catch (error) {
      if (isGone(error)) return;
      // Docker fails like this while a process does not die or a mount is busy.
      const worthRepeating = isBeingRemoved(error) || (isDaemonFailure(error) && ++failures < MAX_FAILURES);
      if (!worthRepeating || performance.now() + pauseMs > deadline) throw error;
    }
    try {
      await sleep(pauseMs, undefined, { signal });
    } catch {
      if (signal) throw abortError(signal);
    }
    pauseMs = Math.min(pauseMs * 2, 500);
  }
}

function isGone(error: unknown): boolean {
  return answerTo(error)?.statusCode === 404;
}

function isBeingRemoved(error: unknown): boolean {
  const answer = answerTo(error);
  return answer?.statusCode === 409 && /already in progress/.test(answer.text);
}

function isDaemonFailure(error: unknown): boolean {
  return answerTo(error)?.statusCode === 500;
}

/** Converts one answer of Docker's statistics. */
export function parseUsage(stats: ContainerStats): EngineUsage {
  // A container that does not run has empty statistics.
  if (stats.pids_stats?.current === undefined) {
    throw new BerthError("SANDBOX_TERMINATED", "The sandbox's container no longer runs.");
  }
  const { usage = 0, stats: memory } = stats.memory_stats;
  const detail = memory as unknown as Record<string, number | undefined> | undefined;
  // The kernel reclaims page cache before it kills a process for memory. The first name is cgroup v1's, the second v2's.
  const cacheOf = (list: string) => detail?.[`total_${list}`] ?? detail?.[list] ?? 0;
  const cache = cacheOf("inactive_file") + cacheOf("active_file");
  return {
    memoryBytes: Math.max(0, usage - cache),
    cpuNanos: stats.cpu_stats.cpu_usage.total_usage,
    pids: stats.pids_stats.current,
  };
}
