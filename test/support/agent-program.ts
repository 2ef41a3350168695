import { type ChildProcessWithoutNullStreams, spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface, type Interface } from "node:readline";
import { fileURLToPath } from "node:url";

/** The command of the agent program in TypeScript. */
export const AGENT_COMMAND: readonly string[] = [
  process.execPath,
  fileURLToPath(new URL("../integration/clients/agent-driver.ts", import.meta.url)),
];

/** The environment of a program in TypeScript. Not the caller's, so that no proxy is used on loopback. */
export const AGENT_ENV: NodeJS.ProcessEnv = { NODE_COMPILE_CACHE: process.env.NODE_COMPILE_CACHE };

/** A message of an agent program. */
export interface Told {
  readonly step?: number;
  readonly runId: string;
  readonly sandboxId?: string;
  readonly done?: Readonly<Record<string, unknown>>;
  readonly agentState?: string;
  readonly currentStep?: number;
}

/** A program with an agent of one of the clients: test/integration/clients/agent-driver.ts or agent_driver.py. */
export class AgentProgram {
  readonly #child: ChildProcessWithoutNullStreams;
  readonly #lines: AsyncIterator<string>;
  readonly #reader: Interface;
  #stderr = "";

  constructor(command: readonly string[], env: NodeJS.ProcessEnv, setup: object) {
    const [file = "", ...args] = command;
    this.#child = spawn(file, args, { env, stdio: "pipe" });
    this.#child.stderr.on("data", (data: Buffer) => {
      this.#stderr += data;
    });
    this.#reader = createInterface({ input: this.#child.stdout });
    this.#lines = this.#reader[Symbol.asyncIterator]();
    this.tell(setup);
  }

  tell(act: object): void {
    this.#child.stdin.write(`${JSON.stringify(act)}\n`);
  }

  /** Its next message. */
  async next(): Promise<Told> {
    const { value, done } = await this.#lines.next();
    if (done) throw new Error(`the program ended: ${this.#stderr}`);
    return JSON.parse(value);
  }

  /** Makes it do something, and returns the result. */
  async do(act: object): Promise<Told> {
    this.tell(act);
    return this.done();
  }

  async done(): Promise<Told> {
    for (;;) {
      const told = await this.next();
      if (told.done) return told;
    }
  }

  async end(signal?: NodeJS.Signals): Promise<void> {
    if (signal) this.#child.kill(signal);
    else this.#child.stdin.end();
    if (this.#child.exitCode === null && this.#child.signalCode === null) await once(this.#child, "exit");
    this.#reader.close();
  }
}
