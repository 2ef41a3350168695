import { spawn } from "node:child_process";
import { once } from "node:events";
import { closeSync, constants, openSync } from "node:fs";
import type { Duplex } from "node:stream";
import { HOST_ENV } from "./host-command.ts";
import type { Identity } from "./identity.ts";

/** Made at once: the shells that make them cost less together. */
const BATCH = 32;
const LOW_WATER = 16;
const MAKE_MS = 20_000;

/** Both ends of a pipe. Who takes it closes them. */
export interface PipeEnds {
  /** Blocking, as programs expect it. To be closed here once the child has it. */
  readonly child: number;
  /** Not blocking. */
  readonly parent: number;
}

/**
 * Each shell tells its number, its stdout being a pipe of its own, and stays
 * until all pipes have been opened: as 4, since 1 is another while it tells.
 */
const SHELL = "w() { exec 4>&1; read -r self x </proc/self/stat; echo $self >&3; read -r x <&3; }";

/**
 * Makes pipes for the standard streams of children. Node itself gives them
 * sockets, which cannot be opened again through `/proc/self/fd` or
 * `/dev/stdin`. So shells in a row make them, and are opened like that. They
 * run as the sandboxes' user on the host: who owns a pipe may open it again.
 */
export class Pipes {
  readonly #identity: Identity;
  /** Open for both directions, so that they stay. */
  readonly #ready: number[] = [];
  #making: Promise<void> | undefined;

  constructor(identity: Identity) {
    this.#identity = identity;
  }

  /** A pipe whose child's end is written to. */
  fromChild(): Promise<PipeEnds> {
    return this.#take(constants.O_WRONLY, constants.O_RDONLY);
  }

  /** A pipe whose child's end is read from. */
  toChild(): Promise<PipeEnds> {
    return this.#take(constants.O_RDONLY, constants.O_WRONLY);
  }

  /** Makes the first ones ahead of need. */
  async prepare(): Promise<void> {
    await this.#refill();
  }

  async close(): Promise<void> {
    await this.#making?.catch(() => {});
    for (const fd of this.#ready.splice(0)) closeSync(fd);
  }

  async #take(childMode: number, parentMode: number): Promise<PipeEnds> {
    for (;;) {
      const fd = this.#ready.pop();
      const refill = this.#ready.length < LOW_WATER ? this.#refill() : undefined;
      // Whoever finds none waits for it, and is told there.
      refill?.catch(() => {});
      if (fd === undefined) {
        await refill;
        continue;
      }
      const name = `/proc/self/fd/${fd}`;
      try {
        const child = openSync(name, childMode);
        return { child, parent: openSync(name, parentMode | constants.O_NONBLOCK) };
      } finally {
        closeSync(fd);
      }
    }
  }

  #refill(): Promise<void> {
    this.#making ??= this.#make().finally(() => {
      this.#making = undefined;
    });
    return this.#making;
  }

  async #make(): Promise<void> {
    const [program = "", ...args] = this.#identity.become;
    const row = Array.from({ length: BATCH }, () => "w").join(" | ");
    const shell = spawn(program, [...args, "/bin/sh", "-c", `${SHELL}\n${row} | :`], {
      stdio: ["ignore", "ignore", "ignore", "pipe"],
      env: HOST_ENV,
      cwd: "/",
      detached: true,
    });
    const control = shell.stdio[3] as Duplex;
    const exited = once(shell, "exit");
    exited.catch(() => {});
    const timer = setTimeout(() => control.destroy(new Error("making pipes takes too long")), MAKE_MS);
    const made: number[] = [];
    try {
      const pids = await Promise.race([exited.then(endedAtOnce), readLines(control, BATCH)]);
      for (const pid of pids)
        made.push(openSync(`/proc/${pid}/fd/4`, constants.O_RDWR | constants.O_NONBLOCK));
      control.destroy();
      // While a shell is left, the pipe of its own has one end too many.
      await exited;
      this.#ready.push(...made.splice(0));
    } finally {
      clearTimeout(timer);
      control.destroy();
      for (const fd of made) closeSync(fd);
    }
  }
}

function readLines(stream: Duplex, count: number): Promise<string[]> {
  const { promise, resolve, reject } = Promise.withResolvers<string[]>();
  let text = "";
  stream.on("data", (chunk: Buffer) => {
    text += chunk.toString("latin1");
    const lines = text.split("\n");
    if (lines.length > count) resolve(lines.slice(0, count));
  });
  stream.once("error", reject);
  return promise;
}

function endedAtOnce(): never {
  throw new Error("the shells that make pipes ended at once");
}
