import { constants } from "node:fs";
import { type FileHandle, mkdir, mkdtemp, open, readFile, readlink, rmdir } from "node:fs/promises";
import path from "node:path";
import type { ContainerInspectInfo } from "dockerode";
import { BerthError } from "../../base/errors.ts";
import type { EngineMount } from "../port.ts";
import { O_PATH, runWith } from "./mount-stage.ts";

/** What has to be known of a running container to mount something in it. */
export interface LateTarget {
  /** Its root directory as the host sees it. */
  readonly root: string;
  readonly pid: number;
  /** Where it has mounts of its own. */
  readonly taken: readonly string[];
  /** Whom directories are given to that are to be the user's; undefined: root. */
  readonly owner: { readonly uid: number; readonly gid: number | undefined } | undefined;
}

/** Where every container has something else mounted than its root directory. */
const TAKEN = ["/proc", "/sys", "/dev", "/etc/hosts", "/etc/hostname", "/etc/resolv.conf"];

/** In which a file system's own flags are set before others see it. The arguments: options, then descriptors in pairs. */
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

/** What is needed of a container of an inspection; undefined where nothing can be mounted in it later. */
export function lateTarget(info: ContainerInspectInfo, owner: string): LateTarget | undefined {
  // What is in there depends on the storage driver; the driver's types know one.
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
 * Mounts directories in a container that runs and that nobody has used yet. Its
 * root is a slave of the overlay that the host sees, so what is bound there
 * appears inside; Docker lets go of it when it unmounts the overlay, before it
 * removes the container's files.
 * @param stage a directory that only root can change.
 * @throws `UNSUPPORTED` where that cannot be done; the container is of no use then.
 */
export async function mountLate(
  target: LateTarget,
  mounts: readonly EngineMount[],
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

/** Goes down a container's tree by open directories, makes what is missing and follows no link. */
async function makeDirectory(root: string, inside: string): Promise<FileHandle> {
  let at = await openDirectory(root);
  for (const name of inside.split("/").filter((part) => part !== "")) {
    const place = `/proc/self/fd/${at.fd}/${name}`;
    try {
      await mkdir(place, { mode: 0o755 }).catch((error: NodeJS.ErrnoException) => {
        if (error.code !== "EEXIST") throw error;
      });
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

/** Whether what was bound has come to the container: that is the kernel's business, and Docker's. */
async function assertInside(pid: number, mounts: readonly EngineMount[]): Promise<void> {
  const lines = (await readFile(`/proc/${pid}/mountinfo`, "utf8")).split("\n");
  const points = new Set(lines.map((line) => line.split(" ")[4]));
  if (mounts.some(({ target }) => !points.has(escaped(target)))) throw unsupported();
}

/** As the kernel writes paths. */
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
  // One opened without rights to its content cannot be changed itself.
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
  return new BerthError("UNSUPPORTED", "Nothing can be mounted in this container any more.", { cause });
}
