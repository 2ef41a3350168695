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
import type { ContainerInspectInfo } from "dockerode";
import { BerthError } from "../../base/errors.ts";
import type { Logger } from "../../base/logger.ts";
import { makeDirectories } from "../../base/make-directories.ts";
import { codeOf, tooManyFiles, unlessThere } from "../../base/system-errors.ts";
import { O_PATH } from "../mounts.ts";
import { isAlive } from "../outside/host-process.ts";
import type { HostMount } from "../port.ts";

/** Contains a directory for each stage, named after the pid of its service. */
const STAGE_ROOT = "/run/berth/mounts";

/** Name of the empty directory in a stage. */
const INERT = "inert";

/** Mounts whose sources stay the directories that were checked, until they are released. */
interface StagedMounts {
  readonly mounts: readonly HostMount[];
  /** Call this once the container runs, or will never run. Idempotent. Never rejects. */
  release(): Promise<void>;
}

/**
 * Pins checked mounts. Docker resolves a path again when the container starts, and a sandbox that can write to a parent
 * directory could have put a symbolic link there meanwhile. So each directory is opened, compared with the checked one,
 * and bound with `nosuid,nodev` to a path that only root can change (docs/engines/docker.md).
 *
 * This needs root and the daemon's mount namespace. Otherwise the checked paths are passed on as they are.
 */
export class MountStage {
  #dir: Promise<string | undefined> | undefined;
  #inert: Promise<string | undefined> | undefined;
  #count = 0;
  /** Staged mounts that are released and not unmounted yet. */
  readonly #released: string[] = [];
  readonly #logger: Logger;

  constructor(logger: Logger) {
    this.#logger = logger;
  }

  /** @throws `TOO_MANY_OPERATIONS` */
  async stage(mounts: readonly HostMount[]): Promise<StagedMounts> {
    const dir = mounts.length > 0 ? await this.#prepared() : undefined;
    if (dir === undefined || mounts.length === 0) return { mounts, release: async () => {} };
    const staged: HostMount[] = [];
    const release = async () => {
      this.#released.push(...staged.splice(0).map(({ hostPath }) => hostPath));
      await this.#unmountReleased();
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

  /** What cannot be unmounted, for instance for lack of processes, is left to the next release. */
  async #unmountReleased(): Promise<void> {
    let failure: unknown;
    for (const target of this.#released.splice(0)) {
      try {
        await unbind(target);
      } catch (error) {
        failure = error;
        this.#released.push(target);
      }
    }
    if (failure === undefined) return;
    this.#logger.warn({ err: failure }, "a staged mount cannot be unmounted now; Berth unmounts it later");
  }

  /**
   * The stage's directory, and in it an empty shared mount for containers that accept mounts later; undefined if that
   * is impossible. If it failed for now, the next call tries again.
   * @throws `TOO_MANY_OPERATIONS`
   */
  async inert(): Promise<{ readonly dir: string; readonly inert: string } | undefined> {
    const dir = await this.#prepared();
    if (dir === undefined) return undefined;
    this.#inert ??= makeInert(path.join(dir, INERT), this.#logger).catch((error: unknown) => {
      this.#inert = undefined;
      throw error;
    });
    const inert = await this.#inert;
    return inert === undefined ? undefined : { dir, inert };
  }

  /** The stage's directory; undefined if there can be none. If that failed for now, the next call tries again. */
  #prepared(): Promise<string | undefined> {
    this.#dir ??= prepare(this.#logger).catch((error: unknown) => {
      this.#dir = undefined;
      throw error;
    });
    return this.#dir;
  }

  /** Removes the stage's directory, with what could not be unmounted before. */
  async close(): Promise<void> {
    const dir = await this.#dir?.catch(() => undefined);
    if (dir !== undefined) await clear(dir).catch(() => {});
  }
}

/**
 * Creates a stage's directory, and clears those of dead services. Undefined if staging is impossible.
 * @throws `TOO_MANY_OPERATIONS`
 */
async function prepare(logger: Logger): Promise<string | undefined> {
  if (process.platform !== "linux" || process.getuid?.() !== 0 || !(await sharesMountsWithDaemon()))
    return undefined;
  let dir: string | undefined;
  try {
    makeDirectories(STAGE_ROOT, 0o700);
    for (const name of await readdir(STAGE_ROOT)) {
      if (isAlive(Number.parseInt(name, 10))) continue;
      // Another service that starts at the same time may be clearing it too.
      await clear(path.join(STAGE_ROOT, name)).catch(() => {});
    }
    dir = await mkdtemp(path.join(STAGE_ROOT, `${process.pid}-`));
    // Root in a container may lack the permission to mount.
    await bind(dir, path.join(dir, "probe"));
    await unbind(path.join(dir, "probe"));
    return dir;
  } catch (error) {
    if (dir !== undefined) await rmdir(dir).catch(() => {});
    throwTemporary(error);
    logger.warn(
      { err: error },
      "mounts of sandboxes cannot be pinned, until the service restarts: allow only directories that no sandbox can write to",
    );
    return undefined;
  }
}

/** Failures that do not show whether mounts can be pinned. EBUSY: what was mounted could not be unmounted. */
const TEMPORARY = new Set(["EMFILE", "ENFILE", "EAGAIN", "ENOMEM", "ENOSPC", "EBUSY"]);

/** Throws a failure that may be over soon: mounts must not pass unpinned because of it. */
function throwTemporary(error: unknown): void {
  const cause = error instanceof BerthError ? error.cause : error;
  const code = codeOf(cause) ?? "";
  if (!TEMPORARY.has(code)) return;
  const known = new BerthError(
    "TOO_MANY_OPERATIONS",
    `The service's machine has no room for the mounts of a sandbox now (${code}). Try again later.`,
    { cause, retryAfterMs: 1_000 },
  );
  throw tooManyFiles(cause) ?? known;
}

/**
 * Docker makes a container's root a slave of the host's if one of its mounts is a slave, which requires a shared
 * source. Undefined if that is impossible.
 * @throws `TOO_MANY_OPERATIONS`
 */
async function makeInert(inert: string, logger: Logger): Promise<string | undefined> {
  try {
    await mkdir(inert, { mode: 0o755 }).catch(unlessThere);
    await run("mount", ["-n", "-c", "-o", "bind,ro,nosuid,nodev,noexec", inert, inert]);
    await run("mount", ["-n", "-c", "--make-shared", inert]);
    return inert;
  } catch (error) {
    await unbind(inert).catch(() => {});
    throwTemporary(error);
    logger.warn(
      { err: error },
      "warm sandboxes cannot take mounts, until the service restarts: creates with mounts are cold",
    );
    return undefined;
  }
}

async function sharesMountsWithDaemon(): Promise<boolean> {
  try {
    const pid = Number(await readFile("/var/run/docker.pid", "utf8"));
    return (await readlink(`/proc/${pid}/ns/mnt`)) === (await readlink("/proc/self/ns/mnt"));
  } catch (error) {
    throwTemporary(error);
    return false;
  }
}

/**
 * Binds `source`, a real path that must still lead to the checked directory.
 * @throws `NOT_ALLOWED`, `TOO_MANY_OPERATIONS`
 */
async function bind(source: string, target: string): Promise<void> {
  let handle: FileHandle | undefined;
  try {
    handle = await openDirectory(source);
    if ((await readlink(`/proc/self/fd/${handle.fd}`)) !== source) throw new Error("it leads elsewhere now");
    await mkdir(target, { mode: 0o700 });
    // `-c` disables canonicalization: the path must go through the open descriptor.
    await run("mount", ["-n", "-c", "-o", "bind,nosuid,nodev", "/proc/self/fd/3", target], handle.fd);
  } catch (error) {
    await rmdir(target).catch(() => {});
    throwTemporary(error);
    throw new BerthError(
      "NOT_ALLOWED",
      "A host path could not be mounted: it changed while it was being mounted.",
      { cause: error },
    );
  } finally {
    await handle?.close();
  }
}

async function unbind(target: string): Promise<void> {
  // A lazy unmount: the daemon may have it open.
  await run("umount", ["-n", "-c", "-l", target]).catch(() => {});
  await rmdir(target).catch((error: unknown) => {
    if (codeOf(error) !== "ENOENT") throw error;
  });
}

async function clear(dir: string): Promise<void> {
  const targets = await readdir(dir).catch(() => undefined);
  if (targets === undefined) return;
  for (const target of targets) await unbind(path.join(dir, target)).catch(() => {});
  await rmdir(dir);
}

async function run(command: string, args: readonly string[], fd?: number): Promise<void> {
  await runWith(command, args, fd === undefined ? [] : [fd]);
}

/** Runs a command with these open descriptors, numbered from 3. */
async function runWith(command: string, args: readonly string[], fds: readonly number[]): Promise<void> {
  const child = spawn(command, args, { stdio: ["ignore", "ignore", "pipe", ...fds] });
  let stderr = "";
  child.stderr?.on("data", (chunk) => {
    stderr += chunk;
  });
  const [code] = await once(child, "close");
  if (code !== 0) throw new Error(`${command} ended with ${code}: ${stderr.trim()}`);
}

/** A running container that accepts mounts. */
export interface LateTarget {
  /** Its root directory on the host. */
  readonly root: string;
  readonly pid: number;
  /** Targets of its existing mounts. */
  readonly taken: readonly string[];
  /** The owner for mounts with `giveToUser`; undefined: root. */
  readonly owner: { readonly uid: number; readonly gid: number | undefined } | undefined;
}

/** Paths at which every container has mounts. */
const TAKEN = ["/proc", "/sys", "/dev", "/etc/hosts", "/etc/hostname", "/etc/resolv.conf"];

/**
 * Binds each source with its options to a private stage, so that the flags are set before the container sees it, and
 * from there into the container. Each argument is `FROM_FD:TO_FD:STAGE:OPTIONS`.
 */
const SCRIPT = `stages= made=0
for arg do
  from=\${arg%%:*} rest=\${arg#*:}; to=\${rest%%:*} rest=\${rest#*:}; stage=\${rest%%:*} options=\${rest#*:}
  mount -n -c -o "bind,private,$options" "/proc/self/fd/$from" "$stage" || break
  stages="$stages $stage"
  mount -n -c --bind "$stage" "/proc/self/fd/$to" || break
  made=$((made + 1))
done
[ -z "$stages" ] || umount -n -c -l $stages
[ "$made" = $# ]`;

/** The target for late mounts, from the container's inspection; undefined if nothing can be mounted in it. */
export function lateTarget(info: ContainerInspectInfo, owner: string): LateTarget | undefined {
  // Its fields depend on the storage driver; the types cover only one.
  const { MergedDir: root } = (info.GraphDriver?.Data ?? {}) as { readonly MergedDir?: unknown };
  if (typeof root !== "string" || info.State.Pid <= 0) return undefined;
  const [, uid, gid] = /^(\d+)(?::(\d*))?$/.exec(owner) ?? [];
  return {
    root,
    pid: info.State.Pid,
    taken: info.Mounts.map(({ Destination }) => Destination),
    owner: uid === undefined ? undefined : { uid: Number(uid), gid: gid ? Number(gid) : undefined },
  };
}

/**
 * Mounts directories in a running container that nobody has used yet. The container's root is a slave of the overlay
 * that the host sees, so a mount there also appears inside. Docker unmounts the overlay with everything below it before
 * it removes the container's files (docs/warm-pool.md).
 * @param stage a directory that only root can change.
 * @throws `UNSUPPORTED` if that is impossible. The container must then be discarded.
 */
export async function mountLate(
  target: LateTarget,
  mounts: readonly HostMount[],
  stage: string,
): Promise<void> {
  for (const [index, mount] of mounts.entries()) {
    const others = mounts.toSpliced(index, 1).map((other) => other.target);
    if ([...TAKEN, ...target.taken, ...others].some((other) => overlap(mount.target, other)))
      throw unsupported();
  }
  const handles: FileHandle[] = [];
  const places: string[] = [];
  try {
    const args: string[] = [];
    for (const { hostPath, target: inside, readOnly } of mounts) {
      const source = await openDirectory(hostPath);
      handles.push(source);
      if ((await readlink(`/proc/self/fd/${source.fd}`)) !== hostPath) throw unsupported();
      handles.push(await makeDirectory(target.root, inside));
      const place = await mkdtemp(path.join(stage, "late-"));
      places.push(place);
      const fds = `${handles.length + 1}:${handles.length + 2}`;
      args.push(`${fds}:${place}:nosuid,nodev${readOnly ? ",ro" : ""}`);
    }
    await runWith(
      "sh",
      ["-c", SCRIPT, "sh", ...args],
      handles.map(({ fd }) => fd),
    );
    await assertInside(target.pid, mounts);
    for (const [index, { giveToUser }] of mounts.entries()) {
      if (giveToUser && target.owner) await give(handles[2 * index], target.owner);
    }
  } catch (error) {
    throw error instanceof BerthError ? error : unsupported(error);
  } finally {
    for (const handle of handles) await handle.close();
    for (const place of places) await rmdir(place).catch(() => {});
  }
}

/** Opens a directory in a container, one path component at a time. Creates missing directories and follows no links. */
async function makeDirectory(root: string, inside: string): Promise<FileHandle> {
  let at = await openDirectory(root);
  for (const name of inside.split("/").filter((part) => part !== "")) {
    const place = `/proc/self/fd/${at.fd}/${name}`;
    try {
      await mkdir(place, { mode: 0o755 }).catch(unlessThere);
      const below = await openDirectory(place);
      await at.close();
      at = below;
    } catch (error) {
      await at.close();
      throw error;
    }
  }
  return at;
}

function openDirectory(directory: string): Promise<FileHandle> {
  return open(directory, O_PATH | constants.O_DIRECTORY | constants.O_NOFOLLOW);
}

/** Throws unless the mounts have appeared in the container. Whether they do depends on the kernel and Docker. */
async function assertInside(pid: number, mounts: readonly HostMount[]): Promise<void> {
  const lines = (await readFile(`/proc/${pid}/mountinfo`, "utf8")).split("\n");
  const points = new Set(lines.map((line) => line.split(" ")[4]));
  if (mounts.some(({ target }) => !points.has(escaped(target)))) throw unsupported();
}

/** Escapes a path like mountinfo does. */
function escaped(target: string): string {
  return target.replace(
    /[ \t\n\\]/g,
    (character) => `\\${character.charCodeAt(0).toString(8).padStart(3, "0")}`,
  );
}

async function give(
  directory: FileHandle | undefined,
  { uid, gid }: { readonly uid: number; readonly gid: number | undefined },
): Promise<void> {
  if (directory === undefined) return;
  // A descriptor opened with O_PATH does not allow changing the directory.
  const opened = await open(`/proc/self/fd/${directory.fd}/.`, constants.O_RDONLY | constants.O_DIRECTORY);
  try {
    await opened.chown(uid, gid ?? (await opened.stat()).gid);
  } finally {
    await opened.close();
  }
}

/** Whether one of two absolute paths is the other or lies below it. */
export function overlap(a: string, b: string): boolean {
  return `${a}/`.startsWith(`${b}/`) || `${b}/`.startsWith(`${a}/`);
}

function unsupported(cause?: unknown): BerthError {
  return new BerthError("UNSUPPORTED", "This container can no longer take mounts.", { cause });
}
