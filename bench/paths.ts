#!/usr/bin/env node
// Counts the files and functions of src/ on a path through a running service:
//
//   node bench/paths.ts [CHECKOUT] [--list]    of another checkout; with the names of the files
//
// Uses precise coverage over the inspector, between two moments of a running service.
import { type ChildProcess, spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { createInterface } from "node:readline";
import { parseArgs } from "node:util";

const { values, positionals } = parseArgs({
  options: { list: { type: "boolean", default: false } },
  allowPositionals: true,
});
const root = path.resolve(positionals[0] ?? path.join(import.meta.dirname, ".."));
const src = `file://${root}/src/`;

/** The parts of the DevTools protocol that are used here. */
interface Coverage {
  readonly result: readonly {
    readonly url: string;
    readonly functions: readonly {
      readonly functionName: string;
      readonly ranges: readonly { count: number }[];
    }[];
  }[];
}

/** A connection to a service's inspector. */
class Inspector {
  readonly #socket: WebSocket;
  readonly #waiting = new Map<number, (result: unknown) => void>();
  #id = 0;

  constructor(socket: WebSocket) {
    this.#socket = socket;
    socket.onmessage = ({ data }) => {
      const { id, result } = JSON.parse(String(data));
      this.#waiting.get(id)?.(result);
    };
  }

  static async to(url: string): Promise<Inspector> {
    const socket = new WebSocket(url);
    await new Promise((resolve, reject) => {
      socket.onopen = resolve;
      socket.onerror = reject;
    });
    return new Inspector(socket);
  }

  send(method: string, params: object = {}): Promise<unknown> {
    const id = ++this.#id;
    this.#socket.send(JSON.stringify({ id, method, params }));
    return new Promise((resolve) => this.#waiting.set(id, resolve));
  }

  close(): void {
    this.#socket.close();
  }

  /** Functions of src/ that ran since the last call, by file. */
  async ran(): Promise<Map<string, number>> {
    const { result } = (await this.send("Profiler.takePreciseCoverage")) as Coverage;
    const files = new Map<string, number>();
    for (const { url, functions } of result) {
      if (!url.startsWith(src)) continue;
      // The module itself has no name and runs once, when it is loaded.
      const count = functions.filter(
        ({ functionName, ranges }) => functionName !== "" && (ranges[0]?.count ?? 0) > 0,
      );
      if (count.length > 0) files.set(url.slice(src.length), count.length);
    }
    return files;
  }
}

/** A service with an inspector. */
class Service {
  readonly inspector: Inspector;
  readonly #child: ChildProcess;
  readonly #address: string;

  private constructor(child: ChildProcess, inspector: Inspector, address: string) {
    this.#child = child;
    this.inspector = inspector;
    this.#address = address;
  }

  static async start(dataDir: string, options: readonly string[]): Promise<Service> {
    const args = ["--inspect-wait=127.0.0.1:0", "src/main.ts", "serve", "--listen", "127.0.0.1:0"];
    const child = spawn(
      process.execPath,
      [...args, "--data-dir", dataDir, "--log-level", "error", ...options],
      {
        cwd: root,
        stdio: ["ignore", "pipe", "pipe"],
      },
    );
    const inspector = await Inspector.to(await firstMatch(child.stderr, /(ws:\S+)/));
    await inspector.send("Profiler.enable");
    await inspector.send("Profiler.startPreciseCoverage", { callCount: true, detailed: false });
    const listens = firstMatch(child.stdout, /listens on (\S+?);/);
    await inspector.send("Runtime.runIfWaitingForDebugger");
    return new Service(child, inspector, await listens);
  }

  async call(method: string, request: object): Promise<Record<string, unknown>> {
    const response = await fetch(`http://${this.#address}/berth.v1.${method}`, {
      method: "POST",
      headers: { "content-type": "application/json", "connect-protocol-version": "1" },
      body: JSON.stringify(request),
    });
    const body = (await response.json()) as Record<string, unknown>;
    if (!response.ok) throw new Error(`${method}: ${JSON.stringify(body)}`);
    return body;
  }

  async stop(signal: NodeJS.Signals): Promise<void> {
    const exited = new Promise((resolve) => this.#child.once("exit", resolve));
    // A program does not exit while its debugger is connected.
    this.inspector.close();
    this.#child.kill(signal);
    await exited;
  }
}

async function firstMatch(stream: NodeJS.ReadableStream | null, pattern: RegExp): Promise<string> {
  if (stream === null) throw new Error("the service has no pipes");
  const lines = createInterface({ input: stream });
  for await (const line of lines) {
    const found = pattern.exec(line)?.[1];
    if (found === undefined) continue;
    stream.resume();
    return found;
  }
  throw new Error(`the service ended without ${pattern}`);
}

const dataDir = mkdtempSync(path.join(tmpdir(), "berth-paths-"));
const paths = new Map<string, Map<string, number>>();
try {
  const options = ["--warm-pool", "berth/base:latest=2", "--default-image", "berth/base:latest"];
  const first = await Service.start(dataDir, options);
  const measure = async (name: string, act: () => Promise<unknown>): Promise<void> => {
    await first.inspector.ran();
    await act();
    paths.set(name, await first.inspector.ran());
  };
  const { sandbox } = (await first.call("SandboxService/CreateSandbox", {})) as {
    sandbox: { sandboxId: string };
  };
  const { sandboxId } = sandbox;
  const execute = () => first.call("ProcessService/RunCommand", { sandboxId, shell: "true" });
  await execute();
  await measure("Exec of a command", execute);
  await new Promise((resolve) => setTimeout(resolve, 5_000));
  await measure("create from the pool", () => first.call("SandboxService/CreateSandbox", {}));
  const workerId = "reader";
  await first.call("SessionService/CreateSessions", { workerId, resources: [{ resourceType: "bash" }] });
  const bash = () =>
    first.call("SessionService/ExecuteTool", { workerId, tool: "bash:run", params: { command: "true" } });
  await bash();
  await measure("bash:run", bash);
  await first.stop("SIGKILL");
  const second = await Service.start(dataDir, options);
  paths.set("recovery after a kill", await second.inspector.ran());
  await second.stop("SIGTERM");
} finally {
  rmSync(dataDir, { recursive: true, force: true });
}
for (const [name, files] of paths) {
  const functions = [...files.values()].reduce((sum, count) => sum + count, 0);
  console.log(
    `${name.padEnd(24)} ${String(files.size).padStart(4)} files ${String(functions).padStart(5)} functions`,
  );
  if (values.list) for (const [file, count] of [...files].sort()) console.log(`    ${file} (${count})`);
}
