import { readFileSync } from "node:fs";
import { chmod, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { eventually } from "./eventually.ts";
import { MAIN } from "./program.ts";
import { TmuxTerminal } from "./tmux.ts";

/** A shell in a terminal on this machine, as a person has it, with `berth` in its PATH. */
export class LocalShell {
  readonly terminal: TmuxTerminal;
  readonly #dir: string;

  private constructor(terminal: TmuxTerminal, dir: string) {
    this.terminal = terminal;
    this.#dir = dir;
  }

  /**
   * @param address of the service for `berth`
   * @param entry what to run instead of the program's sources
   */
  static async start(address: string, entry: readonly string[] = [MAIN]): Promise<LocalShell> {
    const dir = await mkdtemp(path.join(tmpdir(), "berth-shell-"));
    const program = path.join(dir, "berth");
    await writeFile(
      program,
      `#!/bin/sh\nexec ${[process.execPath, ...entry].map((word) => `'${word}'`).join(" ")} "$@"\n`,
    );
    await chmod(program, 0o755);
    const env = { BERTH_ADDRESS: address, PATH: `${dir}:${process.env.PATH}` };
    const terminal = await TmuxTerminal.start({ command: ["env", "PS1=local$ ", "sh"], env });
    const shell = new LocalShell(terminal, dir);
    await shell.prompts();
    // Some of these tests would leave a core dump.
    await terminal.enter("ulimit -c 0; clear; echo ready");
    await terminal.shows(/^ready\nlocal\$$/);
    return shell;
  }

  /** Waits for its prompt. */
  async prompts(): Promise<void> {
    await this.terminal.shows(/local\$$/);
  }

  /** All settings of its terminal, as `stty -a` prints them. */
  async settings(): Promise<string> {
    const file = path.join(this.#dir, "settings");
    await this.terminal.enter(`clear; stty -a > ${file}; echo written`);
    await this.terminal.shows(/^written\nlocal\$$/m);
    return readFileSync(file, "utf8");
  }

  /** Exit code of the last command. */
  async exitCode(): Promise<number> {
    await this.prompts();
    await this.terminal.enter("echo code=$?");
    const screen = await this.terminal.shows(/^code=\d+\nlocal\$$/m);
    return Number(/.*^code=(\d+)$/ms.exec(screen)?.[1]);
  }

  /** Pid of its foreground process. */
  async foregroundPid(): Promise<number> {
    const pid = await this.terminal.variable("pane_pid");
    const children = readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8").trim().split(" ");
    if (children.length !== 1 || !children[0]) throw new Error(`the shell runs ${children.length} programs`);
    return Number(children[0]);
  }

  /** Brings a stopped program to the foreground, and waits until it has the terminal and runs. */
  async foreground(): Promise<void> {
    await this.terminal.enter("fg");
    await eventually(async () => {
      const [state, , group, , , foreground] = statOf(await this.foregroundPid());
      return state !== "T" && group === foreground;
    });
  }

  async dispose(): Promise<void> {
    await this.terminal.dispose();
    await rm(this.#dir, { recursive: true, force: true });
  }
}

/** The fields of `/proc/PID/stat`, from the state on. */
function statOf(pid: number): string[] {
  const text = readFileSync(`/proc/${pid}/stat`, "latin1");
  return text.slice(text.lastIndexOf(")") + 2).split(" ");
}
