import { readFileSync } from "node:fs";

/** Limits on how many ended processes may have orphaned pipes kept open. */
export interface OrphanedPipesBounds {
  readonly perSandbox: number;
  readonly inAll: number;
}

const PER_SANDBOX = 16;
const MAX_IN_ALL = 1024;
/** Share of the service's file descriptors that all of them together may use; each process uses two. */
const SHARE_OF_DESCRIPTORS = 1 / 8;
/** Pipes that close within this time are not orphaned. */
const SETTLE_MS = 1_000;

/** The part of an output stream that a slow drain needs. */
interface Drainable {
  on(event: "data", listener: () => void): unknown;
  off(event: "data", listener: () => void): unknown;
  pause(): unknown;
  resume(): unknown;
}

/** Pipes of a process whose output nobody reads any more. */
interface OrphanedPipe {
  /** Resolves when no process holds them any more. Never rejects. */
  readonly silent: Promise<void>;
  destroy(): void;
}

/** Takes over a sandbox's pipes once nobody reads them. */
export interface Leftovers {
  readonly sandbox: string;
  /** Reads a stream slowly, until the returned function is called. */
  drain(stream: Drainable): () => void;
  /** Keeps pipes open until no process holds them, or until the limit requires closing them. */
  keep(pipes: OrphanedPipe): void;
}

/**
 * Pipes of ended processes that processes they left behind still hold. They stay open so that, for example, a daemon
 * that writes to them keeps running (docs/docker-pipes.md). They use the service's file descriptors, so their number is
 * limited: beyond it, the oldest pipes of the sandbox that has the most are closed.
 */
export class OrphanedPipes {
  readonly #bounds: OrphanedPipesBounds;
  readonly #slowDrain = new SlowDrain();
  /** By sandbox, oldest first. */
  readonly #kept = new Map<string, Set<OrphanedPipe>>();
  #count = 0;

  constructor(bounds: OrphanedPipesBounds = defaultBounds()) {
    this.#bounds = bounds;
  }

  /** Number of processes whose pipes are kept. */
  get count(): number {
    return this.#count;
  }

  of(sandbox: string): Leftovers {
    return {
      sandbox,
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

const TURN_MS = 250;
/** Streams that are read in one turn; the others wait for the next turn. */
const STREAMS_A_TURN = 32;

/**
 * Slowly drains streams that nobody reads. Their writers neither die nor block, and use almost no CPU of the service,
 * however much they write. Each stream is read at about 256 KiB/s, all together at about 10 MiB/s. An idle stream takes
 * no turn.
 */
export class SlowDrain {
  /** Streams that have had their turn, in order. */
  readonly #waiting = new Set<Drainable>();
  readonly #turnMs: number;
  #timer: NodeJS.Timeout | undefined;

  /** @param turnMs time between two turns of a stream. The rates above are for the default. */
  constructor(turnMs = TURN_MS) {
    this.#turnMs = turnMs;
  }

  /** Reads a stream until the returned function is called, which leaves it paused or flowing. */
  start(stream: Drainable): () => void {
    let stopped = false;
    const onData = (): void => {
      // Another listener for the same chunk may have stopped this drain and resumed the stream.
      if (stopped) return;
      stream.pause();
      this.#waiting.add(stream);
      this.#timer ??= setInterval(() => this.#turn(), this.#turnMs).unref();
    };
    stream.on("data", onData);
    stream.resume();
    return () => {
      stopped = true;
      stream.off("data", onData);
      this.#waiting.delete(stream);
    };
  }

  #turn(): void {
    let turns = 0;
    for (const stream of this.#waiting) {
      if (turns++ === STREAMS_A_TURN) return;
      this.#waiting.delete(stream);
      stream.resume();
    }
    clearInterval(this.#timer);
    this.#timer = undefined;
  }
}
