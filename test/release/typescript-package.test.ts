import { type ExecFileException, execFile } from "node:child_process";
import { copyFile, mkdir, mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, expect, test } from "vitest";
import { ServeProcess } from "../support/program.ts";

const run = promisify(execFile);
const root = path.join(import.meta.dirname, "../..");
const client = path.join(root, "clients/typescript");
/** The program itself, as a package: the oldest Node that the client supports, whatever this machine has. */
const OLD_NODE = `node-linux-${process.arch}@20.9.0`;
const TSC = path.join(root, "node_modules/typescript/bin/tsc6");

let directory: string;
let project: string;
let tarball: string;
let service: ServeProcess;

/** Runs a program in the clean project; on failure, shows what it wrote. */
async function passes(file: string, args: readonly string[], cwd = project): Promise<string> {
  const { PATH = "", HOME = "" } = process.env;
  // What npm is set up by is wherever the machine has it; no proxy comes between the others and the service.
  const env = file === "npm" ? process.env : { PATH, HOME, BERTH_ADDRESS: service.address, NO_COLOR: "1" };
  try {
    return (await run(file, [...args], { cwd, env, maxBuffer: 64 << 20 })).stdout;
  } catch (error) {
    const { stdout, stderr } = error as ExecFileException & { stdout: string; stderr: string };
    throw new Error(`${path.basename(file)} ${args.join(" ")} failed:\n${stdout}\n${stderr}`);
  }
}

beforeAll(async () => {
  directory = await mkdtemp(path.join(tmpdir(), "berth-package-"));
  project = path.join(directory, "project");
  await mkdir(project);
  service = await ServeProcess.start([], { BERTH_ENGINE: "bubblewrap" });
  await passes("npm", ["pack", "--silent", "--pack-destination", directory], client);
  tarball = path.join(directory, (await readdir(directory)).find((name) => name.endsWith(".tgz")) ?? "");
  await writeFile(path.join(project, "package.json"), '{ "type": "module", "private": true }');
  await passes("npm", [
    "install",
    "--silent",
    "--prefer-offline",
    "--no-audit",
    "--no-fund",
    tarball,
    OLD_NODE,
  ]);
}, 900_000);

afterAll(async () => {
  await service?.dispose();
  if (directory) await rm(directory, { recursive: true, force: true });
});

test("holds what is built, with maps and types, and nothing else", async () => {
  const { stdout } = await run("tar", ["-tzf", tarball]);
  const files = stdout.trim().split("\n");
  const dist = files.filter((name) => name.startsWith("package/dist/"));
  const others = files.filter((name) => !dist.includes(name));
  expect(others.sort()).toEqual(["package/LICENSE", "package/README.md", "package/package.json"]);
  const unexpected = dist.filter(
    (name) => !/^package\/dist\/(v1\/\w+_pb|[\w-]+)\.(js|d\.ts|js\.map)$/.test(name),
  );
  expect(unexpected).toEqual([]);
  const sources = (await readdir(path.join(client, "src"))).filter((name) => name.endsWith(".ts"));
  for (const source of sources) {
    for (const end of [".js", ".d.ts", ".js.map"]) {
      expect(dist).toContain(`package/dist/${source.replace(/\.ts$/, end)}`);
    }
  }
  expect(dist).toContain("package/dist/v1/process_pb.d.ts");
});

test("runs every block of its README, and its example, in Node 20", async () => {
  const readme = await readFile(path.join(client, "README.md"), "utf8");
  const blocks = [...readme.matchAll(/^```ts\n(.*?)^```$/gms)].map(([, block = ""]) => block);
  expect(blocks.length).toBeGreaterThanOrEqual(9);
  await Promise.all([
    ...blocks.map((block, index) => writeFile(path.join(project, `block-${index}.ts`), block)),
    copyFile(path.join(client, "examples/fix-test.ts"), path.join(project, "fix-test.ts")),
  ]);
  const types = path.join(root, "node_modules/@types");
  const strict = [
    "--strict",
    "--exactOptionalPropertyTypes",
    "--noUncheckedIndexedAccess",
    "--skipLibCheck",
    "false",
  ];
  const language = ["--target", "es2022", "--lib", "es2023,dom,esnext.disposable", "--module", "nodenext"];
  const names = [...blocks.keys()].map((index) => `block-${index}`);
  const files = ["fix-test.ts", ...names.map((name) => `${name}.ts`)];
  await passes(process.execPath, [
    TSC,
    ...strict,
    ...language,
    "--typeRoots",
    types,
    "--types",
    "node",
    ...files,
  ]);

  const [name = ""] = OLD_NODE.split("@");
  const node = path.join(project, "node_modules", name, "bin/node");
  expect(await passes(node, ["--version"])).toMatch(/^v20\./);
  const printed: string[] = [];
  for (const each of names) printed.push(await passes(node, [`${each}.js`]));
  expect(printed[0]).toBe("42\n 0\nstdout 1\n\nstdout 2\n\nstdout 3\n\nhello\n\n[ 'today.txt' ]\n");
  expect(printed[1]).toBe("got one\n\nEXITED 0\nready\n\nSIGNALED\nTimeoutError\n");
  expect(printed[2]).toBe("1000000\n1000000\n{ entryCount: 1, size: 1000000 }\nnew.txt\n");
  expect(printed[3]).toBe("[ 'result.txt' ]\n");
  expect(printed[4]).toMatch(/^cores: [\d.]+\nbytes: \d+ of 536870912\nprocesses: \d+ of 512\n$/);
  expect(printed[7]).toBe("Step 1: 1\nStep 2: 2\nStep 3: 3\n");
  expect(printed[8]).toContain("NOT_FOUND");
  expect(await passes(node, ["fix-test.js"])).toMatch(/\nFINISHED\n$/);
});

test("has the types for Node by a name of their own, which a bundler's resolution does not find by itself", async () => {
  await writeFile(
    path.join(project, "bundled.ts"),
    `import { Berth } from "@berth/client/node";
     export const berth = Berth.connect("berth.example:7070", { tls: { serverName: "berth" }, tokenFile: "token" });`,
  );
  const language = ["--strict", "--target", "es2022", "--lib", "es2023,dom,esnext.disposable"];
  const resolution = ["--module", "esnext", "--moduleResolution", "bundler"];
  expect(await passes(process.execPath, [TSC, "--noEmit", ...language, ...resolution, "bundled.ts"])).toBe(
    "",
  );
});

test("memory stays flat while output streams", async () => {
  await writeFile(
    path.join(project, "stream.js"),
    `import { Berth } from "@berth/client";
     const berth = Berth.connect();
     const sandbox = await berth.sandboxes.create();
     let read = 0;
     let most = 0;
     for await (const { data } of sandbox.exec("head -c 200000000 /dev/zero")) {
       const before = read;
       read += data.length;
       if (Math.floor(read / 2e7) === Math.floor(before / 2e7)) continue;
       gc();
       most = Math.max(most, process.memoryUsage().arrayBuffers);
     }
     console.log(JSON.stringify({ read, most }));
     await sandbox.delete();
     await berth.close();`,
  );
  const { read, most } = JSON.parse(await passes(process.execPath, ["--expose-gc", "stream.js"]));
  expect(read).toBe(200_000_000);
  expect(most).toBeLessThan(50_000_000);
});

test("runs in Deno", async () => {
  const deno = path.join(root, "node_modules/deno/deno");
  const readme = await readFile(path.join(client, "README.md"), "utf8");
  const blocks = [...readme.matchAll(/^```ts\n(.*?)^```$/gms)].slice(0, 3);
  const printed: string[] = [];
  for (const [index, [, block = ""]] of blocks.entries()) {
    const file = `deno-${index}.ts`;
    await writeFile(path.join(project, file), block);
    const modules = ["--no-config", "--node-modules-dir=manual", "--cached-only"];
    printed.push(await passes(deno, ["run", ...modules, "--allow-net", "--allow-env", file]));
  }
  expect(printed).toEqual([
    '42\n 0\nstdout 1\n\nstdout 2\n\nstdout 3\n\nhello\n\n[ "today.txt" ]\n',
    "got one\n\nEXITED 0\nready\n\nSIGNALED\nTimeoutError\n",
    "1000000\n1000000\n{ entryCount: 1, size: 1000000 }\nnew.txt\n",
  ]);
});
