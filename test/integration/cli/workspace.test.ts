import { chmod, readFile, stat, symlink, writeFile } from "node:fs/promises";
import path from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type ProgramOptions, ServeProcess } from "../../support/program.ts";
import { makeTar } from "../../support/tar-builder.ts";

let serve: ServeProcess;
beforeAll(async () => {
  serve = await ServeProcess.start([
    "--engine",
    "bubblewrap",
    "--workspace-quota",
    "1GiB",
    "--shared-quota",
    "2GiB",
  ]);
});
afterAll(() => serve?.stop());

async function berth(args: readonly string[], options?: ProgramOptions): Promise<string> {
  const { exitCode, stdout, stderr } = await serve.runHere(["workspace", ...args], options);
  if (exitCode !== 0) throw new Error(`${exitCode}: ${stderr}`);
  return stdout.toString();
}

test("a workspace is made, mounted, listed, exported, imported and cleaned up", async () => {
  const directory = (await berth(["create", "job/1"])).trim();
  expect((await stat(directory)).isDirectory()).toBe(true);
  await berth(["add-ref", "job/1", "trace"]);
  expect(await berth(["add-ref", "job/2", "trace"])).toBe("moved from job/1\n");
  expect(await berth(["lookup", "trace"])).toBe("job/2\n");

  const tar = makeTar([{ name: "dir/file", content: "content" }]);
  expect(await berth(["import", "job/1"], { stdin: tar })).toBe("1 entries, 7 B\n");
  const sandbox = (await berth(["ensure", "job/1"])).trim();
  const { stdout } = await serve.runHere(["exec", sandbox, "--", "cat", "dir/file"]);
  expect(stdout.toString()).toBe("content");
  const fork = (await berth(["fork", "job/1", "fork/1"])).trim();
  expect(await readFile(path.join(fork, "dir/file"), "utf8")).toBe("content");
  const again = await serve.runHere(["workspace", "fork", "job/1", "fork/1"]);
  expect([again.exitCode, again.stderr]).toEqual([
    1,
    expect.stringContaining('a workspace "fork/1" already'),
  ]);
  expect(await berth(["diff", "job/1", "fork/1"])).toBe("");
  await chmod(path.join(fork, "dir/file"), 0o700);
  await writeFile(path.join(fork, "dir/file"), "changed!");
  await writeFile(path.join(fork, "new\nline"), "x");
  await symlink("somewhere", path.join(fork, "link"));
  const lines = "M dir/file (content, mode)\nA link\nA new\\nline\n";
  expect(await berth(["diff", "job/1", "fork/1"])).toBe(lines);
  const totals = "2 added (1 B), 0 removed (0 B), 1 modified (8 B)\n";
  const differs = await serve.runHere(["workspace", "diff", "--exit-code", "--summary", "job/1", "fork/1"]);
  expect([differs.exitCode, differs.stdout.toString()]).toEqual([1, totals]);
  await berth(["diff", "--exit-code", "fork/1", "fork/1"]);
  const unknown = await serve.runHere(["workspace", "diff", "--exit-code", "job/1", "unknown"]);
  expect([unknown.exitCode, unknown.stderr]).toEqual([125, expect.stringContaining("no workspace")]);
  const [change, ...rest] = (await berth(["diff", "--json", "job/1", "fork/1"])).trimEnd().split("\n");
  expect(JSON.parse(change ?? "")).toMatchObject({ path: "dir/file", baseFile: { sizeBytes: "7" } });
  expect(JSON.parse(rest.at(-1) ?? "")).toMatchObject({ summary: { addedCount: "2", modifiedBytes: "8" } });
  const archive = await serve.runHere(["workspace", "export", "job/1"]);
  expect(archive.stdout.includes("dir/file")).toBe(true);
  const shown = await berth(["show", "--measure", "job/1"]);
  expect(shown).toContain(directory);
  expect(shown).toMatch(/quota {6}1 GiB, watched/);
  expect(shown).toMatch(/shared {5}the owner.s files at \/shared/);
  const stats = await serve.runHere(["stats", "--measure"]);
  expect(stats.stdout.toString()).toMatch(/^shared directory +\S+ [KM]?i?B of 2 GiB, watched$/m);
  expect(await berth(["ls"])).toMatch(/job\/1 +0 .*sbx_[\s\S]*job\/2 +1/);
  expect(JSON.parse(await berth(["show", "job/2", "--json"]))).toMatchObject({
    workspace: { workspaceId: "job/2", traceRefs: ["trace"], refCount: 1 },
  });

  const refused = await serve.runHere(["workspace", "cleanup", "job/2"]);
  expect(refused.exitCode).toBe(1);
  expect(refused.stderr).toContain("1 trace refers to it");
  await berth(["remove-ref", "job/2", "trace"]);
  await berth(["cleanup", "job/2"]);
  await berth(["stop", "job/1"]);
  await berth(["cleanup", "--force", "job/1"]);
  await expect(stat(directory)).rejects.toThrow("ENOENT");
  expect((await serve.runHere(["workspace", "show", "job/1"])).stderr).toContain("There is no workspace");
});

test("a wrong command line is reported as such", async () => {
  expect((await serve.runHere(["workspace", "create"])).exitCode).toBe(2);
  expect((await serve.runHere(["workspace", "nonsense"])).exitCode).toBe(2);
  expect((await serve.runHere(["workspace", "cleanup", "x", "--nonsense"])).stderr).toMatch(/^berth: /);
});
