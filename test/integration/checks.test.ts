import { execFile } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

const ROOT = fileURLToPath(new URL("../..", import.meta.url));

let dir = "";
beforeAll(() => {
  dir = mkdtempSync(path.join(tmpdir(), "berth-checks-"));
});
afterAll(() => rmSync(dir, { recursive: true, force: true }));

/** A directory with these files, by path. */
function tree(files: Readonly<Record<string, string>>): string {
  const root = mkdtempSync(path.join(dir, "tree-"));
  for (const [file, content] of Object.entries(files)) {
    mkdirSync(path.dirname(path.join(root, file)), { recursive: true });
    writeFileSync(path.join(root, file), content);
  }
  return root;
}

/** Runs a program under this Node. Returns its exit code and all its output. */
function run(cwd: string, args: readonly string[]): Promise<{ exitCode: number; output: string }> {
  return new Promise((resolve) => {
    execFile(process.execPath, args, { cwd }, (error, stdout, stderr) =>
      resolve({ exitCode: error === null ? 0 : Number(error.code), output: stdout + stderr }),
    );
  });
}

describe("the English check", () => {
  const check = (files: Readonly<Record<string, string>>): ReturnType<typeof run> =>
    run(ROOT, [path.join(ROOT, "scripts/check-english.mjs"), tree(files)]);

  test("accepts plain words", async () => {
    const files = {
      "src/a.ts": "/** Reports the error. */\nexport const text = 'Fix it.';\n",
      "docs/a.md": "Berth keeps retrying.\n",
    };
    expect(await check(files)).toEqual({ exitCode: 0, output: "" });
  });

  test.each([
    ["a comment", "src/a.ts", "\n/** Whoever asks is told. */\n", 'src/a.ts:2: "told"'],
    ["a string", "src/a/b.ts", 'throw new Error("Mend it.");\n', 'src/a/b.ts:1: "Mend"'],
    ["a template", "src/a.ts", "const text = `It $" + "{has} begun`;\n", 'src/a.ts:1: "begun"'],
    [
      "two lines of a comment",
      "src/a.ts",
      "/**\n * It lets go\n * of it.\n */\n",
      'src/a.ts:2: "lets go of"',
    ],
    ["a proto's comment", "proto/a.proto", "// It begins anew.\n", 'proto/a.proto:1: "anew"'],
    ["a document", "docs/deep/a.md", "# Title\n\nTo whom?\n", 'docs/deep/a.md:3: "whom"'],
    ["the README", "README.md", "It tells.\n", 'README.md:1: "tells"'],
    ["a script", "scripts/a.sh", "echo 'mended'\n", 'scripts/a.sh:1: "mended"'],
  ])("refuses a word in %s, with its place and a replacement", async (_where, file, content, finding) => {
    const { exitCode, output } = await check({ [file]: content, "src/fine.ts": "// Fine.\n" });
    expect(exitCode).toBe(1);
    expect(output).toMatch(/^.+: write: .+\n1 finding in 1 file\.\n$/);
    expect(output.startsWith(finding)).toBe(true);
  });

  test("leaves names in code, code in documents and other folders alone", async () => {
    const files = {
      "src/a.ts": "export const finding = { mend: told };\n",
      "proto/a.proto": "message Told { string mend = 1; }\n",
      "docs/a.md": "`mend`\n\n```sh\necho told\n```\n\n[record](told.md)\n",
      "other/a.ts": "// told\n",
      "CHANGELOG.md": "told\n",
      "clients/typescript/LICENSE": "told\n",
      "clients/python/src/__pycache__/a.pyc": "told\n",
    };
    expect(await check(files)).toEqual({ exitCode: 0, output: "" });
  });
});

describe("the import check", () => {
  const check = (files: Readonly<Record<string, string>>): ReturnType<typeof run> => {
    const root = tree({ ...files, "tsconfig.json": "{}" });
    const cruise = path.join(ROOT, "node_modules/dependency-cruiser/bin/dependency-cruiser.mjs");
    return run(root, [cruise, "--config", path.join(ROOT, ".dependency-cruiser.cjs"), "src"]);
  };

  test("accepts an arrow down", async () => {
    const { exitCode, output } = await check({
      "src/sandboxes/y.ts": 'import { x } from "../base/x.ts";\nconsole.log(x);\n',
      "src/base/x.ts": "export const x = 1;\n",
    });
    expect(output).toContain("no dependency violations found (2 modules, 1 dependencies cruised)");
    expect(exitCode).toBe(0);
  });

  test("refuses an arrow up, by the rule of the folder", async () => {
    const { exitCode, output } = await check({
      "src/base/x.ts": 'import { y } from "../sandboxes/y.ts";\nconsole.log(y);\n',
      "src/sandboxes/y.ts": "export const y = 1;\n",
    });
    expect(output).toContain("error base-folder: src/base/x.ts → src/sandboxes/y.ts");
    expect(exitCode).toBe(1);
  });
});
