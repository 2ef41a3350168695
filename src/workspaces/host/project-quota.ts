import { createHash } from "node:crypto";
import { existsSync, realpathSync } from "node:fs";
import { mkdtemp, rmdir } from "node:fs/promises";
import path from "node:path";
import type { Finding } from "../../base/diagnosis.ts";
import type { WorkspacePlace } from "../workspace.ts";
import { isBelow, type Mount, mountsIn, readMountinfo } from "./mountinfo.ts";
import { Tools } from "./tools.ts";

/** A file system that can limit the size of a directory. */
interface QuotaMount {
  readonly type: "ext4" | "xfs";
  readonly mountPoint: string;
}

const KIB = 1024;
const MIN_BYTES = 64 * KIB;
const TOOLS = { ext4: ["chattr", "setquota"], xfs: ["xfs_quota"] } as const;
/** Bits of a project id that number the directories of one root. The root's bucket is in the bits above. */
const ID_BITS = 19;

/**
 * Limits the size of directories with the file system's project quotas. Everything created in a directory inherits its
 * project.
 */
export class ProjectQuota {
  readonly #tools: Tools;
  readonly #mount: QuotaMount;
  readonly #bucket: number;

  private constructor(tools: Tools, mount: QuotaMount, root: string) {
    this.#tools = tools;
    this.#mount = mount;
    // Other services may have workspaces on the same file system, so each root gets a bucket of ids.
    this.#bucket = 0x400 + (createHash("sha256").update(root).digest().readUInt16BE() & 0x3ff);
  }

  /**
   * Finds out whether quotas can be enforced on the root's file system. Otherwise returns why not.
   * @param directory where to try with a probe. Undefined: nowhere, because sandboxes write there.
   */
  static async find(
    root: string,
    directory: string | undefined,
    tools: Tools,
  ): Promise<ProjectQuota | string> {
    const mount = await mountOf(root, tools);
    if (typeof mount === "string") return mount;
    const quota = new ProjectQuota(tools, mount, root);
    const probe = directory === undefined ? undefined : await mkdtemp(path.join(directory, "probe-"));
    try {
      if (probe !== undefined) await quota.assign(probe, 0);
      await quota.limit(0, MIN_BYTES);
      return quota;
    } catch (error) {
      return `a probe failed: ${error instanceof Error ? error.message : error}`;
    } finally {
      if (probe !== undefined) await rmdir(probe);
    }
  }

  /** Why {@link find} would fail, as far as it shows without a probe. Undefined: it would succeed. */
  static async problemOf(root: string, tools: Tools): Promise<string | undefined> {
    const found = await mountOf(root, tools);
    return typeof found === "string" ? found : undefined;
  }

  /** Assigns an empty directory, and everything created in it, to a number. Idempotent. */
  async assign(directory: string, number: number): Promise<void> {
    const project = this.#projectOf(number);
    const { type, mountPoint } = this.#mount;
    await this.#run(
      directory,
      type === "ext4"
        ? ["chattr", "-p", project, "+P", "."]
        : // Only the directory itself: a recursive walk by paths could be led out of it.
          ["xfs_quota", "-x", "-c", `project -s -d 0 -p . ${project}`, mountPoint],
    );
  }

  /** Limits everything assigned to a number to `bytes`. */
  async limit(number: number, bytes: number): Promise<void> {
    const project = this.#projectOf(number);
    const kib = String(Math.max(1, Math.floor(bytes / KIB)));
    const { type, mountPoint } = this.#mount;
    await this.#run(
      mountPoint,
      type === "ext4"
        ? ["setquota", "-P", project, "0", kib, "0", "0", mountPoint]
        : ["xfs_quota", "-x", "-c", `limit -p bhard=${kib}k ${project}`, mountPoint],
    );
  }

  #projectOf(number: number): string {
    return String((this.#bucket << ID_BITS) | (number % (1 << ID_BITS)));
  }

  async #run(directory: string, argv: readonly [string, ...string[]]): Promise<void> {
    const { code, stderr } = await this.#tools.run({ argv, directory, capabilities: ["sys_admin"] });
    if (code !== 0) throw new Error(`${argv[0]} ended with ${code}: ${stderr.trim()}`);
  }
}

/** The mount of a directory, if its file system can enforce quotas here. Otherwise why it cannot. */
async function mountOf(root: string, tools: Tools): Promise<QuotaMount | string> {
  if (process.getuid?.() !== 0) return "only root may set quotas";
  const mount = quotaMountOf(realpathSync(root), readMountinfo());
  if (mount === undefined) return "its file system is not ext4 or xfs, mounted with prjquota";
  for (const tool of TOOLS[mount.type]) {
    const { code } = await tools.run({
      argv: ["sh", "-c", 'command -v "$1"', "sh", tool],
      directory: root,
    });
    if (code !== 0) return `the program ${tool} is missing`;
  }
  return mount;
}

/** The mount on which a real path lies, if it supports project quotas. */
export function quotaMountOf(realPath: string, mountinfo: string): QuotaMount | undefined {
  let found: Mount | undefined;
  for (const mount of mountsIn(mountinfo)) {
    const isAbove = realPath === mount.point || isBelow(realPath, mount.point);
    // The later of two mounts on the same point hides the earlier one.
    if (isAbove && mount.point.length >= (found?.point.length ?? 0)) found = mount;
  }
  if (found === undefined || (found.type !== "ext4" && found.type !== "xfs")) return undefined;
  const { type, point, options } = found;
  return options.some((option) => option === "prjquota" || option === "pquota")
    ? { type, mountPoint: point }
    : undefined;
}

/**
 * Gives each directory its own quota. An import counts as part of its workspace from the first byte, because files
 * cannot be moved between projects. So each running import raises the limit by the quota once more.
 */
export class DirectoryQuota {
  readonly #quota: ProjectQuota;
  readonly #bytes: number;
  /** Running imports, by the workspace's number. */
  readonly #imports = new Map<number, number>();

  constructor(quota: ProjectQuota, bytes: number) {
    this.#quota = quota;
    this.#bytes = bytes;
  }

  /** Puts an empty directory, and everything created in it, under its quota. Idempotent. */
  async enforce({ number }: WorkspacePlace, directory: string): Promise<void> {
    await this.#quota.assign(directory, number);
    await this.#limit(number);
  }

  /** Limits a directory that already is in its project. Idempotent. */
  async limit({ number }: WorkspacePlace): Promise<void> {
    await this.#limit(number);
  }

  /** Raises the limit for an import, until {@link endImport}. */
  async beginImport({ number }: WorkspacePlace): Promise<void> {
    this.#imports.set(number, this.#importsOf(number) + 1);
    await this.#limit(number);
  }

  /** Lowers the limit again, whether the import was moved in or not. */
  async endImport({ number }: WorkspacePlace): Promise<void> {
    const left = this.#importsOf(number) - 1;
    if (left > 0) this.#imports.set(number, left);
    else this.#imports.delete(number);
    await this.#limit(number);
  }

  #importsOf(number: number): number {
    return this.#imports.get(number) ?? 0;
  }

  #limit(number: number): Promise<void> {
    return this.#quota.limit(number, this.#bytes * (1 + this.#importsOf(number)));
  }
}

/** Whether the file system of a root, which may not exist yet, would enforce a quota. Changes nothing. */
export async function diagnoseQuota(
  option: string,
  quotaBytes: number | undefined,
  root: string,
): Promise<Finding[]> {
  if (quotaBytes === undefined) return [];
  const subject = `--${option}`;
  let directory = root;
  while (!existsSync(directory)) directory = path.dirname(directory);
  const problem = await ProjectQuota.problemOf(directory, Tools.find());
  if (problem === undefined) return [{ subject, status: "ok", found: "the file system can enforce it" }];
  return [
    {
      subject,
      status: "limited",
      found: `it would be watched, not enforced: ${problem}`,
      fix: `Put ${root} on ext4 or xfs mounted with prjquota, run the service as root, and install chattr and setquota (ext4) or xfs_quota (xfs).`,
    },
  ];
}
