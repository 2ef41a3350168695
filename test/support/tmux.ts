import { type ChildProcessWithoutNullStreams, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { eventually } from "./eventually.ts";

/** How long something may take to appear on a screen on a loaded machine. */
const PATIENCE_MS = 60_000;
/** The terminal reports changes. This is for those that it does not report. */
const LOOK_EVERY_MS = 250;

export interface TmuxOptions {
  /** What runs in it: a program with at least one argument. The terminal ends with it. */
  readonly command: readonly [string, string, ...string[]];
  readonly env: Readonly<Record<string, string>>;
  readonly columns?: number;
  readonly rows?: number;
}

/**
 * A terminal with a program in it: its own tmux server, driven over the control mode. It always ends with the process
 * that started it.
 */
export class TmuxTerminal {
  readonly #dir: string;
  readonly #client: ChildProcessWithoutNullStreams;
  readonly #replies: ((lines: string[] | Error) => void)[] = [];
  #onChange = Promise.withResolvers<void>();
  /** Why it has ended. Empty while it runs. */
  #ended = "";
  /** The last lines of its control mode. */
  readonly #said: string[] = [];

  private constructor(client: ChildProcessWithoutNullStreams, dir: string) {
    this.#client = client;
    this.#dir = dir;
    this.#listen();
  }

  static async start({ command, env, columns = 80, rows = 24 }: TmuxOptions): Promise<TmuxTerminal> {
    const dir = await mkdtemp(path.join(tmpdir(), "berth-tmux-"));
    const session = ["new-session", "-x", String(columns), "-y", String(rows), ...command];
    const client = spawn("tmux", ["-S", path.join(dir, "socket"), "-f", "/dev/null", "-C", ...session], {
      env: { ...process.env, ...env, TMUX: undefined },
    });
    client.stdin.on("error", () => {});
    await once(client, "spawn");
    const terminal = new TmuxTerminal(client, dir);
    // Only after the client is attached: before, tmux would crash at the first, and the session end at the second.
    await eventually(async () => (await terminal.variable("session_attached")) === "1");
    await terminal.#command("set -g window-size manual");
    await terminal.#command("set destroy-unattached on");
    await terminal.resize(columns, rows);
    return terminal;
  }

  /** Types literal text. */
  async type(text: string): Promise<void> {
    await this.#command(`send-keys -H ${[...Buffer.from(text)].map((byte) => byte.toString(16)).join(" ")}`);
  }

  /** Presses keys by name, such as `C-c` or `Enter`. */
  async press(...keys: string[]): Promise<void> {
    await this.#command(`send-keys ${keys.join(" ")}`);
  }

  /** Types a line and Enter. */
  async enter(line: string): Promise<void> {
    await this.type(`${line}\r`);
  }

  /** Pastes text like a mouse does. */
  async paste(text: string): Promise<void> {
    const file = path.join(this.#dir, "paste");
    await writeFile(file, text);
    await this.#command(`load-buffer ${file}`);
    await this.#command("paste-buffer -d");
  }

  async resize(columns: number, rows: number): Promise<void> {
    await this.#command(`resize-window -x ${columns} -y ${rows}`);
  }

  /** The lines of its screen, without trailing spaces. */
  async lines(): Promise<string[]> {
    return (await this.#command("capture-pane -p")).map((line) => line.trimEnd());
  }

  /** The text of its screen, without empty lines at the end. */
  async text(): Promise<string> {
    return (await this.lines()).join("\n").trimEnd();
  }

  /** A variable of tmux, such as `alternate_on` or `cursor_flag`. */
  async variable(name: string): Promise<string> {
    return (await this.#command(`display-message -p '#{${name}}'`)).join("");
  }

  /** Waits until the screen matches, and returns it. If it does not, fails with the screen's text. */
  async shows(wanted: RegExp | ((screen: string) => boolean)): Promise<string> {
    const end = performance.now() + PATIENCE_MS;
    for (;;) {
      const change = this.#onChange.promise;
      const screen = await this.text();
      if (typeof wanted === "function" ? wanted(screen) : wanted.test(screen)) return screen;
      if (performance.now() > end) throw new Error(`the terminal never showed ${wanted}, but:\n${screen}`);
      await Promise.race([change, sleep(LOOK_EVERY_MS)]);
    }
  }

  /** Resolves when something is drawn after this call. */
  get drawn(): Promise<void> {
    return this.#onChange.promise;
  }

  /** Ends it, and what runs in it. */
  async dispose(): Promise<void> {
    const exited = this.#client.exitCode === null ? once(this.#client, "exit") : undefined;
    // Its session ends with its last client, the server with its last session.
    this.#client.stdin.end();
    await exited;
    await rm(this.#dir, { recursive: true, force: true });
  }

  #command(line: string): Promise<string[]> {
    if (this.#ended) return Promise.reject(new Error(this.#ended));
    const { promise, resolve, reject } = Promise.withResolvers<string[]>();
    this.#replies.push((reply) => (reply instanceof Error ? reject(reply) : resolve(reply)));
    this.#client.stdin.write(`${line}\n`);
    return promise;
  }

  /** Reads replies, which arrive in the order of commands, and notifications of output. */
  #listen(): void {
    let reply: { readonly id: string; readonly lines: string[] } | undefined;
    this.#client.stderr.on("data", (chunk: Buffer) => this.#said.push(chunk.toString()));
    createInterface({ input: this.#client.stdout }).on("line", (line) => {
      this.#said.push(line);
      this.#said.splice(0, this.#said.length - 20);
      // A reply ends with the id that it started with. What is in between may look like anything.
      const [, word, id = ""] = /^%(\w+) ?(.*)$/.exec(line) ?? [];
      if (reply !== undefined && id === reply.id && (word === "end" || word === "error")) {
        const told = word === "end" ? reply.lines : new Error(`tmux: ${reply.lines.join("\n")}`);
        reply = undefined;
        // Ids of its start commands end in 0.
        if (id.endsWith(" 1")) this.#replies.shift()?.(told);
      } else if (reply !== undefined) reply.lines.push(line);
      else if (word === "begin") reply = { id, lines: [] };
      else if (word === "output") this.#changed();
    });
    this.#client.once("close", () => {
      this.#ended = `tmux has ended:\n${this.#said.join("\n")}`;
      for (const tell of this.#replies.splice(0)) tell(new Error(this.#ended));
      this.#changed();
    });
  }

  #changed(): void {
    this.#onChange.resolve();
    this.#onChange = Promise.withResolvers();
  }
}
