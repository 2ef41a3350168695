import { type ChildProcess, spawn } from "node:child_process";
import { chownSync, mkdirSync, readdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import { text } from "node:stream/consumers";
import { afterEach, describe, expect, onTestFinished, test } from "vitest";
import { codeOf } from "../../src/base/system-errors.ts";
import { Client } from "../support/client.ts";
import { eventually } from "../support/eventually.ts";
import { nodeAsOrdinaryUser, ORDINARY_ID } from "../support/ordinary-user.ts";
import { runProgram, ServeProcess } from "../support/program.ts";
import { newDataDir } from "../support/settings.ts";

const ROOT = "/sys/fs/cgroup";
const MIB = 1024 * 1024;
const PATIENCE = { timeoutMs: 120_000 };
const ALL = "memory, cpu, processes and disk, by cgroup v2: cpu, memory, pids";

/** A group below the topmost, to which all controllers come. */
function makeGroup(name: string): string {
  writeFileSync(path.join(ROOT, "cgroup.subtree_control"), "+cpu +memory +pids");
  const dir = path.join(ROOT, name);
  mkdirSync(dir);
  return dir;
}

/** The command that runs a program in a group, before the program's own. */
const inGroup = (dir: string): string[] => ["sh", "-c", `echo 0 >'${dir}/cgroup.procs' && exec "$@"`, "sh"];

/** The groups below one. Some may go away meanwhile. */
function below(dir: string): string[] {
  return groupsIn(dir).flatMap((name) => [
    name,
    ...below(path.join(dir, name)).map((each) => path.join(name, each)),
  ]);
}

function groupsIn(dir: string): string[] {
  try {
    return readdirSync(dir, { withFileTypes: true }).flatMap((entry) =>
      entry.isDirectory() ? [entry.name] : [],
    );
  } catch (error) {
    if (!["ENOENT", "ENODEV"].includes(codeOf(error) ?? "")) throw error;
    return [];
  }
}

const sandboxesIn = (dir: string): string[] => below(dir).filter((name) => /\/bwrap-[^/]*$/.test(name));

const limitsToldIn = (dir: string): Promise<string | undefined> => limitsToldBy(inGroup(dir));

async function limitsToldBy(within: readonly string[]): Promise<string | undefined> {
  const args = ["doctor", "--json", "--engine", "bubblewrap", "--listen", "127.0.0.1:0"];
  const { exitCode, signal, stdout, stderr } = await runProgram(args, { within });
  if (stdout.length === 0) throw new Error(`berth doctor ended with ${exitCode ?? signal}: ${stderr}`);
  const { findings } = JSON.parse(stdout.toString()) as { findings: { subject: string; found: string }[] };
  return findings.find(({ subject }) => subject === "bubblewrap limits")?.found;
}

const disposals: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const dispose of disposals.splice(0)) await dispose();
});

async function serveIn(dir: string): Promise<{ service: ServeProcess; client: Client }> {
  const service = await ServeProcess.start(["--engine", "bubblewrap"], {}, { within: inGroup(dir) });
  const client = new Client(service.address);
  disposals.push(async () => {
    client.close();
    await service.dispose();
  });
  return { service, client };
}

test("a service in a group of its own bounds its sandboxes, and takes their groups away", async () => {
  expect(await limitsToldIn(makeGroup("berth-doctor"))).toBe(ALL);
  const group = makeGroup("berth-own");
  const { service, client } = await serveIn(group);
  const resources = { memory_bytes: 64 * MIB, cpu_millis: 500, pids_limit: 40 };
  const { sandbox_id: id } = await client.createSandbox({ resources });
  const { sandbox_id: neighbour } = await client.createSandbox();

  const files = "memory.max memory.swap.max cpu.max pids.max";
  const seen = await client.output(id, `cd /sys/fs/cgroup && cat ${files}`);
  // One of the processes is bubblewrap's own.
  expect(seen.split("\n")).toEqual([String(64 * MIB), "0", "50000 100000", "41", ""]);
  expect((await client.run(id, "echo max >/sys/fs/cgroup/memory.max")).exit_status.exit_code).not.toBe(0);

  const hog = "x = bytearray(300 << 20)\nfor i in range(0, len(x), 4096): x[i] = 1";
  const killed = await client.run(id, ["python3", "-c", hog]);
  expect(killed.exit_status).toMatchObject({ cause: "EXIT_CAUSE_OUT_OF_MEMORY", exit_code: 137 });
  const chosen = await client.run(id, "exit 137");
  expect(chosen.exit_status.cause).not.toBe("EXIT_CAUSE_OUT_OF_MEMORY");

  const bomb = "for i in $(seq 100); do sleep 1 & done; cat /sys/fs/cgroup/pids.current; wait";
  const { stdout, stderr } = await client.run(id, bomb);
  expect(`${stdout}${stderr}`).toMatch(/fork|^(3\d|4[01])$/m);
  expect(await client.output(neighbour, "echo fine")).toBe("fine\n");

  const spinning = client.exec(id, "while :; do :; done");
  await spinning.processId;
  await eventually(
    async () => /nr_throttled [1-9]/.test(await client.output(id, "cat /sys/fs/cgroup/cpu.stat")),
    PATIENCE,
  );
  await client.call("SandboxService/PauseSandbox", { sandbox_id: id });
  await client.call("SandboxService/ResumeSandbox", { sandbox_id: id });

  expect(sandboxesIn(group)).toHaveLength(2);
  await client.deleteSandbox(id);
  expect(sandboxesIn(group)).toHaveLength(1);
  await service.stop("SIGKILL");
  await eventually(() => below(group).every((name) => /^berth-[^/]*-service$/.test(name)), PATIENCE);
});

test("a service that shares its group works in it, and after a kill the next one cleans up", async () => {
  const group = makeGroup("berth-shared");
  const shell = spawn("sleep", ["1000"]);
  onTestFinished(() => void shell.kill());
  writeFileSync(path.join(group, "cgroup.procs"), String(shell.pid));
  expect(await limitsToldIn(group)).toBe(ALL);
  const { service, client } = await serveIn(group);
  const { sandbox_id: id } = await client.createSandbox({ resources: { memory_bytes: 64 * MIB } });
  expect(await client.output(id, "cat /sys/fs/cgroup/memory.max")).toBe(`${64 * MIB}\n`);
  expect(below(group)).toEqual([]);
  await service.stop();
  expect(sandboxesIn(ROOT)).toEqual([]);

  // What an operator bounded is not left.
  writeFileSync(path.join(group, "memory.max"), String(1024 * MIB));
  expect(await limitsToldIn(group)).toContain("cgroup v2: no controllers");
});

test("a service that berth started under another Node moves one level down, together with that", async () => {
  const group = makeGroup("berth-launched");
  writeFileSync(path.join(group, "memory.max"), String(1024 * MIB));
  const launcher = path.join(newDataDir(), "berth.mjs");
  writeFileSync(
    launcher,
    `import { spawn } from "node:child_process";
     const [program, ...args] = process.argv.slice(2);
     spawn(program, args, { stdio: "inherit" }).on("exit", (code) => process.exit(code));`,
  );
  expect(await limitsToldBy([...inGroup(group), process.execPath, launcher])).toBe(ALL);
});

describe("an ordinary user", () => {
  const args = ["--engine", "bubblewrap", "--listen", "127.0.0.1:0"];

  function delegate(name: string): string {
    const group = makeGroup(name);
    for (const file of ["", "cgroup.procs", "cgroup.threads", "cgroup.subtree_control"])
      chownSync(path.join(group, file), ORDINARY_ID, ORDINARY_ID);
    return group;
  }

  async function outputOf(child: ChildProcess): Promise<string> {
    const [out, problem] = await Promise.all([
      child.stdout && text(child.stdout),
      child.stderr && text(child.stderr),
    ]);
    return `${out}${problem}`;
  }

  test("with a group that was given to it has all bounds", async () => {
    const group = delegate("berth-given");
    const told = nodeAsOrdinaryUser(["src/main.ts", "doctor", ...args], {}, inGroup(group));
    const findings = await outputOf(told.child);
    expect(findings).toContain(ALL);
    expect(findings).toContain("sandboxes can be paused");
  });

  test("passes the whole contract suite in it", { timeout: 1_200_000 }, async () => {
    const group = delegate("berth-suite");
    writeFileSync(path.join(group, "cgroup.subtree_control"), "+cpu +memory +pids");
    const [others, own] = [delegate("berth-suite/others"), delegate("berth-suite/own")];
    const vitest = [
      "node_modules/vitest/vitest.mjs",
      "run",
      "--config",
      "test/contract/engine/ordinary-user.config.ts",
    ];
    const { child } = nodeAsOrdinaryUser(
      [...vitest, "--configLoader", "runner", "--reporter=./test/contract/engine/json-line-reporter.ts"],
      { BERTH_TEST_OWN_GROUP: own, BERTH_TEST_TIMEOUT_MS: "300000" },
      inGroup(others),
    );
    const out = await outputOf(child);
    const line = out.split("\n").find((candidate) => candidate.startsWith("{"));
    expect(JSON.parse(line ?? JSON.stringify(out))).toMatchObject({ failures: [] });
  });

  test("has none in somebody else's group", async () => {
    const group = makeGroup("berth-theirs");
    const told = nodeAsOrdinaryUser(["src/main.ts", "doctor", ...args], {}, inGroup(group));
    expect(await outputOf(told.child)).toContain("no control groups that this user may write: no limit of");
  });
});
