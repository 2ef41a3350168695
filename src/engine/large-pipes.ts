import { pipeCapacitySetter, type SetCapacity } from "../base/pipe-capacity.ts";

/** One end of a pipe. */
interface PipeEnd {
  /** Its descriptor. It may belong to something else once the end is destroyed. */
  readonly fd: number;
  readonly destroyed: boolean;
}

/** A pipe that has carried this much becomes large. That takes as long as copying some 200 KiB. */
const BUSY_BYTES = 512 * 1024;
/** Shorter pieces do not count: a pipe with room for several of them makes nobody wait. */
const LONG_PIECE_BYTES = 16 * 1024;
const LARGE_BYTES = 1024 * 1024;
const NORMAL_BYTES = 64 * 1024;
/**
 * Together they hold half of what the kernel grants the pipes of one user before it makes new ones small: 64 MiB, unless
 * `/proc/sys/fs/pipe-user-pages-soft` says otherwise. Pipes that processes in containers create may count for that user.
 */
export const MAX_LARGE = 32;
/** The most of one sandbox, so that others get some too: a full pipe whose reader stopped stays large. */
export const MAX_PER_SANDBOX = 8;
/** A large pipe that has carried no long piece for this long becomes normal again. */
const IDLE_MS = 5_000;

/**
 * The pipes of stdins that hold 1 MiB instead of 64 KiB because they carry much: their two sides wait for each other
 * less often. Their number is limited.
 */
export class LargePipes {
  readonly #prepare: () => SetCapacity | undefined;
  readonly #idleMs: number;
  readonly #loads = new Set<PipeLoad>();
  #setCapacity: SetCapacity | undefined;
  #timer: NodeJS.Timeout | undefined;

  /** @param prepare called before the first pipe becomes large. If it returns undefined, all stay as they are. */
  constructor(prepare: () => SetCapacity | undefined = pipeCapacitySetter, idleMs: number = IDLE_MS) {
    this.#prepare = prepare;
    this.#idleMs = idleMs;
  }

  /** Makes a pipe large if it is not. If that is impossible, its bytes are counted from zero again. */
  add(load: PipeLoad): void {
    if (this.#loads.has(load)) return;
    if (!this.#hasRoom(load.sandbox) || load.end.destroyed || !this.#enlarge(load.end)) {
      load.takeBytes();
      return;
    }
    this.#loads.add(load);
    this.#timer ??= setInterval(() => this.#check(), this.#idleMs).unref();
  }

  /** Forgets a pipe whose end is closed. */
  delete(load: PipeLoad): void {
    this.#loads.delete(load);
    if (this.#loads.size > 0) return;
    clearInterval(this.#timer);
    this.#timer = undefined;
  }

  #hasRoom(sandbox: string): boolean {
    if (this.#loads.size >= MAX_LARGE) return false;
    let ofSandbox = 0;
    for (const load of this.#loads) if (load.sandbox === sandbox) ofSandbox++;
    return ofSandbox < MAX_PER_SANDBOX;
  }

  #enlarge({ fd }: PipeEnd): boolean {
    this.#setCapacity ??= this.#prepare() ?? (() => false);
    return this.#setCapacity(fd, LARGE_BYTES);
  }

  #check(): void {
    for (const load of this.#loads) {
      if (load.takeBytes() > 0 || load.end.destroyed) continue;
      // The kernel refuses it for a pipe with more in it.
      if (this.#setCapacity?.(load.end.fd, NORMAL_BYTES)) this.delete(load);
    }
  }
}

/** The pipes of this process count for one user. */
const ofThisProcess = new LargePipes();

/** What a pipe carries. It becomes large when that is much. */
export class PipeLoad {
  readonly end: PipeEnd;
  readonly sandbox: string;
  readonly #largePipes: LargePipes;
  #bytes = 0;

  constructor(end: PipeEnd, sandbox: string, largePipes: LargePipes = ofThisProcess) {
    this.end = end;
    this.sandbox = sandbox;
    this.#largePipes = largePipes;
  }

  /** Notes that the pipe carries a piece of so many bytes. */
  add(bytes: number): void {
    if (bytes < LONG_PIECE_BYTES) return;
    this.#bytes += bytes;
    if (this.#bytes >= BUSY_BYTES) this.#largePipes.add(this);
  }

  /** Must be called when its end is closed. */
  close(): void {
    this.#largePipes.delete(this);
  }

  /** Returns the bytes of long pieces since the last call. */
  takeBytes(): number {
    const bytes = this.#bytes;
    this.#bytes = 0;
    return bytes;
  }
}
