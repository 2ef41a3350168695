import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import { newDataDir } from "./settings.ts";

/** A small file system that only the programs started in it see. It is gone when the last of them ends. */
export class SmallDisk {
  /** Its path for programs that run in it. */
  readonly path: string;
  readonly #device: string;
  readonly #pid: number;
  readonly #stop: () => Promise<void>;

  private constructor(mountPoint: string, device: string, pid: number, stop: () => Promise<void>) {
    this.path = mountPoint;
    this.#device = device;
    this.#pid = pid;
    this.#stop = stop;
  }

  /** Creates a file system of a size in MiB, in its own mount namespace. */
  static async make(mib: number): Promise<SmallDisk> {
    const directory = newDataDir();
    const image = path.join(directory, "image");
    const mountPoint = path.join(directory, "disk");
    mkdirSync(mountPoint);
    // Blocks of 1 KiB, the default for small disks, leave holes in SQLite's shared memory, and a full disk then kills
    // the program.
    const script = `set -e
      truncate -s ${mib}M "$1"
      mkfs.ext4 -q -b 4096 -m 0 -e remount-ro -O ^has_journal "$1"
      mount -o loop "$1" "$2"
      findmnt -no SOURCE "$2"
      read -r _ || true`;
    const child = spawn(
      "unshare",
      ["--mount", "--propagation", "private", "sh", "-c", script, "sh", image, mountPoint],
      {
        stdio: ["pipe", "pipe", "pipe"],
        env: { ...process.env, PATH: `${process.env.PATH}:/usr/sbin:/sbin` },
      },
    );
    let problem = "";
    child.stderr.on("data", (text: Buffer) => {
      problem += text;
    });
    const ended = once(child, "close");
    const source = await Promise.race([
      once(child.stdout, "data").then(([text]: Buffer[]) => String(text).trim()),
      ended.then(() => ""),
    ]);
    const device = /^\/dev\/(loop\d+)$/.exec(source)?.[1];
    if (device === undefined || child.pid === undefined)
      throw new Error(`no small disk could be made: ${source} ${problem}`);
    const stop = async (): Promise<void> => {
      child.stdin.end();
      await ended;
    };
    return new SmallDisk(mountPoint, device, child.pid, stop);
  }

  /** The command prefix that runs a program where the disk is visible. */
  get enter(): readonly string[] {
    return ["nsenter", `--mount=/proc/${this.#pid}/ns/mnt`];
  }

  /** The path of a file on it for this process. */
  reach(name: string): string {
    return path.join(`/proc/${this.#pid}/root`, this.path, name);
  }

  /** Makes it fail like a broken disk: the kernel refuses every further write, also to open files. */
  fail(): void {
    try {
      writeFileSync(`/sys/fs/ext4/${this.#device}/trigger_fs_error`, "a test");
    } catch (error) {
      // The write of the file that triggers it may fail with it.
      if ((error as NodeJS.ErrnoException).code !== "EIO") throw error;
    }
  }

  async remove(): Promise<void> {
    await this.#stop();
  }
}
