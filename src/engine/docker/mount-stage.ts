import { spawn } from "node:child_process";
import { once } from "node:events";
import {
  constants,
  type FileHandle,
  mkdir,
  mkdtemp,
  open,
  readdir,
  readFile,
  readlink,
  rmdir,
} from "node:fs/promises";
import path from "node:path";
import { BerthError } from "../../base/errors.ts";
import type { EngineMount } from "../port.ts";

/** Holds a directory for each stage, its name beginning with its process's pid. */
const STAGE_ROOT = "/run/berth/mounts";

/** Linux's flag to open a place in the tree without access to what it holds; Node does not name it. */
export const O_PATH = 0o10000000;

/** Name of the directory in a stage that holds nothing. */
const INERT = "inert";

/** Mounts with sources that stay what they were when checked, until they are released. */
export interface StagedMounts {
  readonly mounts: readonly EngineMount[];
  /** To be called when the container runs, or will not. Idempotent. */
  release(): Promise<void>;
}

/**
 * Pins checked mounts: Docker looks a path up once more when the container
 * starts, and a sandbox that may write above it could have put a symbolic link
 * there meanwhile. So each directory is opened, compared with what was checked,
 * and bound with `nosuid,nodev` to a path that only root can change.
 *
 * That takes root and the daemon's own mount namespace. Elsewhere the sources
 * stay as they were checked.
 */
export class MountStage {
  #dir: Promise<string | undefined> | undefined;
  #inert: Promise<string | undefined> | undefined;
  #count = 0;

  async stage(mounts: readonly EngineMount[]): Promise<StagedMounts> {
    if (mounts.length > 0) this.#dir ??= prepare();
    const dir = await this.#dir;
    if (dir === undefined || mounts.length === 0) return { mounts, release: async () => {} };
    const staged: EngineMount[] = [];
    const release = async () => {
      for (const { hostPath } of staged.splice(0)) await unbind(hostPath);
    };
    try {
      for (const mount of mounts) {
        const target = path.join(dir, String(this.#count++));
        await bind(mount.hostPath, target);
        staged.push({ ...mount, hostPath: target });
      }
    } catch (error) {
      await release();
      throw error;
    }
    return { mounts: [...staged], release };
  }

  /** A directory for mounts, and in it an empty one that containers can be slaves of; undefined where there is none. */
  async inert(): Promise<{ readonly dir: string; readonly inert: string } | undefined> {
    this.#dir ??= prepare();
    const dir = await this.#dir;
    if (dir === undefined) return undefined;
    this.#inert ??= makeInert(path.join(dir, INERT));
    const inert = await this.#inert;
    return inert === undefined ? undefined : { dir, inert };
  }

  /** Removes its directory, which holds nothing once every mount is released. */
  async close(): Promise<void> {
    const dir = await this.#dir;
    if (dir !== undefined) await clear(dir).catch(() => {});
  }
}

/** Makes a directory for one stage and clears those of processes that are gone. Undefined where staging is not possible. */
async function prepare(): Promise<string | undefined> {
  if (process.platform !== "linux" || process.getuid?.() !== 0 || !(await sharesMountsWithDaemon()))
    return undefined;
  try {
    await mkdir(STAGE_ROOT, { recursive: true, mode: 0o700 });
    for (const name of await readdir(STAGE_ROOT)) {
      if (!isAlive(Number.parseInt(name, 10))) await clear(path.join(STAGE_ROOT, name));
    }
    const dir = await mkdtemp(path.join(STAGE_ROOT, `${process.pid}-`));
    // Root in a container of its own may not mount.
    await bind(dir, path.join(dir, "trial"));
    await unbind(path.join(dir, "trial"));
    return dir;
  } catch {
    return undefined;
  }
}

/** Docker makes a container's root a slave of the host's where one of its mounts is one, and takes only a shared source for that. */
async function makeInert(inert: string): Promise<string | undefined> {
  try {
    await mkdir(inert, { mode: 0o755 });
    await run("mount", ["-n", "-c", "-o", "bind,ro,nosuid,nodev,noexec", inert, inert]);
    await run("mount", ["-n", "-c", "--make-shared", inert]);
    return inert;
  } catch {
    return undefined;
  }
}

async function sharesMountsWithDaemon(): Promise<boolean> {
  try {
    const pid = Number(await readFile("/var/run/docker.pid", "utf8"));
    return (await readlink(`/proc/${pid}/ns/mnt`)) === (await readlink("/proc/self/ns/mnt"));
  } catch {
    return false;
  }
}

/** `source` is a real path: what it leads to now must be what it led to when it was checked. */
async function bind(source: string, target: string): Promise<void> {
  let handle: FileHandle | undefined;
  try {
    handle = await open(source, O_PATH | constants.O_DIRECTORY | constants.O_NOFOLLOW);
    if ((await readlink(`/proc/self/fd/${handle.fd}`)) !== source) throw new Error("it leads elsewhere now");
    await mkdir(target, { mode: 0o700 });
    // Not canonicalized: the path has to go through the open descriptor.
    await run("mount", ["-n", "-c", "-o", "bind,nosuid,nodev", "/proc/self/fd/3", target], handle.fd);
  } catch (error) {
    await rmdir(target).catch(() => {});
    throw new BerthError(
      "NOT_ALLOWED",
      "A host path could not be mounted: it changed while it was being mounted.",
      {
        cause: error,
      },
    );
  } finally {
    await handle?.close();
  }
}

async function unbind(target: string): Promise<void> {
  // Lazily: the daemon may be looking at it.
  await run("umount", ["-n", "-c", "-l", target]).catch(() => {});
  await rmdir(target);
}

async function clear(dir: string): Promise<void> {
  const targets = await readdir(dir).catch(() => undefined);
  if (targets === undefined) return;
  for (const target of targets) await unbind(path.join(dir, target));
  await rmdir(dir);
}

function isAlive(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}

async function run(command: string, args: readonly string[], fd?: number): Promise<void> {
  await runWith(command, args, fd === undefined ? [] : [fd]);
}

/** Runs a command with open descriptors, from 3 on. */
export async function runWith(
  command: string,
  args: readonly string[],
  fds: readonly number[],
): Promise<void> {
  const child = spawn(command, args, { stdio: ["ignore", "ignore", "pipe", ...fds] });
  let stderr = "";
  child.stderr?.on("data", (chunk) => {
    stderr += chunk;
  });
  const [code] = await once(child, "close");
  if (code !== 0) throw new Error(`${command} ended with ${code}: ${stderr.trim()}`);
}
