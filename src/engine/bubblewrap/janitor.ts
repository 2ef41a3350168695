import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { randomBase32 } from "../../base/ids.ts";
import type { Logger } from "../../base/logger.ts";
import { isAlive } from "../outside/host-process.ts";
import { HOST_ENV } from "./sandbox-user.ts";

/**
 * Waits for EOF on its stdin, which comes when the service ends for any reason. Then it kills the process groups whose
 * ids it has read, thaws control groups of version 1, in which frozen processes do not even die when killed, and
 * removes groups as they become empty.
 */
const SCRIPT = `trap '' HUP INT QUIT TERM PIPE
groups=
while read -r x; do groups="$groups $x"; done
for x in $groups; do kill -9 -$x; done 2>/dev/null
runtime=$1
shift
n=0
while [ $n -lt 300 ]; do
  left=
  for home do
    [ -d "$home" ] || continue
    for group in "$home"/*/; do
      [ -d "$group" ] || continue
      [ ! -w "$group/freezer.state" ] || echo THAWED >"$group/freezer.state"
      rmdir "$group" || left=1
    done
    rmdir "$home" || left=1
  done
  [ "$left" ] || break
  n=$((n+1))
  sleep 0.05
done 2>/dev/null
[ -z "$runtime" ] || rm -rf -- "$runtime"`;

const LOST =
  "nothing cleans up if this service is killed: paused sandboxes may stay frozen in memory, its directory and control groups stay until the next start. Restart the service when you can";

/** Cleans up after the service, even if the service was killed. */
export class Janitor {
  readonly #child: ChildProcess;
  #isFinishing = false;

  /**
   * @param runtimeDir removed with its contents; undefined if there is none.
   * @param homes removed, with the control groups directly below them.
   * @param logger gets a warning if it cannot be started, or ends before the service.
   */
  constructor(runtimeDir: string | undefined, homes: readonly string[], logger: Logger) {
    const lost = (err: Error): void => {
      if (!this.#isFinishing) logger.warn({ err }, LOST);
    };
    this.#child = spawn("/bin/sh", ["-c", SCRIPT, "berth-janitor", runtimeDir ?? "", ...homes], {
      stdio: ["pipe", "ignore", "ignore"],
      env: HOST_ENV,
      cwd: "/",
      // It must survive a Ctrl-C in the service's terminal.
      detached: true,
    });
    this.#child.unref();
    this.#child.once("error", lost);
    this.#child.once("exit", (code, signal) => lost(new Error(`the janitor ended with ${signal ?? code}`)));
    this.#child.stdin?.on("error", () => {});
    (this.#child.stdin as unknown as { unref?(): void } | null)?.unref?.();
  }

  /** Adds a process group to kill when the service ends. */
  endWithService(group: number): void {
    this.#child.stdin?.write(`${group}\n`);
  }

  /** Cleans up now. Resolves when done. */
  async finish(): Promise<void> {
    this.#isFinishing = true;
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return;
    this.#child.ref();
    const exited = once(this.#child, "exit");
    this.#child.stdin?.end();
    await exited;
  }
}

/** A name for what this service creates on the machine. A later service can see from it whether the creator is dead. */
export function ownName(): string {
  return `berth-${process.pid}-${randomBase32(8)}`;
}

/** Whether a name was made by {@link ownName} in a process that has ended. */
export function isLeftover(name: string): boolean {
  const pid = /^berth-(\d+)-[a-z0-9]{8}(-service)?$/.exec(name)?.[1];
  return pid !== undefined && !isAlive(Number(pid));
}
