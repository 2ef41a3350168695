import { setTimeout as sleep } from "node:timers/promises";
import { BenchService } from "../bench/service.ts";
import { ProcessService } from "../gen/ts/berth/v1/process_pb.js";
import { LARGE_BYTES, LARGE_FILE, type Task } from "./cells.ts";

const IMAGE = "berth/base:latest";

/** How long a process may outlive its call. */
const END_MS = 30_000;

/** A service of its own process, with one sandbox that all clients use. */
export class InteropService implements AsyncDisposable {
  readonly #service: BenchService;
  readonly sandboxId: string;
  /** Of {@link LARGE_FILE}. */
  readonly largeSha256: string;

  private constructor(service: BenchService, sandboxId: string, largeSha256: string) {
    this.#service = service;
    this.sandboxId = sandboxId;
    this.largeSha256 = largeSha256;
  }

  /** `origin` is that of the page which calls from a browser. */
  static async start(origin: string): Promise<InteropService> {
    const service = await BenchService.start(IMAGE, ["--cors-origin", origin]);
    try {
      const sandboxId = await service.create();
      const make = `head -c ${LARGE_BYTES} /dev/urandom > ${LARGE_FILE} && sha256sum < ${LARGE_FILE}`;
      const [largeSha256 = ""] = (await shell(service, sandboxId, make)).split(" ");
      return new InteropService(service, sandboxId, largeSha256);
    } catch (error) {
      await service.stop();
      throw error;
    }
  }

  get address(): string {
    return this.#service.address;
  }

  /** What is wrong with how the process of a call ended; undefined: it ran, and is gone. */
  async leftOf({ argument, mustEnd = "" }: Task): Promise<string | undefined> {
    const { sandboxId } = this;
    const { processes } = await this.#service.client.unary(ProcessService.method.listProcesses, {
      sandboxId,
      showEnded: true,
    });
    if (!processes.some(({ command }) => command.value === argument)) return `"${argument}" never ran`;
    // Does not find itself: its own command line has brackets.
    const pattern = `[${mustEnd[0]}]${mustEnd.slice(1)}`;
    const look = `for file in /proc/[0-9]*/cmdline; do tr '\\0' ' ' <$file; echo; done 2>/dev/null | grep -c '${pattern}'; true`;
    for (const end = performance.now() + END_MS; performance.now() < end; await sleep(50)) {
      if ((await shell(this.#service, sandboxId, look)).trim() === "0") return undefined;
    }
    return `"${mustEnd}" still runs in the sandbox`;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#service.stop();
  }
}

async function shell(service: BenchService, sandboxId: string, command: string): Promise<string> {
  const { stdout, stderr, exitStatus } = await service.client.unary(ProcessService.method.runCommand, {
    sandboxId,
    command: { case: "shell", value: command },
  });
  if (exitStatus?.exitCode !== 0) throw new Error(`"${command}" failed: ${Buffer.from(stderr).toString()}`);
  return Buffer.from(stdout).toString();
}
