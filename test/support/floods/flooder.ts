import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import os from "node:os";
import { clientWith } from "../tokens.ts";
import { FLOODS, type FloodName } from "./floods.ts";

/** How many connections it uses. Another test floods with connections. */
const CONNECTIONS = 4;

/** The task of a {@link Flooder}. */
interface Task {
  readonly name: FloodName;
  readonly address: string;
  readonly token: string;
  readonly sandboxId: string;
}

/**
 * A flooding client of a tenant, in its own process. It has the lowest priority, because real floods come from other
 * machines.
 */
export class Flooder implements AsyncDisposable {
  readonly #child: ChildProcess;
  #count = 0;

  private constructor(child: ChildProcess) {
    this.#child = child;
    child.on("message", (count: number) => {
      this.#count = count;
    });
  }

  /** Resolves when the first action is done. */
  static async start(task: Task): Promise<Flooder> {
    const child = fork(new URL(import.meta.url), { stdio: ["ignore", "inherit", "inherit", "ipc"] });
    os.setPriority(child.pid ?? 0, os.constants.priority.PRIORITY_LOW);
    const flooder = new Flooder(child);
    child.send(task);
    await once(child, "message");
    return flooder;
  }

  /** How many actions are done. */
  get count(): number {
    return this.#count;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const gone = once(this.#child, "exit");
    this.#child.kill("SIGKILL");
    await gone;
  }
}

if (process.send !== undefined && process.argv[1] === new URL(import.meta.url).pathname) {
  process.once("message", ({ name, address, token, sandboxId }: Task) => {
    const { width, again } = FLOODS[name];
    let count = 0;
    const clients = Array.from({ length: CONNECTIONS }, () => clientWith(address, token));
    for (let one = 0; one < width; one++) void repeat(clients[one % CONNECTIONS]);

    async function repeat(client = clientWith(address, token)): Promise<void> {
      for (;;) {
        await again(client, sandboxId);
        process.send?.(++count);
      }
    }
  });
}
