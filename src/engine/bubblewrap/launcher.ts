import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import type { Duplex } from "node:stream";
import { untilAborted } from "../../base/async.ts";
import { childrenOf, startTimeOf } from "../outside/host-process.ts";
import type { PipeSocket } from "../pipe-socket.ts";
import { HOST_ENV, hostCommand, type Identity } from "./sandbox-user.ts";
import { REPORTS_FD, readerOf, writerOf } from "./shell-pipes.ts";

/** How long after its end a process is reaped. */
const COLLECT_MS = 1000;
/** How long a close waits for the last processes to end. */
const CLOSE_MS = 5000;

interface LauncherOptions {
  readonly identity: Identity;
  /** Files of the control groups that the launcher and everything it starts join. */
  readonly joinFiles: readonly string[];
  readonly reports: Reports;
  /** The beginning of every command. */
  readonly command: readonly string[];
  /** The number of further arguments of each command. */
  readonly width: number;
  /** Further arguments that make a command do nothing and exit with 0. */
  readonly nothing: readonly string[];
  /** Called with the process group that contains everything it starts. */
  readonly onGroup: (group: number) => void;
}

/**
 * Starts programs on the host as the sandboxes' user. A fork of the service itself copies the page tables of all its
 * memory, which blocks it for milliseconds. So a small program forks instead: `xargs`, which reads commands from its
 * stdin and runs any number of them at once. They report over an inherited socket.
 */
export class Launcher {
  readonly #options: LauncherOptions;
  #collectTimer: NodeJS.Timeout | undefined;
  #forker: Forker | undefined;

  constructor(options: LauncherOptions) {
    this.#options = options;
  }

  /**
   * Runs the command with these arguments. Resolves when it has reported its start under its tag.
   * @param signal ends the wait for that, which a command that fails before never reports. One that reports it later is
   *   ended.
   */
  async start(args: (tag: number) => readonly string[], signal?: AbortSignal): Promise<Started> {
    // If the xargs has given up meanwhile, this fails and the next xargs takes over. If the first one did start
    // something, it reports under a tag that is no longer expected, and is ended.
    const started = await this.#start(args, signal).catch((error: unknown) => {
      if (signal?.aborted) throw error;
      return this.#start(args, signal);
    });
    void started.code.then(() => this.collect());
    return started;
  }

  /** Soon reaps what has ended: `xargs` does that only when it starts something. */
  collect(): void {
    this.#collectTimer ??= setTimeout(() => {
      this.#collectTimer = undefined;
      if (this.#forker?.serves) this.#forker.launch(this.#options.nothing);
    }, COLLECT_MS).unref();
  }

  async #start(args: (tag: number) => readonly string[], signal: AbortSignal | undefined): Promise<Started> {
    const { reports, width } = this.#options;
    if (!this.#forker?.serves) this.#forker = new Forker(this.#options);
    const forker = this.#forker;
    const { tag, started, fail } = reports.expect();
    const items = args(tag);
    if (items.length !== width) throw new Error(`${width} arguments complete a command, not ${items.length}`);
    forker.launch(items, fail);
    try {
      return await untilAborted(started, signal);
    } catch (error) {
      fail(error as Error);
      throw error;
    } finally {
      forker.forget(fail);
    }
  }

  /** Ends the launcher. Everything it has started should have ended before. */
  async close(): Promise<void> {
    clearTimeout(this.#collectTimer);
    await this.#forker?.close();
  }
}

/** One `xargs`. It gives up when a signal kills a program that it started; then another one replaces it. */
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
    this.#child.once("error", (error) => this.#over(error));
    // It has no streams then.
    if (this.#child.pid === undefined) return;
    onGroup(this.#child.pid);
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

/** By then a shell that has reported its start has started its child. */
const CHILD_MS = 1000;

/** A shell on the host that has reported its start. */
export interface Started {
  readonly pid: number;
  /** Pid of its child, if it reported one. */
  readonly child: number | undefined;
  /** Resolves with the exit code that it reports, if it reports one. */
  readonly code: Promise<number>;
}

interface Entry {
  readonly started: PromiseWithResolvers<Started>;
  readonly code: PromiseWithResolvers<number>;
}

/**
 * Receives the reports of shells on the host. Each is a line: `s TAG PID [CHILD]` for the start of a shell, `e TAG
 * CODE` for the end of its child. Nothing inside a sandbox has access to the socket.
 */
export class Reports {
  readonly #entries = new Map<number, Entry>();
  #lastTag = 0;

  /** A new tag for a shell, and the reports under it. */
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

  /** How many shells still have to report something. */
  get expected(): number {
    return this.#entries.size;
  }

  /** Takes reports from a socket until it ends. */
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
      if (entry === undefined) endSoon({ pid: first, child: second });
      else entry.started.resolve({ pid: first, child: second, code: entry.code.promise });
      // A shell that reports a child does not report its end.
      if (second !== undefined) this.#entries.delete(Number(tag));
    }
    if (kind !== "e") return;
    entry?.code.resolve(first);
    this.#entries.delete(Number(tag));
  }
}

/** Ends of a shell's pipes, by its descriptors. */
interface PipeOpeners {
  readonly reader: (fd: number) => PipeSocket;
  readonly writer: (fd: number) => PipeSocket;
}

/** Opens the other ends of a shell's pipes. If one cannot be opened, closes those before it, and ends the shell. */
export function openPipes<T>(shell: Started, open: (openers: PipeOpeners) => T): T {
  const opened: PipeSocket[] = [];
  const keep = (socket: PipeSocket): PipeSocket => {
    opened.push(socket);
    return socket;
  };
  try {
    return open({
      reader: (fd) => keep(readerOf(shell.pid, fd)),
      writer: (fd) => keep(writerOf(shell.pid, fd)),
    });
  } catch (error) {
    for (const socket of opened) socket.destroy();
    endSoon(shell);
    throw error;
  }
}

/** Ends a shell that nobody waits for: a keeper by SIGTERM, which it traps, an attendant by killing its child. */
export function endSoon({ pid, child }: Pick<Started, "pid" | "child">): void {
  const startTime = startTimeOf(pid);
  const end = (): void => {
    if (startTime === undefined || startTimeOf(pid) !== startTime) return;
    try {
      if (child !== undefined) process.kill(pid, "SIGTERM");
      else for (const own of childrenOf(pid)) process.kill(own, "SIGKILL");
    } catch {
      // The process has ended.
    }
  };
  setTimeout(end, CHILD_MS).unref();
}
