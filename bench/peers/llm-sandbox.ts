import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { type Containers, LIMITS } from "./containers.ts";
import { Counter, type Peer, type PeerContext, type PeerSandbox } from "./peer.ts";
import type { PythonPeers } from "./python.ts";

const DRIVER = fileURLToPath(new URL("llm_sandbox_driver.py", import.meta.url));

/** The driver's answer. Which fields it has depends on the operation. */
interface Answer {
  readonly id: number;
  readonly error?: string;
  readonly container: string;
  readonly stdout: string;
  readonly stderr: string;
  readonly exitCode: number;
  readonly bytes: number;
}

/** llm-sandbox, a library on top of docker exec, in its own Python process. */
export function llmSandbox({ image }: PeerContext, containers: Containers, { python }: PythonPeers): Peer {
  const driver = new Driver(python);
  return {
    name: "llm-sandbox",
    pids: [driver.pid],
    create: async () => {
      const { container } = await driver.ask("create", { image, labels: containers.labels, ...LIMITS });
      return sandboxOf(driver, container);
    },
    close: () => driver.close(),
  };
}

function sandboxOf(driver: Driver, container: string): PeerSandbox {
  return {
    containerId: async () => container,
    run: async (line, { timeoutMs } = {}) => {
      const timeout = timeoutMs === undefined ? {} : { timeoutSeconds: timeoutMs / 1000 };
      const { stdout, stderr, exitCode } = await driver.ask("run", { container, line, ...timeout });
      return { stdout: Buffer.from(stdout, "base64"), stderr: Buffer.from(stderr, "base64"), exitCode };
    },
    upload: async (path, bytes) => void (await driver.ask("upload", { container, path, bytes })),
    download: async (path, bytes) => {
      const counter = new Counter();
      counter.take({ length: (await driver.ask("download", { container, path })).bytes } as Uint8Array);
      counter.expect(bytes);
    },
    remove: async () => void (await driver.ask("remove", { container })),
  };
}

/** The Python process, which takes requests as lines of JSON. */
class Driver {
  readonly #process: ChildProcess;
  readonly #asked = new Map<number, { resolve(answer: Answer): void; reject(error: Error): void }>();
  #lastId = 0;

  constructor(python: string) {
    const child = spawn(python, ["-B", DRIVER], { stdio: ["pipe", "pipe", "inherit"] });
    this.#process = child;
    createInterface({ input: child.stdout }).on("line", (line) => {
      const answer = JSON.parse(line) as Answer;
      const asked = this.#asked.get(answer.id);
      this.#asked.delete(answer.id);
      if (answer.error === undefined) asked?.resolve(answer);
      else asked?.reject(new Error(answer.error));
    });
    const onEnd = (): void => {
      for (const { reject } of this.#asked.values()) reject(new Error("the driver of llm-sandbox has ended"));
      this.#asked.clear();
    };
    child.once("error", onEnd);
    child.once("exit", onEnd);
  }

  get pid(): number {
    return this.#process.pid ?? 0;
  }

  ask(act: string, request: object): Promise<Answer> {
    const id = ++this.#lastId;
    return new Promise((resolve, reject) => {
      this.#asked.set(id, { resolve, reject });
      this.#process.stdin?.write(`${JSON.stringify({ id, act, ...request })}\n`);
    });
  }

  async close(): Promise<void> {
    if (this.#process.exitCode !== null || this.#process.signalCode !== null) return;
    const exited = once(this.#process, "exit");
    this.#process.stdin?.end();
    this.#process.kill("SIGTERM");
    await exited;
  }
}
