import { execFile } from "node:child_process";
import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { beforeAll, describe, expect, it } from "vitest";

const run = promisify(execFile);
const root = join(import.meta.dirname, "../../..");

/** The output of python_stubs.py. */
interface Report {
  modules: string[];
  services: Record<string, string[]>;
  calls: { sandbox_id: string; sequences: number[] };
  round_trip: { tool: string; x: number; keys: string[] };
  presence: boolean;
}

async function report(): Promise<Report> {
  const requirements = join(import.meta.dirname, "requirements.txt");
  const env = await run(join(root, "scripts/python-env.sh"), ["python-stubs", requirements]);
  const { stdout } = await run(
    join(env.stdout.trim(), "bin/python"),
    ["-B", join(import.meta.dirname, "python_stubs.py")],
    // Without the caller's environment, so that no proxy is used between the stub and its server on loopback.
    { env: { PYTHONPATH: join(root, "gen/python") }, timeout: 150_000 },
  );
  return JSON.parse(stdout);
}

/** The names of each service's RPCs, from the .proto files. */
async function declared(): Promise<{ files: string[]; services: Record<string, string[]> }> {
  const directory = join(root, "proto/berth/v1");
  const files = (await readdir(directory)).sort();
  const services: Record<string, string[]> = {};
  for (const file of files) {
    const text = await readFile(join(directory, file), "utf8");
    const service = /^service (\w+) \{$/m.exec(text)?.[1];
    const rpcs = [...text.matchAll(/^ {2}rpc (\w+)\(/gm)].map((match) => match[1] ?? "");
    if (service !== undefined) services[service] = rpcs.sort();
  }
  return { files, services };
}

describe("the Python stubs", () => {
  let stubs: Report;

  // Only against hangs: on first use it creates the environment.
  beforeAll(async () => {
    stubs = await report();
  }, 600_000);

  it("are modules of berth.v1, two for each proto file", async () => {
    const { files } = await declared();
    const names = files.map((file) => file.replace(".proto", ""));
    expect(stubs.modules).toEqual(names.flatMap((name) => [`${name}_pb2`, `${name}_pb2_grpc`]));
  });

  it("offer every RPC of every service", async () => {
    const { services } = await declared();
    expect(Object.keys(services)).toHaveLength(6);
    expect(stubs.services).toEqual(services);
  });

  it("make a client and a server that understand each other", () => {
    expect(stubs.calls).toEqual({ sandbox_id: "käfig", sequences: [2, 3] });
  });

  it("pass parameters of tools on unchanged", () => {
    expect(stubs.round_trip).toEqual({ tool: "vm:hotkey", x: 100, keys: ["ctrl", "c"] });
  });

  it("distinguish a false temporary_session from an unset one", () => {
    expect(stubs.presence).toBe(true);
  });
});
