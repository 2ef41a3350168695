import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import {
  copyFileSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { chmod, readdir, readFile, readlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { Client } from "../../support/client.ts";
import { containersOf } from "../../support/docker.ts";
import { eventually } from "../../support/eventually.ts";
import { LocalShell } from "../../support/local-shell.ts";
import { endOf, runProgram, ServeProcess, startProgram } from "../../support/program.ts";

const ROOT = fileURLToPath(new URL("../../..", import.meta.url));
const VERSION = JSON.parse(readFileSync(path.join(ROOT, "package.json"), "utf8")).version;
const BIN = path.join(ROOT, "bin/berth.mjs");
const PATIENCE = { timeoutMs: 30_000 };

/** Has the program take the running Node for one that is too old; its child is not told. */
const OLD_NODE = [
  "--import",
  'data:text/javascript,Object.defineProperty(process,"versions",{value:{...process.versions,node:"20.20.2"}})',
  BIN,
];

async function childrenOf(pid: number): Promise<number[]> {
  const text = await readFile(`/proc/${pid}/task/${pid}/children`, "utf8");
  return text.split(" ").filter(Boolean).map(Number);
}

/** Whether some process of this machine was started with this word. */
async function runs(word: string): Promise<boolean> {
  const pids = (await readdir("/proc")).filter((name) => /^\d+$/.test(name));
  const lines = await Promise.all(
    pids.map((pid) => readFile(`/proc/${pid}/cmdline`, "utf8").catch(() => "")),
  );
  return lines.some((line) => line.split("\0").includes(word));
}

let server: ServeProcess;
beforeAll(async () => {
  server = await ServeProcess.start();
});
afterAll(() => server?.stop());

/** Whether something is so before long. */
function comesTrue(ask: () => boolean | Promise<boolean>): Promise<boolean> {
  return eventually(ask, { timeoutMs: 20_000 }).catch(() => false);
}

describe.each([
  ["under a Node that can", [BIN]],
  ["under an old one", OLD_NODE],
])("%s", (_what, entry) => {
  test("it runs and hands on the exit code", async () => {
    expect(await runProgram(["--version"], { entry })).toMatchObject({
      exitCode: 0,
      stdout: Buffer.from(`${VERSION}\n`),
      stderr: "",
    });
    expect((await runProgram(["nonsense"], { entry })).exitCode).toBe(2);
  });

  test("it passes stdin and signals on; one keystroke that comes twice is one", async () => {
    const piped = await server.run(["run", "--", "cat"], { entry, stdin: "through" });
    expect([piped.exitCode, piped.stdout.toString()]).toEqual([0, "through"]);
    const env = { BERTH_ADDRESS: server.address };
    const child = startProgram(["run", "--", "sh", "-c", "echo ready; sleep 600"], { entry, env });
    const end = endOf(child);
    await once(child.stdout, "data");
    child.kill("SIGINT");
    child.kill("SIGINT");
    expect(await end).toMatchObject({ exitCode: 130, stderr: "berth: stopped by SIGINT\n" });
    expect(await containersOf(server.instance)).toEqual([]);
  });

  test("at a terminal it stops, goes on and ends as one program", async () => {
    const client = new Client(server.address);
    const { sandbox_id: id } = await client.createSandbox();
    const shell = await LocalShell.start(server.address, entry);
    const { terminal } = shell;
    try {
      const before = await shell.settings();
      await terminal.enter(`berth shell ${id} -- sh`);
      await terminal.shows(/^[$#]$/m);
      process.kill(await shell.foregroundPid(), "SIGTSTP");
      await terminal.shows(/\[1\] .*Stopped.*\nlocal\$$/);
      expect(await shell.settings()).toBe(before);
      await terminal.enter("fg");
      await terminal.enter("echo on again");
      await terminal.shows(/^on again\n/m);
      process.kill(await shell.foregroundPid(), "SIGQUIT");
      expect(await shell.exitCode()).toBe(131);
      expect(await shell.settings()).toBe(before);
      await terminal.enter(`clear; berth exec ${id} -- sh -c 'echo started; sleep 1000'`);
      await terminal.shows(/^started$/m);
      await terminal.press("C-z");
      await terminal.shows(/Stopped[^$]*\nlocal\$$/);
      // What is pressed before the program has the terminal back is the shell's.
      await shell.foreground();
      await terminal.press("C-c");
      expect(await shell.exitCode()).toBe(130);
    } finally {
      await shell.dispose();
      await client.deleteSandbox(id);
      client.close();
    }
  });
});

test("an old Node's program ends in an orderly way when asked to, and when killed takes all it started along", async () => {
  const start = () => ServeProcess.start(["--engine", "bubblewrap"], {}, { entry: OLD_NODE });
  expect(await (await start()).stop("SIGTERM")).toMatchObject({ exitCode: 0, signal: null });

  const service = await start();
  const [started = 0, ...more] = await childrenOf(service.pid);
  expect(more).toEqual([]);
  const client = new Client(service.address);
  try {
    const { sandbox_id: id } = await client.createSandbox();
    const word = `1000.${service.pid}`;
    const lost = client.exec(id, `sleep ${word}`).result.catch(() => {});
    await eventually(() => runs(word), PATIENCE);
    service.signal("SIGKILL");
    expect(await comesTrue(() => !existsSync(`/proc/${started}`))).toBe(true);
    expect(await comesTrue(async () => !(await runs(word)))).toBe(true);
    expect(await service.end).toMatchObject({ signal: "SIGKILL" });
    await lost;
  } finally {
    client.close();
    if (existsSync(`/proc/${started}`)) process.kill(started, "SIGKILL");
    await service.dispose();
  }
});

test("an old Node's program ends by the signal that ended the one it started", async () => {
  const service = await ServeProcess.start(["--engine", "bubblewrap"], {}, { entry: OLD_NODE });
  const [child = 0] = await childrenOf(service.pid);
  process.kill(child, "SIGKILL");
  expect(await service.end).toMatchObject({ exitCode: null, signal: "SIGKILL" });
});

describe("bin/berth", () => {
  const run = promisify(execFile);
  let dir = "";
  beforeAll(() => {
    dir = mkdtempSync(path.join(tmpdir(), "berth-bin-"));
  });
  afterAll(() => rmSync(dir, { recursive: true, force: true }));

  test("found by a link to it, becomes the program: there is no other process", async () => {
    const link = path.join(dir, "berth");
    symlinkSync(path.join(ROOT, "bin/berth"), link);
    const child = spawn(link, ["serve", "--engine", "bubblewrap", "--data-dir", path.join(dir, "data")], {
      env: { ...process.env, BERTH_LISTEN: "127.0.0.1:0" },
      stdio: ["ignore", "pipe", "inherit"],
    });
    const ended = once(child, "exit");
    try {
      await once(child.stdout, "data");
      const exe = await readlink(`/proc/${child.pid}/exe`);
      expect(exe).toBe(await readlink("/proc/self/exe"));
      expect(await readFile(`/proc/${child.pid}/cmdline`, "utf8")).toContain(`${BIN}\0serve\0`);
    } finally {
      child.kill("SIGTERM");
    }
    expect(await ended).toEqual([0, null]);
  });

  test("takes the Node that was installed with it, in the package or beside it, else the one at hand", async () => {
    const own = path.join(dir, "node_modules/berth");
    const nodeIn = async (place: string): Promise<void> => {
      mkdirSync(place, { recursive: true });
      await writeFile(path.join(place, "node"), `#!/bin/sh\necho "${path.relative(dir, place)}" "$@"\n`);
      await chmod(path.join(place, "node"), 0o755);
    };
    mkdirSync(path.join(own, "bin"), { recursive: true });
    copyFileSync(path.join(ROOT, "bin/berth"), path.join(own, "bin/berth"));
    const said = async () =>
      (await run(path.join(own, "bin/berth"), ["a b", "c"], { env: { PATH: `${dir}/path:/usr/bin:/bin` } }))
        .stdout;
    await nodeIn(path.join(dir, "path"));
    expect(await said()).toBe(`path ${own}/bin/berth.mjs a b c\n`);
    await nodeIn(path.join(dir, "node_modules/node/bin"));
    expect(await said()).toBe(`node_modules/node/bin ${own}/bin/berth.mjs a b c\n`);
    await nodeIn(path.join(own, "node_modules/node/bin"));
    expect(await said()).toBe(`node_modules/berth/node_modules/node/bin ${own}/bin/berth.mjs a b c\n`);
  });
});

describe("what bin/berth.mjs runs", () => {
  const run = promisify(execFile);
  let dir = "";
  beforeAll(() => {
    dir = mkdtempSync(path.join(tmpdir(), "berth-sources-"));
  });
  afterAll(() => rmSync(dir, { recursive: true, force: true }));

  /** A checkout whose sources and whose build print which of them runs, and where it is. */
  const checkout = (name: string): string => {
    const root = path.join(dir, name);
    for (const file of ["src/main.ts", "src/deep/other.ts", "gen/ts/x_pb.js", "dist/src/main.js"]) {
      mkdirSync(path.dirname(path.join(root, file)), { recursive: true });
      writeFileSync(path.join(root, file), `console.log(${JSON.stringify(file.split("/")[0])});\n`);
    }
    writeFileSync(path.join(root, "package.json"), '{"type": "module"}');
    mkdirSync(path.join(root, "bin"));
    copyFileSync(BIN, path.join(root, "bin/berth.mjs"));
    return root;
  };
  /** Marks the build as begun after the last change of a source, as far as the clock of files can tell. */
  const build = (root: string): void => {
    const stamp = path.join(root, "dist/.built");
    const changed = Math.max(
      ...["src", "src/deep", "src/deep/other.ts", "gen/ts", "gen/ts/x_pb.js"].map(
        (file) => statSync(path.join(root, file)).ctimeMs,
      ),
    );
    do writeFileSync(stamp, "");
    while (statSync(stamp).mtimeMs <= changed);
  };
  const runs = async (root: string): Promise<string> =>
    (await run(process.execPath, [path.join(root, "bin/berth.mjs")])).stdout.trim();

  test("in a checkout the build only where nothing has changed since it began", async () => {
    const root = checkout("fresh");
    expect(await runs(root)).toBe("src");
    build(root);
    expect(await runs(root)).toBe("dist");
    rmSync(path.join(root, "dist"), { recursive: true });
    expect(await runs(root)).toBe("src");
  });

  const source = (root: string): string => path.join(root, "src/deep/other.ts");
  test.each<[string, (root: string) => void]>([
    ["an edited source", (root) => writeFileSync(source(root), "")],
    [
      "an older source that was copied over a newer one",
      (root) => {
        writeFileSync(source(root), "");
        utimesSync(source(root), 1, 1);
      },
    ],
    ["a new source", (root) => writeFileSync(path.join(root, "src/deep/new.ts"), "")],
    ["a renamed source", (root) => renameSync(source(root), path.join(root, "src/deep/renamed.ts"))],
    ["a deleted source", (root) => rmSync(source(root))],
    ["newly generated code", (root) => writeFileSync(path.join(root, "gen/ts/x_pb.js"), "")],
  ])("a build is stale after: %s", async (what, change) => {
    const root = checkout(what.replaceAll(" ", "-"));
    build(root);
    change(root);
    expect(await runs(root)).toBe("src");
  });

  test("below node_modules, where sources cannot run, the build", async () => {
    const root = checkout("package");
    const installed = path.join(dir, "app/node_modules/berth");
    cpSync(root, installed, { recursive: true });
    expect(await runs(installed)).toBe("dist");
  });
});
