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

/** A program with agents of one of the clients: test/integration/clients/agent-driver.ts or agent_driver.py. */
export class AgentHost {
  readonly #child: ChildProcessWithoutNullStreams;
  readonly #reader: Interface;
  readonly #agents: HostedAgent[] = [];
  #stderr = "";

  constructor(command: readonly string[], env: NodeJS.ProcessEnv) {
    const [file = "", ...args] = command;
    this.#child = spawn(file, args, { env, stdio: "pipe" });
    this.#child.stderr.on("data", (data: Buffer) => {
      this.#stderr += data;
    });
    this.#reader = createInterface({ input: this.#child.stdout });
    this.#reader.on("line", (line) => {
      const { agent, ...told } = JSON.parse(line);
      this.#agents[agent]?.take(told);
    });
    this.#reader.once("close", () => {
      for (const agent of this.#agents) agent.take(new Error(`the program ended: ${this.#stderr}`));
    });
  }

  /** Adds an agent. */
  begin(setup: object): HostedAgent {
    const agent = this.#agents.length;
    const hosted = new HostedAgent((act) =>
      this.#child.stdin.write(`${JSON.stringify({ agent, ...act })}\n`),
    );
    this.#agents.push(hosted);
    hosted.tell(setup);
    return hosted;
  }

  /** Waits for its end, with a signal or by itself. */
  async end(signal?: NodeJS.Signals): Promise<void> {
    if (signal) this.#child.kill(signal);
    else this.#child.stdin.end();
    if (this.#child.exitCode === null && this.#child.signalCode === null) await once(this.#child, "exit");
    this.#reader.close();
  }
}

/** An agent in an {@link AgentHost}. */
export class HostedAgent {
  /** Makes it do something. */
  readonly tell: (act: object) => void;
  readonly #messages: (Told | Error)[] = [];
  #changed = (): void => {};

  constructor(tell: (act: object) => void) {
    this.tell = tell;
  }

  /** Takes its next message, or why there is none. */
  take(message: Told | Error): void {
    this.#messages.push(message);
    this.#changed();
  }

  /** Its next message. */
  async next(): Promise<Told> {
    for (;;) {
      const message = this.#messages.shift();
      if (message instanceof Error) throw message;
      if (message) return message;
      await new Promise<void>((resolve) => {
        this.#changed = resolve;
      });
    }
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
}

/** A program with one agent. */
export class AgentProgram {
  readonly #host: AgentHost;
  readonly #agent: HostedAgent;

  constructor(command: readonly string[], env: NodeJS.ProcessEnv, setup: object) {
    this.#host = new AgentHost(command, env);
    this.#agent = this.#host.begin(setup);
  }

  tell(act: object): void {
    this.#agent.tell(act);
  }

  next(): Promise<Told> {
    return this.#agent.next();
  }

  do(act: object): Promise<Told> {
    return this.#agent.do(act);
  }

  done(): Promise<Told> {
    return this.#agent.done();
  }

  end(signal?: NodeJS.Signals): Promise<void> {
    return this.#host.end(signal);
  }
}
