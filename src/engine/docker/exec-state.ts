import { setTimeout as sleep } from "node:timers/promises";
import type { Exec, ExecInspectInfo } from "dockerode";
import type { Daemon } from "./daemon.ts";
import { translateError } from "./errors.ts";

/** What Docker knows of a process it has started by `exec`. */
export class ExecState {
  readonly #daemon: Daemon;
  readonly #exec: Exec;

  constructor(daemon: Daemon, exec: Exec) {
    this.#daemon = daemon;
    this.#exec = exec;
  }

  inspect(signal?: AbortSignal): Promise<ExecInspectInfo> {
    return this.#daemon.call(
      "asking for a process's state",
      (_, abortSignal) => this.#exec.inspect({ abortSignal }),
      { signal },
    );
  }

  /** Its exit code once it has ended; `outputEnded` is when to look more often. */
  async exitCode(outputEnded: Promise<void>, signal?: AbortSignal): Promise<number> {
    const start = performance.now();
    let endSeen = false;
    const ended = outputEnded.then(() => {
      endSeen = true;
    });
    for (let checksAfterEnd = 0; ; ) {
      const state = await this.inspect(signal);
      if (!state.Running && state.ExitCode !== null) return state.ExitCode;
      if (endSeen) await sleep(Math.min(2 ** checksAfterEnd++, 500), undefined, { signal }).catch(() => {});
      else
        await Promise.race([
          ended,
          sleep(checkDelayMs(performance.now() - start), undefined, { signal }),
        ]).catch(() => {});
    }
  }

  /**
   * Why its output has ended: undefined where that was the end of it. Output
   * ends just as properly where the daemon or the container dies, so Docker is
   * asked for the process.
   */
  async whyEnded(): Promise<Error | undefined> {
    try {
      await this.inspect();
      return undefined;
    } catch (error) {
      return translateError(error, "streaming a process's output");
    }
  }
}

/**
 * When to look again whether a process has ended, while others may hold its
 * pipes: soon for the short ones, rarely for the long ones. The end of its
 * output, which is what nearly every process brings, is not waited for here.
 */
function checkDelayMs(elapsedMs: number): number {
  const longest = Math.min(Math.max(elapsedMs / 10, 250), 10_000);
  return Math.min(Math.max(elapsedMs / 4, 1), longest);
}
