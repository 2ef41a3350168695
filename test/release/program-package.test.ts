import { type ChildProcess, execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { readlink, rename } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { afterAll, beforeAll, expect, test } from "vitest";
import { removeContainers } from "../support/docker.ts";
import { DESKTOP_IMAGE, TEST_IMAGE } from "../support/images.ts";
import { InstalledPackage } from "../support/installed-package.ts";
import { newInstance } from "../support/settings.ts";

const execute = promisify(execFile);
const VERSION = JSON.parse(
  readFileSync(fileURLToPath(new URL("../../package.json", import.meta.url)), "utf8"),
).version;

const instance = newInstance();
const dir = mkdtempSync(path.join(tmpdir(), "berth-installed-"));
let installed: InstalledPackage;
let service: ChildProcess;
let env: NodeJS.ProcessEnv;

/** Runs the installed program to its end. */
async function berth(args: readonly string[], more: NodeJS.ProcessEnv = {}) {
  const ended = await execute(installed.berth, args, { cwd: dir, env: { ...env, ...more } }).catch(
    (error: { readonly code: number; readonly stdout: string; readonly stderr: string }) => error,
  );
  const { stdout, stderr } = ended;
  return { code: "code" in ended ? ended.code : 0, stdout, stderr };
}

async function firstLine(child: ChildProcess): Promise<string> {
  if (child.stdout === null) throw new Error("its output is not piped");
  const [line] = await once(createInterface({ input: child.stdout }), "line");
  return line;
}

beforeAll(async () => {
  installed = await InstalledPackage.make();
  env = installed.env;
  const options = ["--listen", "127.0.0.1:0", "--instance", instance, "--data-dir", path.join(dir, "data")];
  const images = ["--default-image", TEST_IMAGE, "--desktop-image", DESKTOP_IMAGE];
  service = spawn(installed.berth, ["serve", ...options, ...images, "--log-level", "warn"], {
    env,
    stdio: ["ignore", "pipe", "inherit"],
  });
  const line = await firstLine(service);
  const address = /^berth listens on (\S+);/.exec(line)?.[1];
  if (address === undefined) throw new Error(line);
  env = { ...env, BERTH_ADDRESS: address };
});
afterAll(async () => {
  if (service !== undefined) {
    const ended = once(service, "exit");
    service.kill("SIGTERM");
    expect(await ended).toEqual([0, null]);
  }
  await removeContainers(instance);
  installed?.[Symbol.dispose]();
  rmSync(dir, { recursive: true, force: true });
});

test("the tarball has the program and the generated code, and nothing else", () => {
  const known = /^(bin\/berth|dist\/[\w-]+\.js|dist\/driver\/\w+\.py|gen\/ts\/[\w/]+_pb\.(js|d\.ts))$/;
  const rest = installed.files.filter((file) => !known.test(file));
  expect(rest.sort()).toEqual([
    "LICENSE",
    "README.md",
    "dist/LICENSES.txt",
    "dist/package.json",
    "package.json",
  ]);
  expect(installed.files).toContain("dist/driver/main.py");
});

test("the service is the process that was started, under the Node that came with the package", async () => {
  expect(await readlink(`/proc/${service.pid}/exe`)).toMatch(/\/prefix\/lib\/node_modules\/.*\/bin\/node$/);
});

test("commands, tools and the checks of doctor work", async () => {
  expect(await berth(["--version"])).toEqual({ code: 0, stdout: `${VERSION}\n`, stderr: "" });
  expect(await berth(["run", "--", "sh", "-c", "echo out; exit 3"])).toEqual({
    code: 3,
    stdout: "out\n",
    stderr: "",
  });
  const python = await berth(["tool", "run", "python:run", "code=print(6 * 7)"]);
  expect(python).toMatchObject({ code: 0, stdout: expect.stringContaining("42") });
  const { findings } = JSON.parse((await berth(["doctor", "--json"])).stdout);
  expect(findings).toContainEqual(expect.objectContaining({ subject: "node", status: "ok" }));
});

test("a desktop runs, and its page has all that it needs", async () => {
  expect(await berth(["session", "create", "vm", "-w", "ann"])).toMatchObject({ code: 0, stderr: "" });
  const page = spawn(installed.berth, ["session", "view", "ann"], {
    env,
    stdio: ["ignore", "pipe", "ignore"],
  });
  const ended = once(page, "exit");
  try {
    const url = await firstLine(page);
    for (const file of ["", "view.js", "novnc/core/rfb.js", "novnc/vendor/pako/lib/zlib/inflate.js"])
      expect([file, (await fetch(url + file)).status]).toEqual([file, 200]);
  } finally {
    page.kill("SIGINT");
    await ended;
  }
});

test("the generated code is exported", async () => {
  const user = path.join(dir, "user");
  mkdirSync(path.join(user, "node_modules"), { recursive: true });
  writeFileSync(
    path.join(user, "main.mjs"),
    'import { SandboxService } from "berth/gen/berth/v1/sandbox_pb.js";\nconsole.log(SandboxService.typeName);\n',
  );
  await rename(installed.folder, path.join(user, "node_modules/berth"));
  try {
    const { stdout } = await execute("node", ["main.mjs"], { cwd: user, env });
    expect(stdout).toBe("berth.v1.SandboxService\n");
  } finally {
    await rename(path.join(user, "node_modules/berth"), installed.folder);
  }
});

test("without the Node of the package clients run on that of the machine; the service says what it needs", async () => {
  const own = path.join(installed.folder, "node_modules/node");
  await rename(own, `${own}.away`);
  try {
    expect(await berth(["run", "--", "echo", "hi"])).toEqual({ code: 0, stdout: "hi\n", stderr: "" });
    expect(await berth(["ls"])).toMatchObject({ code: 0, stderr: "" });
    const [sandbox] = (await berth(["create"])).stdout.split("\n");
    expect(await berth(["cp", "nowhere", `${sandbox}:x`])).toMatchObject({
      code: 1,
      stderr: "berth: nowhere: no such file or directory\n",
    });
    const old = `import m from "node:module"; m.isBuiltin = () => false; m.syncBuiltinESMExports()`;
    const NODE_OPTIONS = `--import ${JSON.stringify(`data:text/javascript,${encodeURIComponent(old)}`)}`;
    for (const command of ["serve", "doctor"])
      expect(await berth([command, "--listen", "127.0.0.1:0"], { NODE_OPTIONS })).toMatchObject({
        code: 1,
        stderr: expect.stringMatching(/^berth: this needs Node 24, and this is .*\nInstall berth with/),
      });
  } finally {
    await rename(`${own}.away`, own);
  }
});

const TURNS = 3;

/** The processors' time that five runs of a command take, which depends far less on the machine's load than how long they take. */
async function processorSeconds(command: readonly string[]): Promise<number> {
  const script = 'for _ in 1 2 3 4 5; do "$@" </dev/null >/dev/null || exit; done; times';
  const { stdout } = await execute("/bin/sh", ["-c", script, "sh", ...command], { env });
  const [minutes = 0, seconds = 0, moreMinutes = 0, more = 0] = (stdout.split("\n")[1] ?? "")
    .split(/[ms ]+/)
    .map(Number);
  return 60 * (minutes + moreMinutes) + seconds + more;
}

test("a command starts with little more work than Node alone", async () => {
  const [sandbox = ""] = (await berth(["create"])).stdout.split("\n");
  const node = await readlink(`/proc/${service.pid}/exe`);
  const factors: Record<string, number> = {};
  for (const args of [["--version"], ["ls"], ["exec", sandbox, "--", "true"]]) {
    // What else runs takes the caches away, so each takes the more the busier the machine is: the least of each counts.
    const ours: number[] = [];
    const alone: number[] = [];
    for (let turn = 0; turn < TURNS; turn++) {
      ours.push(await processorSeconds([installed.berth, ...args]));
      alone.push(await processorSeconds([node, "-e", "0"]));
    }
    factors[args[0] ?? ""] = Math.min(...ours) / Math.min(...alone);
  }
  // As files of their own, what a call needs takes thirteen times as much as Node alone.
  for (const [name, factor] of Object.entries(factors)) expect(factor, name).toBeLessThan(7);
});
