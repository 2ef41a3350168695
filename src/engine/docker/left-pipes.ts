import { constants, openSync, readSync, unlink } from "node:fs";
import { readdir } from "node:fs/promises";
import { Socket } from "node:net";
import path from "node:path";
import type { Logger } from "../../base/logger.ts";
import { SlowDrain } from "../orphaned-pipes.ts";
import type { PipeEnds } from "../pipe-streams.ts";
import type { OutputStream } from "../port.ts";
import type { PipePaths } from "./named-pipes.ts";
import { Knocks } from "./named-pipes.ts";

/** The pipes of a process of an earlier run of the service, of which this run reads what is left. */
export interface ClaimedPipes {
  readonly paths: PipePaths;
  readonly ends: PipeEnds;
  /** What lay in them, and comes before what the ends bring. */
  readonly left: readonly { readonly stream: OutputStream; readonly chunk: Buffer }[];
}

/** As much as a pipe holds, unless somebody had it made larger. */
const MAX_LEFT_BYTES = 64 * 1024;
/** Between two reads of what nobody has claimed: a command that still runs may write to it, and is to get on. */
const TURN_MS = 25;

/** What an earlier run of the service left in the directories of containers that live: pipes, and in them what it had not read. */
export class LeftPipes {
  readonly #logger: Logger;
  /** Paths that are neither claimed nor drained. */
  readonly #unclaimed = new Set<string>();
  readonly #draining = new Set<Socket>();
  readonly #slowDrain = new SlowDrain(TURN_MS);
  readonly #knocks = new Set<Knocks>();
  #claimsOver = false;

  constructor(logger: Logger) {
    this.#logger = logger;
  }

  /** Looks what pipes are in a directory. */
  async add(directory: string): Promise<void> {
    for (const entry of await readdir(directory, { withFileTypes: true }).catch(() => []))
      if (entry.isFIFO()) this.#unclaimed.add(path.join(directory, entry.name));
    if (this.#claimsOver) this.drain();
  }

  /** The pipes of a process; undefined where none of its outputs is there any more. */
  claim(paths: PipePaths): ClaimedPipes | undefined {
    const outputs: PipeEnds["outputs"][number][] = [];
    const left: ClaimedPipes["left"][number][] = [];
    for (const stream of ["stdout", "stderr"] as const) {
      const fd = this.#unclaimed.delete(paths[stream]) ? this.#open(paths[stream]) : undefined;
      if (fd === undefined) continue;
      left.push({ stream, chunk: readNow(fd) });
      outputs.push({ stream, socket: socketOf(fd) });
    }
    if (outputs.length === 0) return undefined;
    this.#unclaimed.delete(paths.stdin);
    return { paths, ends: { stdin: undefined, outputs }, left };
  }

  /** Reads what nobody has claimed to its end, and removes it then. Nothing can be claimed afterwards. */
  drain(): void {
    this.#claimsOver = true;
    const left = [...this.#unclaimed];
    this.#unclaimed.clear();
    const isStdin = (file: string): boolean => file.endsWith("i");
    // A shell that waits for somebody to read what it told goes when its stdin is opened.
    for (const file of left) if (!isStdin(file)) this.#read(file);
    for (const file of left) if (isStdin(file)) this.#end(file);
  }

  close(): void {
    for (const knocks of this.#knocks) knocks.stop();
    for (const socket of this.#draining) socket.destroy();
  }

  #read(file: string): void {
    const fd = this.#open(file);
    if (fd === undefined) return;
    const socket = socketOf(fd);
    this.#draining.add(socket);
    this.#slowDrain.start(socket);
    socket.once("close", () => {
      if (this.#draining.delete(socket) && socket.readableEnded) unlink(file, () => {});
    });
  }

  /** Has those that wait at a stdin, or come to it later, meet its end. */
  #end(file: string): void {
    const knocks = new Knocks(file, () => {
      this.#knocks.delete(knocks);
      unlink(file, () => {});
    });
    this.#knocks.add(knocks);
    knocks.begin();
  }

  #open(file: string): number | undefined {
    try {
      return openSync(file, constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOFOLLOW);
    } catch (error) {
      this.#logger.debug({ file, err: error }, "an earlier process's pipe could not be read to its end");
      return undefined;
    }
  }
}

/** What lies in a pipe, so that an end that was told before now is known at once. */
function readNow(fd: number): Buffer {
  const bytes = Buffer.alloc(MAX_LEFT_BYTES);
  try {
    return bytes.subarray(0, readSync(fd, bytes));
  } catch {
    // Nothing: somebody has it open who may still write.
    return bytes.subarray(0, 0);
  }
}

function socketOf(fd: number): Socket {
  // Whoever reads it learns of an error by its close.
  return new Socket({ fd, readable: true, writable: false }).on("error", () => {});
}
