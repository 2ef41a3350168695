import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { createInterface } from "node:readline";
import { ProcessService } from "../gen/ts/berth/v1/process_pb.js";
import { SandboxService } from "../gen/ts/berth/v1/sandbox_pb.js";
import { launcherSettings } from "../test/support/launcher.ts";
import { BenchClient } from "./client.ts";

/** How long a service may take to stop. */
const STOP_MS = 60_000;

/** `berth serve` in its own process, with a client. */
export class BenchService {
  readonly client: BenchClient;
  /** `host:port` */
  readonly address: string;
  readonly #process: ChildProcess;
  #stopping: Promise<void> | undefined;

  private constructor(child: ChildProcess, address: string) {
    this.#process = child;
    this.address = address;
    this.client = new BenchClient(address);
  }

  /**
   * @param special `node`: options of Node. Default: none. `checkout`: the directory with the service's sources.
   *   Default: this one. `installed`: runs the built program. Default: the sources, with the launcher's settings.
   */
  static async start(
    image: string,
    options: readonly string[] = [],
    special: {
      readonly node?: readonly string[];
      readonly checkout?: string;
      readonly installed?: boolean;
    } = {},
  ): Promise<BenchService> {
    const { node = [], checkout = path.join(import.meta.dirname, ".."), installed = false } = special;
    const dataDir = mkdtempSync(path.join(tmpdir(), "berth-bench-"));
    const [file = "", ...before] = installed
      ? [path.join(checkout, "bin/berth")]
      : [process.execPath, ...node, path.join(checkout, "src/main.ts")];
    const args = [
      ...before,
      "serve",
      "--listen",
      "127.0.0.1:0",
      "--default-image",
      image,
      "--data-dir",
      dataDir,
    ];
    const child = spawn(file, [...args, "--log-level", "error", ...options], {
      stdio: ["ignore", "pipe", "inherit"],
      env: { ...launcherSettings(checkout), ...process.env },
    });
    child.once("exit", () => rmSync(dataDir, { recursive: true, force: true }));
    for await (const line of createInterface({ input: child.stdout })) {
      const address = /listens on (\S+?);/.exec(line)?.[1];
      if (address !== undefined) return new BenchService(child, address);
    }
    throw new Error("the service did not start");
  }

  /** Creates a sandbox. Returns its id. */
  async create(): Promise<string> {
    const { sandbox } = await this.client.unary(SandboxService.method.createSandbox, {});
    return sandbox?.sandboxId ?? "";
  }

  async remove(sandboxId: string): Promise<void> {
    await this.client.unary(SandboxService.method.deleteSandbox, { sandboxId, grace: {} });
  }

  /**
   * Runs a command until `exited`. Returns the bytes that it wrote. A `user` other than the default keeps it out of
   * lanes.
   */
  exec(sandboxId: string, args: readonly string[], user = ""): Promise<number> {
    return new Promise((resolve, reject) => {
      const call = this.client.stream(ProcessService.method.exec, {
        sandboxId,
        user,
        command: { case: "argv", value: { args: [...args] } },
      });
      let bytes = 0;
      call.on("data", ({ event }) => {
        if (event.case === "output") bytes += event.value.data.length;
        else if (event.case === "exited") {
          if (event.value.exitCode === 0) resolve(bytes);
          else reject(new Error(`exec ended with ${event.value.exitCode}`));
        }
      });
      call.on("error", reject);
      call.on("end", () => reject(new Error("exec ended without exited")));
    });
  }

  get pid(): number {
    return this.#process.pid ?? 0;
  }

  /** Resident memory of the service in bytes. */
  memory(): number {
    const status = readFileSync(`/proc/${this.#process.pid}/status`, "utf8");
    return Number(/VmRSS:\s+(\d+)/.exec(status)?.[1]) * 1024;
  }

  /** Stops it, with its sandboxes. Later calls join the first. */
  stop(): Promise<void> {
    this.#stopping ??= this.#stop();
    return this.#stopping;
  }

  async #stop(): Promise<void> {
    this.client.close();
    if (this.#process.exitCode !== null || this.#process.signalCode !== null) return;
    const exited = once(this.#process, "exit");
    this.#process.kill("SIGTERM");
    const tooLate = setTimeout(() => this.#process.kill("SIGKILL"), STOP_MS);
    await exited;
    clearTimeout(tooLate);
  }
}
