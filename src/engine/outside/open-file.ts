import { constants } from "node:fs";
import { type FileHandle, open, readFile, stat } from "node:fs/promises";
import { untilAborted } from "../../base/async.ts";
import { lend } from "../../base/lent-bytes.ts";
import { Turns } from "../../base/turns.ts";
import type { OpenFile } from "../port.ts";
import {
  childrenOf,
  type ProcessScope,
  readProcess,
  readText,
  scanTurns,
  signalProcess,
  startTimeOf,
  threadsOf,
} from "./host-process.ts";

/** Whatever a sandbox has put in the file's place must not block the open, or become the service's terminal. */
const FLAGS = constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOCTTY;
/** In a descriptor's flags: the access mode, and the flag for no access at all (linux/fcntl.h). */
const ACCESS_MODE = 0o3;
const O_PATH = 0o10000000;

/** File systems whose files read the same for every process. Those of the kernel (/proc, /sys) do not. */
const EVEN = ["overlay", "xfs", "btrfs", "ext4", "tmpfs"];

/** Half of Node's threads for files, so that a slow disk of one sandbox leaves the other half for the rest. */
const AT_ONCE = 2;
const turns = new Turns(AT_ONCE);

/** A reader has one or two descendants, or a few if the image wraps the tool. More than that is something else. */
export const MAX_DESCENDANTS = 16;
const SIGKILL = 9;
const SIGSTOP = 19;

/**
 * Opens the regular file that a process of a sandbox has open, if the process may read it. The service may be allowed
 * to read more than the process, so the opened file is compared with the one that the process has open at that time.
 * @returns undefined if the process has no such file, or if that cannot be determined.
 */
export async function openFileOf(
  scope: ProcessScope,
  pid: number,
  descriptor: number,
): Promise<OpenFile | undefined> {
  const link = `/proc/${pid}/fd/${descriptor}`;
  const startTime = startTimeOf(pid);
  if (startTime === undefined) return undefined;
  const readable = (): Descriptor | undefined => {
    const found = descriptorOf(pid, descriptor);
    const isReadable = found !== undefined && isForReading(found.flags);
    return isReadable && startTimeOf(pid) === startTime && scope.holds(pid) ? found : undefined;
  };
  const before = readable();
  // Opening anything but a regular file may have side effects.
  if (before === undefined || !(await isRegular(link))) return undefined;
  const mountinfo = await readFile(`/proc/${pid}/mountinfo`, "latin1").catch(() => "");
  if (!EVEN.includes(typeOf(mountinfo, before.mount))) return undefined;
  const handle = await open(link, FLAGS).catch(() => undefined);
  if (handle === undefined) return undefined;
  const own = descriptorOf("self", handle.fd);
  const its = readable();
  const isSame = own?.mount === before.mount && own.mount === its?.mount && own.inode === its.inode;
  const isFile = isSame && (await handle.stat().catch(() => undefined))?.isFile() === true;
  if (isFile) return new HandleFile(handle, () => killWithDescendants(scope, { pid, startTime }));
  await handle.close().catch(() => {});
  return undefined;
}

/** What `/proc/PID/fdinfo` says of a descriptor. */
interface Descriptor {
  readonly flags: number;
  readonly mount: string;
  readonly inode: string;
}

/** Undefined if there is none, and on kernels before 5.14, which do not report the inode. */
function descriptorOf(pid: number | "self", descriptor: number): Descriptor | undefined {
  const text = readText(`/proc/${pid}/fdinfo/${descriptor}`) ?? "";
  const field = (name: string): string | undefined => new RegExp(`^${name}:\\s+(\\d+)$`, "m").exec(text)?.[1];
  const [flags, mount, inode] = [field("flags"), field("mnt_id"), field("ino")];
  if (flags === undefined || mount === undefined || inode === undefined) return undefined;
  return { flags: Number.parseInt(flags, 8), mount, inode };
}

function isForReading(flags: number): boolean {
  return (flags & O_PATH) === 0 && (flags & ACCESS_MODE) !== constants.O_WRONLY;
}

async function isRegular(link: string): Promise<boolean> {
  return (await stat(link).catch(() => undefined))?.isFile() === true;
}

/** The file system type of a mount; empty if it is not listed. */
function typeOf(mountinfo: string, mount: string): string {
  return new RegExp(`^${mount} .* - (\\S+) `, "m").exec(mountinfo)?.[1] ?? "";
}

/** Returns whether the process still existed. @param budget how many descendants may still be killed. */
async function killWithDescendants(
  scope: ProcessScope,
  one: { readonly pid: number; readonly startTime: string },
  budget = { left: MAX_DESCENDANTS },
): Promise<boolean> {
  // A stopped process starts nothing more, so the lists of its children are complete.
  if (!signalProcess(scope, one, SIGSTOP)) return false;
  for (const pid of await childrenOfAll(one.pid)) {
    if (budget.left-- <= 0) break;
    const child = readProcess(pid);
    if (child?.parent === one.pid) await killWithDescendants(scope, child, budget);
  }
  return signalProcess(scope, one, SIGKILL);
}

/** The children of all threads of a process, of which there may be thousands. Yields to the event loop. */
async function childrenOfAll(pid: number): Promise<number[]> {
  const found: number[] = [];
  for (const thread of threadsOf(pid)) {
    const turn = scanTurns.enter();
    if (turn) await turn;
    found.push(...childrenOf(pid, thread));
  }
  return found;
}

class HandleFile implements OpenFile {
  readonly #handle: FileHandle;
  /** Memory of earlier reads, which the next ones use again. */
  readonly #free: Buffer[] = [];
  readonly killHolder: () => Promise<boolean>;

  constructor(handle: FileHandle, killHolder: () => Promise<boolean>) {
    this.#handle = handle;
    this.killHolder = killHolder;
  }

  read(position: number, maxBytes: number, signal: AbortSignal): Promise<Buffer> {
    const reading = turns.run(async () => {
      const free = this.#free.pop();
      const buffer = free?.length === maxBytes ? free : Buffer.allocUnsafeSlow(maxBytes);
      const { bytesRead } = await this.#handle.read(buffer, 0, maxBytes, position);
      const bytes = buffer.subarray(0, bytesRead);
      lend(bytes, () => this.#free.push(buffer));
      return bytes;
    }, signal);
    // Does not wait for a disk that does not answer.
    return untilAborted(reading, signal);
  }

  close(): Promise<void> {
    return this.#handle.close();
  }
}
