import { readFileSync, realpathSync } from "node:fs";
import path from "node:path";

/** A mount, as seen by this process. */
export interface Mount {
  readonly point: string;
  /** Type of its file system, such as `ext4`. */
  readonly type: string;
  /** Options of its file system. */
  readonly options: readonly string[];
}

export function readMountinfo(): string {
  return readFileSync("/proc/self/mountinfo", "utf8");
}

export function mountsIn(mountinfo: string): Mount[] {
  return mountinfo
    .split("\n")
    .filter(Boolean)
    .map((line) => {
      const [, , , , escaped = "", ...rest] = line.split(" ");
      const [type = "", , options = ""] = rest.slice(rest.indexOf("-") + 1);
      const point = escaped.replace(/\\([0-7]{3})/g, (_, digits) =>
        String.fromCharCode(Number.parseInt(digits, 8)),
      );
      return { point, type, options: options.split(",") };
    });
}

export function isBelow(realPath: string, directory: string): boolean {
  return directory === "/" ? realPath !== "/" : realPath.startsWith(`${directory}/`);
}

/**
 * Options that keep a tool out of mounts below a directory, if there are any: those belong to the operator. If there
 * are none, a change of the file system is a btrfs subvolume. Any sandbox can create one, and it is part of the
 * workspace.
 */
export function stayOutOfMounts(directory: string): string[] {
  return holdsMounts(directory) ? ["--one-file-system"] : [];
}

/** Whether something is mounted below a directory. */
export function holdsMounts(directory: string): boolean {
  // A sandbox may have replaced the directory itself, but not its parent, which belongs to the service.
  const realPath = path.join(realpathSync(path.dirname(directory)), path.basename(directory));
  return mountsIn(readMountinfo()).some(({ point }) => isBelow(point, realPath));
}
