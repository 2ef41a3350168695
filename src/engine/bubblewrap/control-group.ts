import { rmdir } from "node:fs/promises";
import { setTimeout as sleep } from "node:timers/promises";
import type { EngineUsage, Resources } from "../port.ts";

/** What control groups on this machine let the service bound. */
export interface GroupLimits {
  readonly memory: boolean;
  readonly cpu: boolean;
  readonly pids: boolean;
  readonly pause: boolean;
}

/** Makes control groups for sandboxes, where the service may. */
export interface ControlGroups {
  readonly limits: GroupLimits;
  /** In one line, for a person. */
  readonly description: string;
  /** Directories that hold a directory for each sandbox; removed when the service is gone. */
  readonly homes: readonly string[];
  /** What the host's own processes that serve sandboxes join, as {@link ControlGroup.joinFiles}. */
  readonly attendants: readonly string[];
  create(name: string, resources: Resources): ControlGroup;
}

/** The control group of a sandbox, in every hierarchy there is one. */
export interface ControlGroup {
  /** A process of one thread joins by writing `0` to each. The sandboxes' user on the host may do that. */
  readonly joinFiles: readonly string[];
  /** What the sandbox sees of it, read-only. */
  readonly shown: readonly { readonly source: string; readonly target: string }[];
  set(resources: Resources): void;
  freeze(signal?: AbortSignal): Promise<void>;
  thaw(): void;
  /** How often the kernel killed in it for want of memory. */
  oomKills(): number;
  /** Directories by which it is seen and frozen from outside, where there are such. */
  readonly outside: { readonly processes?: string; readonly freezer?: string; readonly pids?: string };
  /** What can be read of it. */
  usage(): Partial<EngineUsage>;
  /** Removes it, once its last process has gone. */
  remove(): Promise<void>;
}

/** Where the service may make none. */
export const NO_CONTROL_GROUPS: ControlGroups = {
  limits: { memory: false, cpu: false, pids: false, pause: false },
  description: "no control groups that this user may write",
  homes: [],
  attendants: [],
  create: () => ({
    joinFiles: [],
    shown: [],
    set() {},
    async freeze() {},
    thaw() {},
    oomKills: () => 0,
    outside: {},
    usage: () => ({}),
    async remove() {},
  }),
};

/** How long the last processes of a group may take to go. */
const REMOVE_MS = 10_000;

/** Removes a group's directory as soon as it is empty of processes. */
export async function removeGroup(dir: string): Promise<void> {
  const deadline = performance.now() + REMOVE_MS;
  for (let pauseMs = 1; ; pauseMs = Math.min(pauseMs * 2, 100)) {
    try {
      return await rmdir(dir);
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      if (code === "ENOENT") return;
      if (code !== "EBUSY" || performance.now() > deadline) throw error;
    }
    await sleep(pauseMs);
  }
}
