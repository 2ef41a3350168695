import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { Client } from "./client.ts";
import { type TestSettings, testSettings } from "./settings.ts";

/** How a {@link ChildApp} ended. */
export interface ChildEnd {
  readonly exitCode: number | null;
  /** Ids of sandboxes that it left. */
  readonly left: readonly string[];
  readonly tookMs: number;
}

/** A service in a process of its own, with a client. */
export class ChildApp {
  readonly client: Client;
  readonly instance: string;
  readonly #process: ChildProcess;

  private constructor(process: ChildProcess, instance: string, client: Client) {
    this.#process = process;
    this.instance = instance;
    this.client = client;
  }

  static async start(changes: TestSettings = {}): Promise<ChildApp> {
    const settings = testSettings(changes);
    const script = new URL("serve.ts", import.meta.url).pathname;
    const child = fork(script, [JSON.stringify(settings)], { execArgv: [] });
    const started = once(child, "message").then(([message]) => message as { address: string });
    const died = once(child, "exit").then(([code]) => Promise.reject(new Error(`it exited with ${code}`)));
    died.catch(() => {});
    const { address } = await Promise.race([started, died]);
    return new ChildApp(child, settings.instance, new Client(address));
  }

  /** Resident memory of the process, in bytes. */
  async memoryBytes(): Promise<number> {
    const status = await readFile(`/proc/${this.#process.pid}/status`, "utf8");
    const found = /^VmRSS:\s+(\d+) kB$/m.exec(status);
    if (found === null) throw new Error("the service does not run any more");
    return Number(found[1]) * 1024;
  }

  /** Watches the memory; the returned function stops that and tells the most there was. */
  watchMemory(everyMs = 20): () => Promise<number> {
    let most = 0;
    let over = false;
    const look = async (): Promise<void> => {
      while (!over) {
        most = Math.max(most, await this.memoryBytes());
        await new Promise((resolve) => setTimeout(resolve, everyMs));
      }
    };
    const looking = look();
    // A failure is told by whoever stops the watch.
    looking.catch(() => {});
    return async () => {
      over = true;
      await looking;
      return most;
    };
  }

  /** Asks it to end, as an operator does, and waits until it has. */
  async terminate(): Promise<ChildEnd> {
    const startedAt = performance.now();
    let left: readonly string[] = [];
    this.#process.on("message", (message) => {
      left = (message as { left: readonly string[] }).left;
    });
    const exited = once(this.#process, "exit");
    this.#process.kill("SIGTERM");
    const [exitCode] = await exited;
    this.client.close();
    return { exitCode, left, tookMs: performance.now() - startedAt };
  }

  /** Ends it at once, where it still runs. For the clean-up of a test that failed. */
  kill(): void {
    this.client.close();
    if (this.#process.exitCode === null) this.#process.kill("SIGKILL");
  }
}
