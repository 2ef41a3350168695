import { setTimeout as sleep } from "node:timers/promises";
import { perSecond, timed } from "../stats.ts";
import { type Containers, memoryMiB } from "./containers.ts";
import { hostileCommands } from "./hostile-commands.ts";
import type { Peer, PeerSandbox } from "./peer.ts";

const MIB = 1024 * 1024;
const MB = 1_000_000;
const AT_ONCE = 16;
const TIMEOUT_MS = 1000;
/** How long processes may take to be gone after a timeout. */
const GONE_MS = 2000;
/** Commands by the way in which they run processes. Each has a unique argument. */
const SHAPES = [
  ["plain", "sleep 86411", "sleep 86411"],
  ["tree", "sleep 86412", "sh -c 'sleep 86412 & sleep 86412'; true"],
  ["setsid", "sleep 86413", "setsid sleep 86413 & sleep 86413"],
] as const;

/** Options of a run, the same for every peer. */
export interface WorkOptions {
  readonly execs: number;
  readonly throughputMs: number;
  readonly outputMb: number;
  readonly fileMib: number;
}

export interface WorkContext extends WorkOptions {
  readonly peer: Peer;
  readonly sandbox: PeerSandbox;
  readonly containers: Containers;
}

/** One or more lines of the table. */
export interface Work {
  /** Values by the line's name, with its unit. */
  run(context: WorkContext): Promise<Readonly<Record<string, number | readonly number[]>>>;
  /** Whether to do it only in the first round, because its values do not vary. */
  readonly once?: boolean;
}

const ok = async (sandbox: PeerSandbox, line: string): Promise<void> => {
  const { exitCode } = await sandbox.run(line);
  if (exitCode !== 0) throw new Error(`exit code ${exitCode}`);
};

export const exec: Work = {
  run: async ({ sandbox, execs }) => {
    const ms: number[] = [];
    for (let i = 0; i < execs; i++) ms.push(await timed(() => ok(sandbox, "true")));
    return { "exec of true, ms": ms };
  },
};

export const throughput: Work = {
  run: async ({ sandbox, throughputMs }) => ({
    [`execs a second, ${AT_ONCE} at once`]: await perSecond(AT_ONCE, throughputMs, () => ok(sandbox, "true")),
  }),
};

/** Output as lines of text, which every protocol can carry. */
export const output: Work = {
  run: async ({ sandbox, outputMb }) => {
    const bytes = outputMb * MB;
    const line = `yes 0123456789abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ | head -c ${bytes}`;
    let got = 0;
    const ms = await timed(async () => {
      got = (await sandbox.run(line)).stdout.length;
    });
    // A peer may add a final newline. Any other difference is an error.
    if (Math.abs(got - bytes) > 1) throw new Error(`${got} bytes of ${bytes}`);
    return { "output, MB/s": bytes / 1000 / ms };
  },
};

export const files: Work = {
  run: async ({ sandbox, fileMib }) => {
    const bytes = fileMib * MIB;
    const rate = (ms: number): number => bytes / 1000 / ms;
    const up = await timed(() => sandbox.upload("/tmp/big", bytes));
    const down = await timed(() => sandbox.download("/tmp/big", bytes));
    return {
      [`file of ${fileMib} MiB up, MB/s`]: rate(up),
      [`file of ${fileMib} MiB down, MB/s`]: rate(down),
    };
  },
};

export const memory: Work = {
  once: true,
  run: async ({ peer, sandbox, containers }) => ({
    "memory of the service, MiB": memoryMiB(peer.pids),
    "memory of an idle sandbox, MiB": memoryMiB(await containers.pids(await sandbox.containerId())),
  }),
};

export const exactness: Work = {
  once: true,
  run: async ({ sandbox }) => {
    const wrong = { binary: 0, text: 0 };
    for (const command of hostileCommands()) {
      const result = await sandbox.run(command.line).catch(() => undefined);
      const right =
        result?.exitCode === command.exitCode &&
        result.stdout.equals(command.stdout) &&
        result.stderr.equals(command.stderr);
      if (!right) wrong[command.kind]++;
    }
    return { "wrong of 200 binary commands": wrong.binary, "wrong of 100 text commands": wrong.text };
  },
};

/** Processes that a timeout leaves behind. */
export const timeouts: Work = {
  once: true,
  run: async ({ sandbox, containers }) => {
    const left: Record<string, number> = {};
    const container = await sandbox.containerId();
    for (const [shape, word, line] of SHAPES) {
      const count = async (): Promise<number> => (await containers.pids(container, word)).length;
      const ended = sandbox.run(line, { timeoutMs: TIMEOUT_MS }).catch(() => {});
      // Something that never ran leaves nothing behind.
      if (!(await within(TIMEOUT_MS, async () => (await count()) > 0)))
        throw new Error(`${shape}: it never ran`);
      await Promise.race([ended, sleep(5 * TIMEOUT_MS)]);
      await within(GONE_MS, async () => (await count()) === 0);
      left[`left ${GONE_MS / 1000} s after a timeout: ${shape}`] = await count();
    }
    return left;
  },
};

/** Polls until a condition holds. Returns whether it did in time. */
async function within(ms: number, holds: () => Promise<boolean>): Promise<boolean> {
  const until = performance.now() + ms;
  while (performance.now() < until) {
    if (await holds()) return true;
    await sleep(20);
  }
  return holds();
}
