import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import type { Duplex } from "node:stream";
import { childrenOf } from "./process-tree.ts";
import { HOST_ENV, hostCommand, type Identity } from "./sandbox-user.ts";
import { REPORTS_FD } from "./shell-pipes.ts";

/** How long after the end of what it has started that is collected. */
const COLLECT_MS = 1000;
/** How long the last processes may take to end when it is closed. */
const CLOSE_MS = 5000;

/** What a {@link Launcher} is made of. */
export interface LauncherOptions {
  readonly identity: Identity;
  /** Control groups that it joins, with all that it starts. */
  readonly joinFiles: readonly string[];
  readonly reports: Reports;
  /** The beginning of every command. */
  readonly command: readonly string[];
  /** How many arguments complete a command. */
  readonly width: number;
  /** So many arguments that make it a command which does nothing and ends with 0. */
  readonly nothing: readonly string[];
  /** Told of the process group of everything that it starts. */
  readonly onGroup: (group: number) => void;
}

/**
 * Starts programs of the host's as the sandboxes' user. A fork of the service
 * itself copies the page tables of all its memory, which takes milliseconds
 * in which nothing else is served. So a small program forks in its place:
 * `xargs`, which takes commands from its stdin and has any number of them run
 * at once. What is started tells of itself over a socket that it inherits.
 */
export class Launcher {
  readonly #options: LauncherOptions;
  #collectTimer: NodeJS.Timeout | undefined;
  #forker: Forker | undefined;

  constructor(options: LauncherOptions) {
    this.#options = options;
  }

  /** Runs the command with these arguments. Resolves when it has reported its start under the tag it was given. */
  async start(args: (tag: number) => readonly string[]): Promise<Started> {
    // Fails where an xargs gave up meanwhile, for which the next one stands in. What that one started all the same
    // reports under a tag that nobody waits for, and is sent away.
    const started = await this.#start(args).catch(() => this.#start(args));
    void started.code.then(() => this.collect());
    return started;
  }

  /** Says that something ends just now which it has started: only when it starts something does `xargs` see that. */
  collect(): void {
    this.#collectTimer ??= setTimeout(() => {
      this.#collectTimer = undefined;
      if (this.#forker?.serves) this.#forker.launch(this.#options.nothing);
    }, COLLECT_MS).unref();
  }

  async #start(args: (tag: number) => readonly string[]): Promise<Started> {
    const { reports, width } = this.#options;
    if (!this.#forker?.serves) this.#forker = new Forker(this.#options);
    const forker = this.#forker;
    const { tag, started, fail } = reports.expect();
    const items = args(tag);
    if (items.length !== width) throw new Error(`${width} arguments complete a command, not ${items.length}`);
    forker.launch(items, fail);
    try {
      return await started;
    } finally {
      forker.forget(fail);
    }
  }

  /** Lets go of it. What it has started should have ended. */
  async close(): Promise<void> {
    clearTimeout(this.#collectTimer);
    await this.#forker?.close();
  }
}

/** One `xargs`. It gives up when a signal has ended what it started, and then another one takes its place. */
class Forker {
  readonly #child: ChildProcess;
  readonly #waiting = new Set<(error: Error) => void>();
  #serves = true;

  constructor({ identity, joinFiles, reports, command, width, onGroup }: LauncherOptions) {
    const xargs = ["xargs", "-0", "-n", String(width), "-P", "0", ...command];
    const [program, args] = hostCommand(identity, joinFiles, xargs);
    this.#child = spawn(program, args, {
      stdio: ["pipe", "ignore", "pipe", "pipe"],
      env: HOST_ENV,
      cwd: "/",
      detached: true,
    });
    if (this.#child.pid !== undefined) onGroup(this.#child.pid);
    this.#child.once("error", (error) => this.#over(error));
    this.#child.once("exit", () => this.#over(new Error("the launcher has ended")));
    this.#child.stdin?.on("error", (error) => this.#over(error));
    this.#child.stderr?.on("data", (chunk: Buffer) => {
      if (/^xargs:/m.test(chunk.toString("latin1"))) this.#over(new Error(chunk.toString("latin1").trim()));
    });
    reports.listen(this.#child.stdio[REPORTS_FD] as Duplex);
    this.#child.unref();
    for (const stream of this.#child.stdio) (stream as { unref?(): void } | null)?.unref?.();
  }

  get serves(): boolean {
    return this.#serves;
  }

  launch(args: readonly string[], fail?: (error: Error) => void): void {
    if (fail !== undefined) this.#waiting.add(fail);
    this.#child.stdin?.write(args.map((arg) => `${arg}\0`).join(""));
  }

  forget(fail: (error: Error) => void): void {
    this.#waiting.delete(fail);
  }

  async close(): Promise<void> {
    this.#serves = false;
    const { pid } = this.#child;
    if (pid === undefined || this.#child.exitCode !== null || this.#child.signalCode !== null) return;
    this.#child.ref();
    const exited = once(this.#child, "exit");
    this.#child.stdin?.end();
    const timer = setTimeout(() => process.kill(-pid, "SIGKILL"), CLOSE_MS);
    await exited;
    clearTimeout(timer);
    this.#child.stdio[REPORTS_FD]?.destroy();
  }

  #over(error: Error): void {
    this.#serves = false;
    for (const fail of this.#waiting) fail(error);
    this.#waiting.clear();
  }
}

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
