import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import {
  copyFileSync,
  mkdirSync,
  mkdtempSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { readFile, readlink } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

const run = promisify(execFile);
const ROOT = fileURLToPath(new URL("../../..", import.meta.url));
const BIN = path.join(ROOT, "bin/berth");

let dir = "";
beforeAll(() => {
  dir = mkdtempSync(path.join(tmpdir(), "berth-bin-"));
});
afterAll(() => rmSync(dir, { recursive: true, force: true }));

function writeProgram(file: string, text: string): void {
  mkdirSync(path.dirname(file), { recursive: true });
  writeFileSync(file, text, { mode: 0o755 });
}

test("started through a link, it becomes the program: there is no other process", async () => {
  const link = path.join(dir, "berth");
  symlinkSync(BIN, link);
  const child = spawn(link, ["serve", "--engine", "bubblewrap", "--data-dir", path.join(dir, "data")], {
    env: { ...process.env, BERTH_LISTEN: "127.0.0.1:0" },
    stdio: ["ignore", "pipe", "inherit"],
  });
  const ended = once(child, "exit");
  try {
    await once(child.stdout, "data");
    expect(await readlink(`/proc/${child.pid}/exe`)).toBe(await readlink("/proc/self/exe"));
    expect(await readFile(`/proc/${child.pid}/cmdline`, "utf8")).toMatch(
      /\/(src\/main.ts|dist\/main.js)\0serve\0/,
    );
  } finally {
    child.kill("SIGTERM");
  }
  expect(await ended).toEqual([0, null]);
});

describe("SIGHUP", () => {
  /** Starts a service by a command. */
  function start(command: string, ...words: string[]) {
    const args = [...words, BIN, "serve", "--engine", "bubblewrap", "--data-dir", path.join(dir, "hung up")];
    const child = spawn(command, args, {
      env: { ...process.env, BERTH_LISTEN: "127.0.0.1:0" },
      stdio: ["ignore", "pipe", "pipe"],
    });
    const log: Buffer[] = [];
    child.stderr.on("data", (chunk) => log.push(chunk));
    const ended = once(child, "close").then(([exitCode]) => {
      return { exitCode, log: Buffer.concat(log).toString() };
    });
    return { child, ended };
  }

  test("does not end a service that was started by nohup", async () => {
    const { child, ended } = start("nohup");
    try {
      const [line] = await once(child.stdout, "data");
      child.kill("SIGHUP");
      // Once it answers a later request, it has also seen the signal.
      const port = /:(\d+);/.exec(String(line))?.[1];
      const status = fetch(`http://127.0.0.1:${port}/healthz`).then((answer) => answer.status);
      expect(await status.catch(() => "none")).toBe(200);
    } finally {
      child.kill("SIGTERM");
    }
    expect(await ended).toEqual({ exitCode: 0, log: expect.stringContaining("stopped by SIGTERM") });
  });

  test("ends one whose starter ignores other signals", async () => {
    const { child, ended } = start("sh", "-c", 'trap "" INT QUIT; exec "$0" "$@"');
    try {
      await once(child.stdout, "data");
    } finally {
      child.kill("SIGHUP");
    }
    expect(await ended).toEqual({ exitCode: 0, log: expect.stringContaining("stopped by SIGHUP") });
  });
});

describe("the Node it uses", () => {
  /** A Node that prints its place and its arguments. */
  const nodeIn = (place: string) =>
    writeProgram(path.join(dir, place, "node"), `#!/bin/sh\necho "${place}" "$@"\n`);

  test("is the one installed with it, in the package or next to it, else the one on PATH", async () => {
    const own = path.join(dir, "node_modules/berth");
    mkdirSync(path.join(own, "bin"), { recursive: true });
    copyFileSync(BIN, path.join(own, "bin/berth"));
    const said = async () =>
      (await run(path.join(own, "bin/berth"), ["a b", "c"], { env: { PATH: `${dir}/path:/usr/bin:/bin` } }))
        .stdout;
    nodeIn("path");
    expect(await said()).toBe(`path ${own}/dist/main.js a b c\n`);
    nodeIn("node_modules/node/bin");
    expect(await said()).toBe(`node_modules/node/bin ${own}/dist/main.js a b c\n`);
    nodeIn("node_modules/berth/node_modules/node/bin");
    expect(await said()).toBe(`node_modules/berth/node_modules/node/bin ${own}/dist/main.js a b c\n`);
  });

  test("must be new enough for sources; the error for an old or missing one says where to get one", async () => {
    const root = path.join(dir, "lone");
    writeProgram(path.join(root, "src/main.ts"), "");
    mkdirSync(path.join(root, "bin"));
    copyFileSync(BIN, path.join(root, "bin/berth"));
    // An old Node cannot run TypeScript.
    writeProgram(path.join(dir, "old/node"), '#!/bin/sh\n[ "$1" = --version ] && echo v20.0.0\nexit 1\n');
    const tools = path.join(dir, "tools");
    mkdirSync(tools);
    for (const name of ["readlink", "find"]) symlinkSync(`/usr/bin/${name}`, path.join(tools, name));
    const berth = (PATH: string) =>
      run("/bin/sh", [path.join(root, "bin/berth")], { env: { PATH } }).catch((error: unknown) => error);
    expect(await berth(`${dir}/old:${tools}`)).toMatchObject({
      code: 125,
      stderr: `berth: the sources need Node 24, and this is v20.0.0. Install it with the packages: npm ci --prefix ${root}\n`,
    });
    expect(await berth(tools)).toMatchObject({
      code: 125,
      stderr: expect.stringContaining("berth: this needs Node."),
    });
  });
});

describe("the program it runs", () => {
  const SOURCES = ["src/main.ts", "src/deep/other.ts", "gen/ts/x_pb.js", "clients/typescript/src/y.ts"];
  /** A checkout whose sources and build each print which of them runs. */
  const checkout = (name: string): string => {
    const root = path.join(dir, name);
    for (const file of [...SOURCES, "dist/main.js"])
      writeProgram(path.join(root, file), `console.log(${JSON.stringify(file.split("/")[0])});\n`);
    writeFileSync(path.join(root, "package.json"), '{"type": "module"}');
    mkdirSync(path.join(root, "bin"));
    copyFileSync(BIN, path.join(root, "bin/berth"));
    // Older than every source until it is built.
    utimesSync(path.join(root, "dist/main.js"), 1, 1);
    return root;
  };
  /** Marks the build as started after the last change of a source. */
  const build = (root: string): void => {
    const changed = Math.max(
      ...SOURCES.flatMap((file) => [path.dirname(file), file]).map(
        (file) => statSync(path.join(root, file)).ctimeMs,
      ),
      statSync(path.join(root, "src")).ctimeMs,
    );
    const began = Math.ceil(changed) / 1000;
    utimesSync(path.join(root, "dist/main.js"), began, began);
  };
  const runs = async (root: string): Promise<string> =>
    (await run(path.join(root, "bin/berth"))).stdout.trim();
  /** Changes a source once the clock of the file system is past the build's time. */
  const later = async (root: string, change: (root: string) => void): Promise<void> => {
    const began = statSync(path.join(root, "dist/main.js")).mtimeMs;
    const probe = path.join(root, "probe");
    do writeFileSync(probe, "");
    while (statSync(probe).ctimeMs <= began);
    change(root);
  };

  test("in a checkout is the build only if nothing has changed since it began", async () => {
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
    ["another client", (root) => writeFileSync(path.join(root, "clients/typescript/src/y.ts"), "")],
    ["newly generated code", (root) => writeFileSync(path.join(root, "gen/ts/x_pb.js"), "")],
  ])("a build is stale after: %s", async (what, change) => {
    const root = checkout(what.replaceAll(" ", "-"));
    build(root);
    expect(await runs(root)).toBe("dist");
    await later(root, change);
    expect(await runs(root)).toBe("src");
  });
});
