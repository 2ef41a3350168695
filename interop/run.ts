import { type ChildProcessByStdio, spawn, spawnSync } from "node:child_process";
import { cpSync, mkdirSync } from "node:fs";
import path from "node:path";
import type { Readable } from "node:stream";
import type { Result } from "./cells.ts";
import { NotThere, type PrepareOptions } from "./client.ts";

export const ROOT = path.resolve(import.meta.dirname, "..");
const BIN = path.join(ROOT, "node_modules/.bin");

/** Largest output of a program that is kept, in bytes. */
const MAX_OUTPUT = 64 * 1024 * 1024;

export interface Finished {
  /** Null where a signal ended it. */
  readonly exitCode: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

interface RunOptions {
  readonly signal: AbortSignal;
  readonly cwd?: string;
  readonly env?: Readonly<Record<string, string>>;
  readonly input?: string;
  /** Sees the output as it comes. */
  readonly onOutput?: (text: string, child: ChildProcessByStdio<null, Readable, Readable>) => void;
}

/** Runs a program to its end, whatever its exit code; it is killed with the signal. */
export async function run(command: string, args: readonly string[], options: RunOptions): Promise<Finished> {
  const { signal, cwd = ROOT, env, input, onOutput } = options;
  const child = spawn(command, args, {
    cwd,
    env: { ...process.env, PATH: `${BIN}:${process.env.PATH}`, ...env },
    stdio: [input === undefined ? "ignore" : "pipe", "pipe", "pipe"],
    signal,
    killSignal: "SIGKILL",
  }) as ChildProcessByStdio<null, Readable, Readable>;
  const { promise, resolve, reject } = Promise.withResolvers<number | null>();
  child.on("error", reject);
  child.on("close", resolve);
  const stdout: Buffer[] = [];
  const stderr: Buffer[] = [];
  let size = 0;
  const keep = (chunks: Buffer[]) => (chunk: Buffer) => {
    size += chunk.length;
    if (size > MAX_OUTPUT) child.kill("SIGKILL");
    else chunks.push(chunk);
  };
  child.stdout.on("data", keep(stdout));
  child.stderr.on("data", keep(stderr));
  if (onOutput) child.stdout.on("data", (chunk: Buffer) => onOutput(chunk.toString(), child));
  if (input !== undefined) (child as unknown as { stdin: NodeJS.WritableStream }).stdin.end(input);
  const exitCode = await promise;
  return { exitCode, stdout: Buffer.concat(stdout).toString(), stderr: Buffer.concat(stderr).toString() };
}

/** Runs a program that has to succeed; returns what it wrote. */
export async function must(command: string, args: readonly string[], options: RunOptions): Promise<string> {
  const { exitCode, stdout, stderr } = await run(command, args, options);
  if (exitCode === 0) return stdout;
  throw new Error(`${command} ${args.join(" ")} ended with ${exitCode}:\n${(stderr || stdout).slice(-2000)}`);
}

/** Runs a client program that prints its result as JSON. */
export async function resultOf(
  command: string,
  args: readonly string[],
  options: RunOptions,
): Promise<Result> {
  return JSON.parse(await must(command, args, options)) as Result;
}

/** Makes sure that a program is there: installs its packages where that is agreed to. */
export async function needs(
  program: string,
  packages: string,
  { agreed, signal }: PrepareOptions,
): Promise<void> {
  const there = () => spawnSync("sh", ["-c", `command -v ${program}`]).status === 0;
  if (there()) return;
  if (agreed) {
    const env = { DEBIAN_FRONTEND: "noninteractive" };
    const install = ["install", "-y", "-qq", "--no-install-recommends", ...packages.split(" ")];
    await must("apt-get", ["update", "-qq"], { signal, env });
    await must("apt-get", install, { signal, env });
    if (there()) return;
  }
  throw new NotThere(`${program} is missing. Type: apt-get install --no-install-recommends ${packages}`);
}

/** A Go of 1.21 or newer fetches the release that it is asked for by itself. */
export const GO_ENVIRONMENT = { GOTOOLCHAIN: "auto" } as const;

/** Makes sure that there is a Go that can fetch any other. */
export async function needsGo(options: PrepareOptions): Promise<void> {
  await needs("go", "golang-go", options);
  const { stdout } = await run("go", ["env", "GOVERSION"], { ...options, env: { GOTOOLCHAIN: "local" } });
  const minor = Number(/^go1\.(\d+)/.exec(stdout)?.[1] ?? 0);
  if (minor < 21)
    throw new NotThere(`Go 1.21 or newer is needed, this is ${stdout.trim()}. See https://go.dev/dl`);
}

/** Makes sure that one of Berth's own images is there. */
export async function needsImage(
  name: "base" | "desktop",
  { agreed, signal }: PrepareOptions,
): Promise<void> {
  const image = `berth/${name}:latest`;
  if ((await run("docker", ["image", "inspect", image], { signal })).exitCode === 0) return;
  const command = `scripts/base-image.sh${name === "base" ? "" : ` --${name}`}`;
  if (!agreed) throw new NotThere(`The image ${image} is missing. Type: ${command}`);
  await must("sh", ["-c", `${command} --yes`], { signal });
}

/** A copy of a client's sources, with room for what is built of them. */
export function workDirectory(name: string): string {
  const directory = path.join(ROOT, ".cache/interop", name);
  mkdirSync(directory, { recursive: true });
  cpSync(path.join(ROOT, "interop/clients", name), directory, { recursive: true });
  return directory;
}
