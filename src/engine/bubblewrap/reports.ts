import type { Duplex } from "node:stream";
import { childrenOf } from "./process-tree.ts";

/** By then a shell that nobody waits for any more has started what it is to start. */
const UNCLAIMED_MS = 1000;

/** A shell of the host's that has reported its start. */
export interface Started {
  readonly pid: number;
  /** What it started itself, where it said so. */
  readonly child: number | undefined;
  /** Resolves with the exit code that it reports for its work, if it does. */
  readonly code: Promise<number>;
}

interface Entry {
  readonly started: PromiseWithResolvers<Started>;
  readonly code: PromiseWithResolvers<number>;
}

/**
 * What shells of the host's tell of themselves, in lines: `s TAG PID [PID]`
 * for their start, and `e TAG CODE` for the end of what they were started for.
 * Nothing inside a sandbox has the socket for that.
 */
export class Reports {
  readonly #entries = new Map<number, Entry>();
  #lastTag = 0;

  /** A tag of its own for a shell, and what is reported under it. */
  expect(): {
    readonly tag: number;
    readonly started: Promise<Started>;
    readonly fail: (error: Error) => void;
  } {
    const tag = ++this.#lastTag;
    const entry: Entry = { started: Promise.withResolvers(), code: Promise.withResolvers() };
    this.#entries.set(tag, entry);
    return {
      tag,
      started: entry.started.promise,
      fail: (error) => {
        entry.started.reject(error);
        this.#entries.delete(tag);
      },
    };
  }

  /** How many still have something to report. */
  get expected(): number {
    return this.#entries.size;
  }

  /** Takes what comes from a socket, until that ends. */
  listen(socket: Duplex): void {
    let rest = "";
    socket.on("error", () => {});
    socket.on("data", (chunk: Buffer) => {
      const lines = (rest + chunk.toString("latin1")).split("\n");
      rest = lines.pop() ?? "";
      for (const line of lines) this.#take(line);
    });
  }

  #take(line: string): void {
    const [kind, tag, ...numbers] = line.trimEnd().split(" ");
    const entry = this.#entries.get(Number(tag));
    const [first = Number.NaN, second] = numbers.map(Number);
    if (kind === "s") {
      if (entry === undefined) setTimeout(() => sendAway(first, second), UNCLAIMED_MS).unref();
      else entry.started.resolve({ pid: first, child: second, code: entry.code.promise });
      // Who tells of a child reports no end of its own.
      if (second !== undefined) this.#entries.delete(Number(tag));
    }
    if (kind !== "e") return;
    entry?.code.resolve(first);
    this.#entries.delete(Number(tag));
  }
}

/** Ends a shell that reported late: a keeper by its own means, an attendant by the end of its child. */
function sendAway(pid: number, child: number | undefined): void {
  try {
    if (child !== undefined) process.kill(pid, "SIGTERM");
    else for (const own of childrenOf(pid)) process.kill(own, "SIGKILL");
  } catch {
    // It has ended.
  }
}
