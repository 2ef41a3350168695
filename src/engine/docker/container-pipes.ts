import { execFile } from "node:child_process";
import { randomBytes } from "node:crypto";
import { existsSync, statSync } from "node:fs";
import {
  chmod,
  chown,
  copyFile,
  mkdir,
  readdir,
  rename,
  rm,
  rmdir,
  unlink,
  writeFile,
} from "node:fs/promises";
import path from "node:path";
import { promisify } from "node:util";
import { rest } from "../../base/async.ts";
import { throwIfAborted } from "../../base/errors.ts";
import type { Logger } from "../../base/logger.ts";
import { makeDirectories } from "../../base/make-directories.ts";
import { undumpableLibrary } from "../undumpable.ts";
import { userEntry } from "../user-entry.ts";
import { type Attempt, CircuitBreaker } from "./circuit-breaker.ts";
import { type ClaimedPipes, LeftPipes } from "./left-pipes.ts";
import { PIPES_TARGET, type PipeNames, type PipePaths, pathsIn } from "./named-pipes.ts";
import { Zygote } from "./zygote.ts";
import { ZYGOTE_FILES, ZYGOTE_SCRIPT } from "./zygote-script.ts";

/** The library that shells preload to be undumpable. It is in the directory of the pipes. */
const UNDUMPABLE = "undumpable.so";
/** Where a container with pipes sees that library. */
export const UNDUMPABLE_TARGET = `${PIPES_TARGET}/${UNDUMPABLE}`;

/** The last letters of the pipes' names: stdin, stdout, stderr. */
const STREAMS = ["i", "o", "e"] as const;
/** Pipes per `mkfifo`. */
const BATCH = 48;
const MAKE_MS = 10_000;
const STOCK = "stock";
/** Pauses between attempts to remove a directory. */
const FIRST_PAUSE_MS = 1_000;
const MAX_PAUSE_MS = 30_000;

/** The named pipes of one process. */
export interface ProcessPipes extends PipePaths {
  /** Paths inside the container. */
  readonly inside: PipePaths;
}

/** Takes the outcome of one use of pipes by a shell. Only the first call counts. */
export interface PipesAttempt {
  worked(): void;
  failed(reason: unknown): void;
  /** The outcome says nothing about the pipes. */
  cancel(): void;
}

/** A container's directory of pipes. */
interface PipesDirectory {
  /** Path on the host. */
  readonly path: string;
  /**
   * Accepts requests already, and reads them when the container has started; undefined if the container has no zygote.
   */
  readonly zygote: Zygote | undefined;
  /** Call this when the container has the directory, or failed for another reason. */
  settled(): void;
  /** Call this if the daemon cannot mount the directory. */
  refused(reason: unknown): void;
}

/**
 * The directory for named pipes to containers. A container sees in `/proc/self/mountinfo` the path of a mounted
 * directory within its file system. So for root it is in `run`, if that is a separate file system, as on every host:
 * then the path reveals nothing about the data directory. Otherwise it is in the data directory. It stays the same for
 * every run of the service until the machine restarts, after which no container has pipes any more.
 * @param run a directory that is emptied when the machine stops. Default `/run`.
 */
export function pipesDirectory(dataDir: string, instance: string, run = "/run"): string {
  const there = statSync(run, { throwIfNoEntry: false });
  const isOwn = there !== undefined && there.dev !== statSync(path.dirname(run)).dev;
  return process.getuid?.() === 0 && isOwn
    ? path.join(run, "berth/pipes", path.basename(instance))
    : path.join(dataDir, "pipes");
}

/**
 * Named pipes between shells in containers and Berth. They bypass the daemon, which copies every byte twice. Each
 * container gets a directory of the host, mounted read-only: pipes in it can be opened for writing, but nothing in it
 * can be replaced. A process's pipes belong to the user it runs as, and no other user can open them. If the service
 * cannot change their owner, other users do not know their names (docs/docker-pipes.md).
 *
 * The daemon must share the service's file system. The first pipe that works proves that it does. Until then, a failure
 * disables pipes for all containers for a while; afterwards only for the container whose pipes failed.
 */
export class ContainerPipes {
  readonly #root: string;
  readonly #logger: Logger;
  /** Names of pipes in {@link STOCK}. */
  readonly #stock: string[] = [];
  /** Containers whose directory this run of the service created. */
  readonly #own = new Set<string>();
  readonly #left: LeftPipes;
  /** Guards the creation of directories and, until a pipe has worked, of pipes. */
  readonly #sharing = new CircuitBreaker();
  #proven = false;
  readonly #closing = new AbortController();
  #prepared: Promise<void> | undefined;
  /** Files in {@link STOCK} of which every container's directory gets a copy. */
  #files: readonly string[] = [];
  #making: Promise<void> | undefined;

  /** @param root a directory for this service only; created if missing. */
  constructor(root: string, logger: Logger) {
    this.#root = root;
    this.#logger = logger;
    this.#left = new LeftPipes(logger);
  }

  /** Whether pipes are disabled for all shells at present. */
  get failing(): boolean {
    return !this.#proven && this.#sharing.open;
  }

  /** Creates a container's directory, to mount at {@link PIPES_TARGET}; undefined if pipes are disabled. */
  async create(container: string): Promise<PipesDirectory | undefined> {
    const attempt = this.#closing.signal.aborted ? undefined : this.#sharing.begin();
    if (attempt === undefined) return undefined;
    try {
      await this.#prepare();
      const directory = this.#directory(container);
      this.#own.add(container);
      await mkdir(directory);
      await chmod(directory, 0o711);
      // Not a link: root in a container can lease a file, which makes all who open it wait, and see them open it.
      for (const file of this.#files) await copyFile(this.#inStock(file), path.join(directory, file));
      const { requests, answers } = ZYGOTE_FILES;
      const hasZygote = this.#files.includes(ZYGOTE_FILES.entry);
      if (hasZygote) await this.#move([requests, answers], directory);
      return {
        path: directory,
        zygote: hasZygote ? Zygote.prepare(directory) : undefined,
        settled: () => (this.#proven ? attempt.succeed() : attempt.cancel()),
        refused: (reason) => this.#failed(attempt, reason),
      };
    } catch (error) {
      this.#failed(attempt, error);
      if (existsSync(this.#directory(container))) await this.remove(container);
      return undefined;
    }
  }

  /** The zygote of a container of an earlier run of the service; undefined if there is none. */
  zygote(container: string): Zygote | undefined {
    return existsSync(path.join(this.#directory(container), ZYGOTE_FILES.requests))
      ? Zygote.find(this.#directory(container))
      : undefined;
  }

  /** Starts an attempt to use pipes; undefined if they are disabled at present. */
  begin(): PipesAttempt | undefined {
    const attempt = this.#proven ? undefined : this.#sharing.begin();
    if (!this.#proven && attempt === undefined) return undefined;
    return {
      worked: () => {
        this.#proven = true;
        attempt?.succeed();
      },
      failed: (reason) => {
        if (attempt !== undefined && !this.#proven) this.#failed(attempt, reason);
      },
      cancel: () => attempt?.cancel(),
    };
  }

  /**
   * Puts three pipes for a process of one user into a container's directory. Rejects if that fails.
   * @param that user's uid on the host.
   */
  async take(container: string, uid: number): Promise<ProcessPipes> {
    throwIfAborted(this.#closing.signal);
    const directory = this.#directory(container);
    const [stdin, stdout, stderr] = STREAMS;
    const nameOf = (stream: string): string => randomBytes(12).toString("hex") + stream;
    const names: PipeNames = [nameOf(stdin), nameOf(stdout), nameOf(stderr)];
    await this.#move(names, directory, uid);
    return { ...pathsIn(directory, names), inside: pathsIn(PIPES_TARGET, names) };
  }

  /** Moves pipes from the stock to a directory, under new names. @param uid their new owner. Default: the service. */
  async #move(names: readonly string[], directory: string, uid = process.getuid?.() ?? 0): Promise<void> {
    while (this.#stock.length < names.length) await this.#refill();
    const pipes = this.#stock.splice(-names.length).map((pipe) => this.#inStock(pipe));
    // The next caller that needs pipes gets the error of a failed refill.
    if (this.#stock.length < BATCH / 2) void this.#refill().catch(() => {});
    try {
      await Promise.all(
        pipes.map(async (pipe, place) => {
          await give(pipe, uid);
          await rename(pipe, path.join(directory, names[place] ?? ""));
        }),
      );
    } catch (error) {
      for (const pipe of pipes) unlink(pipe).catch(() => {});
      throw error;
    }
  }

  #inStock(name: string): string {
    return path.join(this.#root, STOCK, name);
  }

  /**
   * Removes a container's directory. Returns after the first attempt, and keeps retrying if that failed. No pipes must
   * be taken there afterwards. Idempotent.
   */
  async remove(container: string): Promise<void> {
    this.#own.delete(container);
    if (!(await this.#tryRemove(container))) void this.#keepRemoving(container);
  }

  /**
   * Recovers the directories of an earlier run of the service: removes those that no container mounts, and keeps the
   * pipes of the others for {@link claim}.
   * @param mounted the containers, by each directory of the host that they mount.
   * @returns the containers that have a directory, by its name.
   */
  async recover(mounted: ReadonlyMap<string, string>): Promise<ReadonlyMap<string, string>> {
    const found = new Map<string, string>();
    for (const name of await readdir(this.#root).catch(() => [])) {
      if (name === STOCK || this.#own.has(name)) continue;
      const container = mounted.get(this.#directory(name));
      if (container !== undefined) {
        await this.#left.add(this.#directory(name));
        found.set(name, container);
      } else await this.remove(name);
    }
    return found;
  }

  /**
   * The pipes of a process of an earlier run of the service, with their unread output; undefined if they no longer
   * exist.
   */
  claim(container: string, names: PipeNames): ClaimedPipes | undefined {
    return this.#left.claim(pathsIn(this.#directory(container), names));
  }

  /** Drains unclaimed pipes so that no writer blocks for ever. */
  drainUnclaimed(): void {
    this.#left.drain();
  }

  /** Removes unused files, and detaches from the rest. */
  async close(): Promise<void> {
    this.#closing.abort();
    await this.#making?.catch(() => {});
    this.#left.close();
    // There may be no stock.
    await rm(path.join(this.#root, STOCK), { recursive: true, force: true }).catch(() => {});
    // This fails while containers have pipes in it.
    await rmdir(this.#root).catch(() => {});
  }

  #failed(attempt: Attempt, reason: unknown): void {
    const retryMs = attempt.fail();
    if (retryMs === undefined) return;
    this.#logger.warn(
      { err: reason, retryMs },
      "new sandboxes have no pipes: their output comes through Docker's own streams, which is slower",
    );
  }

  async #tryRemove(container: string): Promise<boolean> {
    try {
      // A pipe that was being taken may still arrive.
      const inUse = { maxRetries: 5, retryDelay: 20 };
      await rm(this.#directory(container), { recursive: true, force: true, ...inUse });
      return true;
    } catch (error) {
      this.#logger.warn({ container, err: error }, "could not remove a container's pipes; retrying");
      return false;
    }
  }

  async #keepRemoving(container: string): Promise<void> {
    const { signal } = this.#closing;
    for (let pauseMs = FIRST_PAUSE_MS; ; pauseMs = Math.min(pauseMs * 2, MAX_PAUSE_MS)) {
      await rest(pauseMs, signal);
      if (signal.aborted || (await this.#tryRemove(container))) return;
    }
  }

  #directory(container: string): string {
    return path.join(this.#root, path.basename(container));
  }

  #prepare(): Promise<void> {
    this.#prepared ??= this.#makeStock().catch((error: unknown) => {
      this.#prepared = undefined;
      throw error;
    });
    return this.#prepared;
  }

  async #makeStock(): Promise<void> {
    const stock = path.join(this.#root, STOCK);
    await rm(stock, { recursive: true, force: true });
    makeDirectories(stock, 0o700);
    // Every user of a container must be able to read the library, regardless of the service's umask. Only root starts
    // the executable.
    const files = [
      { name: UNDUMPABLE, content: undumpableLibrary(), mode: 0o644 },
      // Anyone who can write requests is root in the container, so only root may own these files.
      { name: ZYGOTE_FILES.entry, content: process.getuid?.() === 0 ? userEntry() : undefined, mode: 0o700 },
      { name: ZYGOTE_FILES.script, content: ZYGOTE_SCRIPT, mode: 0o600 },
    ];
    const written: string[] = [];
    for (const { name, content, mode } of files) {
      if (content === undefined) continue;
      await writeFile(this.#inStock(name), content);
      await chmod(this.#inStock(name), mode);
      written.push(name);
    }
    this.#files = written;
  }

  #refill(): Promise<void> {
    this.#making ??= this.#make().finally(() => {
      this.#making = undefined;
    });
    return this.#making;
  }

  async #make(): Promise<void> {
    await this.#prepare();
    const names = Array.from({ length: BATCH }, () => randomBytes(12).toString("hex"));
    await makeFifos("mkfifo", ["-m", "600", ...names], {
      cwd: path.join(this.#root, STOCK),
      timeout: MAKE_MS,
    });
    this.#stock.push(...names);
  }
}

const makeFifos = promisify(execFile);

/** Makes a user the owner of a pipe with mode 0600. */
async function give(pipe: string, uid: number): Promise<void> {
  if (uid === process.getuid?.()) return;
  try {
    await chown(pipe, uid, -1);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code !== "EPERM" && code !== "EINVAL") throw error;
    // The service cannot change the owner. Root can open the pipe anyway; others need its name, which only they know.
    if (uid !== 0) await chmod(pipe, 0o666);
  }
}
