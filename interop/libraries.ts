import { cpSync, readFileSync } from "node:fs";
import path from "node:path";
import { CALLS, type Task } from "./cells.ts";
import type { InteropClient, PrepareOptions, ReadyClient, Target } from "./client.ts";
import { GO_ENVIRONMENT, must, needs, needsGo, ROOT, resultOf, workDirectory } from "./run.ts";

/** A program of `interop/clients`: it takes address, sandbox, call and argument, and prints a result. */
function program(version: string, command: readonly string[], env: Record<string, string> = {}): ReadyClient {
  const [file = "", ...first] = command;
  return {
    version,
    call: ({ cell, argument }: Task, { address, sandboxId, signal }: Target) =>
      resultOf(file, [...first, address, sandboxId, CALLS[cell], argument], { signal, env }),
  };
}

/** Clients that share their sources are built once. */
function once<T>(work: (options: PrepareOptions) => Promise<T>): (options: PrepareOptions) => Promise<T> {
  let result: Promise<T> | undefined;
  return (options) => {
    result ??= work(options);
    return result;
  };
}

const buildGo = once(async (options: PrepareOptions) => {
  await needsGo(options);
  const cwd = workDirectory("go");
  const env = GO_ENVIRONMENT;
  // The line that the documentation gives.
  await must("npx", ["@bufbuild/buf", "generate", path.join(ROOT, "proto")], { ...options, cwd, env });
  await must("go", ["build", "-o", "bin/", "./grpc", "./connect"], { ...options, cwd, env });
  return cwd;
});

function go(name: string, folder: string, module: string): InteropClient {
  return {
    name,
    async prepare(options) {
      const cwd = await buildGo(options);
      const version = found(path.join(cwd, "go.mod"), new RegExp(`${module} v(\\S+)`));
      return program(`${module} ${version}`, [path.join(cwd, "bin", folder)]);
    },
  };
}

function python(name: string, mode: string, requirements: string): InteropClient {
  return {
    name,
    async prepare(options) {
      await needs("python3", "python3 python3-venv", options);
      const file = path.join(ROOT, `interop/clients/python/${requirements}.txt`);
      const stdout = await must("scripts/python-env.sh", [`interop-${requirements}`, file], options);
      const client = path.join(ROOT, "interop/clients/python/client.py");
      const env = { PYTHONPATH: path.join(ROOT, "gen/python"), PYTHONDONTWRITEBYTECODE: "1" };
      const version = `grpcio ${found(file, /^grpcio==(\S+)/m)}, protobuf ${found(file, /^protobuf==(\S+)/m)}`;
      return program(version, [path.join(stdout.trim(), "bin/python"), client, mode], env);
    },
  };
}

/** The clients of JavaScript, with the stubs of `gen/ts` and what a browser loads. */
export const buildWeb = once(async (options: PrepareOptions) => {
  const cwd = workDirectory("web");
  cpSync(path.join(ROOT, "gen/ts"), path.join(cwd, "gen"), { recursive: true });
  await must("npm", ["ci", "--no-audit", "--no-fund"], { ...options, cwd });
  const esbuild = path.join(cwd, "node_modules/.bin/esbuild");
  await must(esbuild, ["browser.js", "--bundle", "--outfile=bundle.js"], { ...options, cwd });
  return cwd;
});

export function webVersion(cwd: string, name: string): string {
  return `${name} ${found(path.join(cwd, "package.json"), new RegExp(`"${name}": "(.*)"`))}`;
}

function web(name: string, library: string): InteropClient {
  return {
    name,
    async prepare(options) {
      const cwd = await buildWeb(options);
      return program(webVersion(cwd, library), [process.execPath, path.join(cwd, "node.js"), name]);
    },
  };
}

const tonic: InteropClient = {
  name: "tonic",
  async prepare(options) {
    await needs("cargo", "cargo", options);
    const cwd = workDirectory("tonic");
    const descriptors = path.join(cwd, "descriptors.binpb");
    await must("buf", ["build", "proto", "--as-file-descriptor-set", "-o", descriptors], options);
    await must("cargo", ["build", "--quiet", "--locked"], { ...options, cwd });
    const version = found(path.join(cwd, "Cargo.lock"), /name = "tonic"\nversion = "(.*)"/);
    return program(`tonic ${version}`, [path.join(cwd, "target/debug/berth-interop")]);
  },
};

const java: InteropClient = {
  name: "grpc-java",
  async prepare(options) {
    await needs("javac", "default-jdk-headless", options);
    await needs("mvn", "maven", options);
    const cwd = workDirectory("java");
    cpSync(path.join(ROOT, "proto"), path.join(cwd, "proto"), { recursive: true });
    await must("mvn", ["-B", "-q", "package"], { ...options, cwd });
    const version = found(path.join(cwd, "pom.xml"), /<grpc.version>(.*)</);
    const classes = ["target/berth-interop-0.jar", "target/lib/*"]
      .map((name) => path.join(cwd, name))
      .join(":");
    return program(`grpc-java ${version}`, ["java", "-cp", classes, "interop.Main"]);
  },
};

/** Clients that are programs in `interop/clients`. */
export const LIBRARIES: readonly InteropClient[] = [
  go("grpc-go", "grpc", "google.golang.org/grpc"),
  go("connect-go", "connect", "connectrpc.com/connect"),
  python("grpcio oldest", "sync", "lowest"),
  python("grpcio oldest asyncio", "async", "lowest"),
  python("grpcio newest", "sync", "newest"),
  python("grpcio newest asyncio", "async", "newest"),
  web("connect-es gRPC", "@connectrpc/connect-node"),
  web("connect-es", "@connectrpc/connect-node"),
  web("connect-web", "@connectrpc/connect-web"),
  tonic,
  java,
];

function found(file: string, pattern: RegExp): string {
  const version = pattern.exec(readFileSync(file, "utf8"))?.[1];
  if (version === undefined) throw new Error(`${file} does not match ${pattern}`);
  return version;
}
