import { readFileSync } from "node:fs";
import type { Readable } from "node:stream";
import { SlowDrain } from "./slow-drain.ts";

/** How many processes' pipes are kept that something left behind holds. */
export interface OrphanedPipesBounds {
  readonly perSandbox: number;
  readonly inAll: number;
}

const PER_SANDBOX = 16;
const MAX_IN_ALL = 1024;
/** What all of them may take of the service's descriptors. They take two each. */
const SHARE_OF_DESCRIPTORS = 1 / 8;
/** What is gone by then was not left behind. */
const SETTLE_MS = 1_000;

/** Pipes of a process that nobody listens to any more. */
export interface OrphanedPipe {
  /** Settles, never rejects, when nobody holds them any more. */
  readonly silent: Promise<void>;
  /** Lets go of them. */
  destroy(): void;
}

/** What takes over pipes once nobody listens to them. */
export interface Leftovers {
  /** Reads a stream slowly, until the returned function is called. */
  drain(stream: Readable): () => void;
  /** Keeps pipes until they are silent, or others need their place. */
  keep(pipes: OrphanedPipe): void;
}

/**
 * The pipes of processes that are over, which something that they left behind
 * still holds: a daemon that writes to them goes on (docs/docker-pipes.md). They take
 * descriptors of the service, so their number is bounded: the oldest of the
 * sandbox that has most give way.
 */
export class OrphanedPipes {
  readonly #bounds: OrphanedPipesBounds;
  readonly #slowDrain = new SlowDrain();
  /** By sandbox, the oldest first. */
  readonly #kept = new Map<string, Set<OrphanedPipe>>();
  #count = 0;

  constructor(bounds: OrphanedPipesBounds = defaultBounds()) {
    this.#bounds = bounds;
  }

  /** Processes whose pipes are kept. */
  get count(): number {
    return this.#count;
  }

  /** For the pipes of a sandbox's processes. */
  of(sandbox: string): Leftovers {
    return {
      drain: (stream) => this.#slowDrain.start(stream),
      keep: (pipes) => this.#keep(sandbox, pipes),
    };
  }

  #keep(sandbox: string, pipes: OrphanedPipe): void {
    const settled = setTimeout(() => this.#add(sandbox, pipes), SETTLE_MS).unref();
    void pipes.silent.then(() => {
      clearTimeout(settled);
      this.#remove(sandbox, pipes);
    });
  }

  #add(sandbox: string, pipes: OrphanedPipe): void {
    const kept = this.#kept.get(sandbox) ?? new Set();
    this.#kept.set(sandbox, kept.add(pipes));
    this.#count++;
    if (kept.size > this.#bounds.perSandbox) this.#drop(sandbox, kept);
    else if (this.#count > this.#bounds.inAll) this.#drop(...this.#largest(sandbox, kept));
  }

  #largest(...first: [string, Set<OrphanedPipe>]): [string, Set<OrphanedPipe>] {
    let largest = first;
    for (const entry of this.#kept) if (entry[1].size > largest[1].size) largest = entry;
    return largest;
  }

  #drop(sandbox: string, kept: Set<OrphanedPipe>): void {
    const [oldest] = kept;
    if (oldest === undefined) return;
    this.#remove(sandbox, oldest);
    oldest.destroy();
  }

  #remove(sandbox: string, pipes: OrphanedPipe): void {
    const kept = this.#kept.get(sandbox);
    if (!kept?.delete(pipes)) return;
    this.#count--;
    if (kept.size === 0) this.#kept.delete(sandbox);
  }
}

function defaultBounds(): OrphanedPipesBounds {
  const found = /^Max open files\s+(\d+)/m.exec(readFileSync("/proc/self/limits", "utf8"));
  const descriptors = found === null ? Number.POSITIVE_INFINITY : Number(found[1]);
  const inAll = Math.floor((descriptors * SHARE_OF_DESCRIPTORS) / 2);
  return { perSandbox: PER_SANDBOX, inAll: Math.min(inAll, MAX_IN_ALL) };
}
