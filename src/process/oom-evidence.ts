import type { LeasedSandbox } from "../core/lease.ts";
import type { Engine } from "../core/ports/engine.ts";

/** Prints how often the kernel killed in this control group for want of memory: version 2, then version 1. */
const COUNT_KILLS = `for f in /sys/fs/cgroup/memory.events /sys/fs/cgroup/memory/memory.oom_control; do
  [ -r $f ] || continue
  while read -r k n; do [ "$k" != oom_kill ] || { printf '%s;' "$n"; exit; }; done <$f
done
printf '?;'`;

const TIMEOUT_MS = 5_000;

/** Tells from the sandbox's control group whether the kernel killed for want of memory. */
export class OomEvidence {
  readonly #engine: Engine;
  /** The count last seen for each sandbox, by ref. 0 at its start. */
  readonly #seen = new Map<string, number>();

  constructor(engine: Engine) {
    this.#engine = engine;
  }

  /** Whether there were kills since the last time this was asked of the sandbox. False where it cannot be told. */
  async newKills(sandbox: LeasedSandbox): Promise<boolean> {
    const count = await this.#count(sandbox).catch(() => undefined);
    if (count === undefined) return false;
    const seen = this.#seen.get(sandbox.ref) ?? 0;
    this.#seen.set(sandbox.ref, count);
    return count > seen;
  }

  /** Forgets a sandbox that has ended. */
  forget(ref: string): void {
    this.#seen.delete(ref);
  }

  async #count(sandbox: LeasedSandbox): Promise<number | undefined> {
    const signal = AbortSignal.timeout(TIMEOUT_MS);
    const text = await new Promise<string>((resolve, reject) => {
      let said = "";
      signal.addEventListener("abort", () => reject(signal.reason), { once: true });
      this.#engine
        .spawn(
          sandbox.ref,
          { argv: ["/bin/sh", "-c", COUNT_KILLS], stdin: false },
          {
            data: (_stream, chunk) => {
              said = (said + chunk.toString("latin1")).slice(0, 64);
            },
            end: () => resolve(said),
          },
          signal,
        )
        .catch(reject);
    });
    const found = /^(\d+);/.exec(text);
    return found ? Number(found[1]) : undefined;
  }
}
