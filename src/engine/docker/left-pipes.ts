import { constants, readSync, unlink } from "node:fs";
import { readdir } from "node:fs/promises";
import type { Socket } from "node:net";
import path from "node:path";
import type { Logger } from "../../base/logger.ts";
import { SlowDrain } from "../orphaned-pipes.ts";
import { PipeSocket } from "../pipe-socket.ts";
import type { PipeEnds } from "../pipe-streams.ts";
import type { OutputStream } from "../port.ts";
import type { PipePaths } from "./named-pipes.ts";
import { openPipe, StdinCloser } from "./named-pipes.ts";
import { ZYGOTE_FILES } from "./zygote-script.ts";

/** The pipes of a process of an earlier run of the service, which this run continues to read. */
export interface ClaimedPipes {
  readonly paths: PipePaths;
  readonly ends: PipeEnds;
  /** Bytes that were already in the pipes. They precede what the ends deliver. */
  readonly left: readonly { readonly stream: OutputStream; readonly chunk: Buffer }[];
}

/** The default capacity of a pipe. */
const MAX_LEFT_BYTES = 64 * 1024;
/** Names of pipes that do not belong to a process. */
const ZYGOTES: ReadonlySet<string> = new Set(Object.values(ZYGOTE_FILES));
/** Pause between two reads of an unclaimed pipe. Short, so that a command that still writes to it makes progress. */
const TURN_MS = 25;

/**
 * The pipes that an earlier run of the service left in the directories of live containers, with their unread output.
 */
export class LeftPipes {
  readonly #logger: Logger;
  /** Paths that are neither claimed nor drained. */
  readonly #unclaimed = new Set<string>();
  readonly #draining = new Set<Socket>();
  readonly #slowDrain = new SlowDrain(TURN_MS);
  readonly #stdinClosers = new Set<StdinCloser>();
  #claimsOver = false;

  constructor(logger: Logger) {
    this.#logger = logger;
  }

  async add(directory: string): Promise<void> {
    for (const entry of await readdir(directory, { withFileTypes: true }).catch(() => []))
      if (entry.isFIFO() && !ZYGOTES.has(entry.name)) this.#unclaimed.add(path.join(directory, entry.name));
    if (this.#claimsOver) this.drain();
  }

  /** Takes the pipes of a process; undefined if none of its outputs exists any more. */
  claim(paths: PipePaths): ClaimedPipes | undefined {
    const outputs: PipeEnds["outputs"][number][] = [];
    const left: ClaimedPipes["left"][number][] = [];
    for (const stream of ["stdout", "stderr"] as const) {
      const fd = this.#unclaimed.delete(paths[stream]) ? this.#open(paths[stream]) : undefined;
      if (fd === undefined) continue;
      left.push({ stream, chunk: readNow(fd) });
      outputs.push({ stream, socket: new PipeSocket(fd, "readable") });
    }
    if (outputs.length === 0) return undefined;
    this.#unclaimed.delete(paths.stdin);
    return { paths, ends: { stdin: undefined, outputs }, left };
  }

  /** Drains every unclaimed pipe and then removes it. Nothing can be claimed afterwards. */
  drain(): void {
    this.#claimsOver = true;
    const left = [...this.#unclaimed];
    this.#unclaimed.clear();
    const isStdin = (file: string): boolean => file.endsWith("i");
    // A shell that waits for its report to be read ends when its stdin is opened.
    for (const file of left) if (!isStdin(file)) this.#read(file);
    for (const file of left) if (isStdin(file)) this.#end(file);
  }

  close(): void {
    for (const closer of this.#stdinClosers) closer.stop();
    for (const socket of this.#draining) socket.destroy();
  }

  #read(file: string): void {
    const fd = this.#open(file);
    if (fd === undefined) return;
    const socket = new PipeSocket(fd, "readable");
    this.#draining.add(socket);
    this.#slowDrain.start(socket);
    socket.once("close", () => {
      if (this.#draining.delete(socket) && socket.readableEnded) unlink(file, () => {});
    });
  }

  /** Gives EOF to current and later readers of a stdin. */
  #end(file: string): void {
    const closer = new StdinCloser(file, () => {
      this.#stdinClosers.delete(closer);
      unlink(file, () => {});
    });
    this.#stdinClosers.add(closer);
    closer.start();
  }

  #open(file: string): number | undefined {
    try {
      return openPipe(file, constants.O_RDONLY);
    } catch (error) {
      this.#logger.debug({ file, err: error }, "could not open a pipe that an earlier run left");
      return undefined;
    }
  }
}

/** Reads what is in a pipe now, so that an end that was reported earlier is known at once. */
function readNow(fd: number): Buffer {
  const bytes = Buffer.alloc(MAX_LEFT_BYTES);
  try {
    return bytes.subarray(0, readSync(fd, bytes));
  } catch {
    // It is empty, and a process may still write to it.
    return bytes.subarray(0, 0);
  }
}
