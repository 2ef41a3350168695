import { execFile } from "node:child_process";
import { randomBytes } from "node:crypto";
import { closeSync, constants, openSync } from "node:fs";
import { chmod, mkdir, readdir, rename, rm, unlink } from "node:fs/promises";
import { Socket } from "node:net";
import path from "node:path";
import { promisify } from "node:util";
import type { Logger } from "../../core/ports/logger.ts";

/** Where a container sees its directory of pipes. */
export const PIPES_TARGET = "/run/berth-pipes";

/** The standard streams, as the last letters of their pipes' names. */
const STREAMS = ["i", "o", "e"] as const;
/** Made at once, since a program has to be started for it. */
const BATCH = 16;
const MAKE_MS = 10_000;
const STOCK = "stock";

/** The named pipes of one process. */
export interface ProcessPipes {
  /** What their names in the container begin with: `i`, `o` and `e` follow. */
  readonly inside: string;
  readonly stdin: string;
  readonly stdout: string;
  readonly stderr: string;
}

/**
 * Named pipes by which shells in containers and Berth talk past the daemon,
 * which otherwise copies every byte twice. Each container gets a directory of
 * the host's, mounted read-only: pipes in it can be opened for writing, and
 * nothing in it can be replaced. A name is as good as a key: the directory
 * cannot be listed by a user who is not root inside.
 *
 * That takes a daemon that shares its files with the service. Whether it does
 * is shown by the first pipe that works; where none does, {@link disable} is called.
 */
export class ContainerPipes {
  readonly #root: string;
  readonly #logger: Logger;
  readonly #stock: string[] = [];
  /** Containers whose directory was made here. */
  readonly #own = new Set<string>();
  /** Ends of earlier processes' pipes, read until nobody is left to write. */
  readonly #drains = new Set<Socket>();
  #prepared: Promise<void> | undefined;
  #making: Promise<void> | undefined;
  #disabled = false;

  /** @param root a directory of the service's own; made where it is missing. */
  constructor(root: string, logger: Logger) {
    this.#root = root;
    this.#logger = logger;
  }

  /** Makes a container's directory, to be mounted at {@link PIPES_TARGET}; undefined where there are to be no pipes. */
  async create(container: string): Promise<string | undefined> {
    if (this.#disabled) return undefined;
    try {
      await this.#prepare();
      const directory = this.#directory(container);
      this.#own.add(container);
      await mkdir(directory);
      await chmod(directory, 0o711);
      return directory;
    } catch (error) {
      this.disable(error);
      return undefined;
    }
  }

  /** Three pipes in a container's directory; undefined where there are none. */
  async take(container: string): Promise<ProcessPipes | undefined> {
    if (this.#disabled) return undefined;
    try {
      while (this.#stock.length === 0) await this.#refill();
      const name = this.#stock.pop() ?? "";
      if (this.#stock.length < BATCH / 2) void this.#refill().catch((error) => this.disable(error));
      const place = path.join(this.#directory(container), name);
      for (const stream of STREAMS) await rename(path.join(this.#root, STOCK, name + stream), place + stream);
      const inside = `${PIPES_TARGET}/${name}`;
      return { inside, stdin: `${place}i`, stdout: `${place}o`, stderr: `${place}e` };
    } catch (error) {
      this.#logger.debug({ container, err: error }, "a container has no pipes");
      return undefined;
    }
  }

  /** Removes a container's directory. Idempotent. */
  async remove(container: string): Promise<void> {
    this.#own.delete(container);
    await rm(this.#directory(container), { recursive: true, force: true });
  }

  /**
   * Takes over from an earlier run of the service: what is left of containers
   * that are gone goes too, and pipes of the others are read to their end, so
   * that nobody waits for ever to write to them. Returns who has a directory.
   */
  async recover(containers: ReadonlySet<string>): Promise<string[]> {
    const found: string[] = [];
    for (const name of await readdir(this.#root).catch(() => [])) {
      if (name === STOCK || this.#own.has(name)) continue;
      if (containers.has(name)) {
        await this.#drain(this.#directory(name));
        found.push(name);
      } else await rm(this.#directory(name), { recursive: true, force: true });
    }
    return found;
  }

  /** Says that the daemon does not share its files with the service, or that pipes cannot be had. */
  disable(reason: unknown): void {
    if (this.#disabled) return;
    this.#disabled = true;
    this.#logger.info({ err: reason }, "output comes through Docker's own streams, which is slower");
  }

  /** Removes what nobody uses, and lets go of the rest. */
  async close(): Promise<void> {
    this.#disabled = true;
    await this.#making?.catch(() => {});
    for (const drain of this.#drains) drain.destroy();
    // Where it could not be made there is nothing to remove.
    await rm(path.join(this.#root, STOCK), { recursive: true, force: true }).catch(() => {});
  }

  #directory(container: string): string {
    return path.join(this.#root, path.basename(container));
  }

  #prepare(): Promise<void> {
    this.#prepared ??= this.#makeStock();
    return this.#prepared;
  }

  async #makeStock(): Promise<void> {
    const stock = path.join(this.#root, STOCK);
    await rm(stock, { recursive: true, force: true });
    await mkdir(stock, { recursive: true, mode: 0o700 });
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
    const files = names.flatMap((name) => STREAMS.map((stream) => name + stream));
    await makeFifos("mkfifo", ["-m", "666", ...files], {
      cwd: path.join(this.#root, STOCK),
      timeout: MAKE_MS,
    });
    this.#stock.push(...names);
  }

  async #drain(directory: string): Promise<void> {
    for (const name of await readdir(directory).catch(() => [])) {
      const file = path.join(directory, name);
      try {
        if (name.endsWith("i")) {
          // Whoever still waits for somebody to open it meets its end.
          closeSync(openSync(file, constants.O_RDWR | constants.O_NONBLOCK));
          await unlink(file);
          continue;
        }
        const fd = openSync(file, constants.O_RDONLY | constants.O_NONBLOCK);
        const drain = new Socket({ fd, readable: true, writable: false });
        this.#drains.add(drain);
        drain.on("error", () => {}).resume();
        drain.once("close", () => {
          this.#drains.delete(drain);
          unlink(file).catch(() => {});
        });
      } catch (error) {
        this.#logger.debug({ file, err: error }, "an earlier process's pipe could not be read to its end");
      }
    }
  }
}

const makeFifos = promisify(execFile);
