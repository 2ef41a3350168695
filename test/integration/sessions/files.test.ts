import { beforeAll, describe, expect, test } from "vitest";
import { useApp } from "../../support/app.ts";
import { failureOf } from "../../support/client.ts";
import { ENGINES } from "../../support/engines.ts";
import { BUSYBOX_IMAGE } from "../../support/images.ts";
import { seconds } from "../../support/wire.ts";
import { Worker } from "../../support/worker.ts";

describe.each(ENGINES)("on $name", ({ settings }) => {
  const app = useApp(settings);
  let worker: Worker;
  let sandboxId = "";

  beforeAll(async () => {
    worker = new Worker(app.client, "writer");
    const { status, session } = await worker.create("files");
    expect(status).toBe("SESSION_RESULT_STATUS_CREATED");
    sandboxId = session?.sandbox_id ?? "";
  });

  const inside = (line: string): Promise<string> => app.client.output(sandboxId, line);

  test("a file is written with its directories, read, and edited", async () => {
    expect(
      await worker.execute("files:write", { file_path: "src/a.txt", content: "one\ntwo\nthree\n" }),
    ).toMatchObject({
      code: 0,
      data: { file_path: "/workspace/src/a.txt", bytes_written: 14, line_count: 3 },
    });
    expect((await worker.execute("files:read", { file_path: "src/a.txt" })).data).toEqual({
      content: "   1→one\n   2→two\n   3→three\n",
      start_line: 1,
      line_count: 3,
      truncated: false,
    });
    expect(
      (await worker.execute("files:read", { file_path: "/workspace/src/a.txt", offset: 2, limit: 1 })).data,
    ).toEqual({
      content: "   2→two\n",
      start_line: 2,
      line_count: 1,
      truncated: true,
    });
    const plain = { file_path: "src/a.txt", numbered: false };
    expect((await worker.execute("files:read", plain)).data).toMatchObject({
      content: "one\ntwo\nthree\n",
      line_count: 3,
    });
    const edit = (old: string, changed: string, more = {}) =>
      worker.execute("files:edit", { file_path: "src/a.txt", old_string: old, new_string: changed, ...more });
    expect((await edit("two", "zwei")).data).toMatchObject({ replacements: 1 });
    expect(await edit("e", "E")).toMatchObject({ code: 4001, message: expect.stringContaining("4 times") });
    expect((await edit("e", "E", { replace_all: true })).data).toMatchObject({ replacements: 4 });
    expect(await inside("cat src/a.txt")).toBe("onE\nzwEi\nthrEE\n");
    expect(await edit("nowhere", "x")).toMatchObject({ code: 4001 });
  });

  test("files are found in byte order, whatever characters their names have", async () => {
    // A private character and one beyond 16 bits, whose halves come before it, and bytes that are no characters.
    await inside("mkdir order; cd order; touch b B $(printf '\\360\\237\\230\\200 \\356\\200\\200 \\377')");
    const { data } = await worker.execute("files:glob", { pattern: "*", path: "order" });
    expect(data.files).toEqual(
      ["B", "b", "\ue000", "😀", "\ufffd"].map((name) => `/workspace/order/${name}`),
    );
  });

  test("a pattern that starts with ./ or the directory means the same, and one that leaves it is refused", async () => {
    await inside("mkdir -p g/deep; echo word > g/a.txt; echo word > g/deep/b.txt");
    const files = async (pattern: string, path = "g") =>
      (await worker.execute("files:glob", { pattern, path })).data.files;
    expect(await files("./*.txt")).toEqual(["/workspace/g/a.txt"]);
    expect(await files("/workspace/g/**/*.txt")).toEqual(["/workspace/g/a.txt", "/workspace/g/deep/b.txt"]);
    expect(await files("/workspace/g/*.txt", ".")).toEqual(["/workspace/g/a.txt"]);
    for (const pattern of [".//./deep//*.txt", "deep/./*.txt", "/workspace//g/./deep/*.txt"])
      expect(await files(pattern), pattern).toEqual(["/workspace/g/deep/b.txt"]);
    for (const pattern of [".", "./", "/workspace/g/"])
      expect(await files(pattern), pattern).toEqual(["/workspace/g/a.txt", "/workspace/g/deep/b.txt"]);
    for (const pattern of ["deep/", "d*//"])
      expect(await files(pattern), pattern).toEqual(["/workspace/g/deep/b.txt"]);
    await inside("ln -s g linked");
    for (const pattern of ["/workspace/linked/*.txt", "/workspace/g/*.txt"])
      expect(await files(pattern, "linked"), pattern).toEqual(["/workspace/g/a.txt"]);
    const grep = { pattern: "word", path: "g" };
    for (const [glob, path] of [
      ["./*.txt", "g"],
      ["/workspace/g/*.txt", "g"],
      ["./*.txt", "g/a.txt"],
      ["**/a.txt", "g/a.txt"],
    ]) {
      const { data } = await worker.execute("files:grep", { ...grep, glob, path });
      expect(data.matches, `${glob} ${path}`).toEqual([
        { path: "/workspace/g/a.txt", line: 1, text: "word" },
      ]);
    }
    const deep = await worker.execute("files:grep", { ...grep, glob: "deep/" });
    expect(deep.data.matches).toEqual([{ path: "/workspace/g/deep/b.txt", line: 1, text: "word" }]);
    for (const pattern of ["/etc/*", "../*", "deep/../*.txt", "/workspace/other/*"]) {
      const message = expect.stringContaining("params.pattern: ");
      expect(await failureOf(worker.execute("files:glob", { pattern, path: "g" }))).toMatchObject({
        reason: "INVALID_ARGUMENT",
        message,
      });
      expect(await failureOf(worker.execute("files:grep", { ...grep, glob: pattern }))).toMatchObject({
        reason: "INVALID_ARGUMENT",
      });
    }
  });

  test("grep refuses a pattern with a line break: it would look for either line", async () => {
    await inside("mkdir -p h; printf 'one\\ntwo\\n' > h/x");
    for (const pattern of ["two\n", "none\ntwo", "(?:two)\n"]) {
      expect(await failureOf(worker.execute("files:grep", { pattern, path: "h" }))).toMatchObject({
        reason: "INVALID_ARGUMENT",
        message: expect.stringContaining("line break"),
      });
    }
  });

  test("glob and grep find files and lines", async () => {
    await inside(
      "mkdir -p s/deep s/.git; echo needle > s/deep/x.py; echo nothing > s/y.py; echo 'a needle: b' > s/z.md; echo needle > s/.git/q.py",
    );
    expect((await worker.execute("files:glob", { pattern: "**/*.py", path: "s" })).data).toEqual({
      files: ["/workspace/s/deep/x.py", "/workspace/s/y.py"],
      truncated: false,
    });
    const { data } = await worker.execute("files:grep", { pattern: "need(le)", path: "s" });
    expect(data).toMatchObject({ truncated: false });
    expect(
      (data as { matches: { path: string }[] }).matches.sort((a, b) => (a.path < b.path ? -1 : 1)),
    ).toEqual([
      { path: "/workspace/s/deep/x.py", line: 1, text: "needle" },
      { path: "/workspace/s/z.md", line: 1, text: "a needle: b" },
    ]);
    expect((await worker.execute("files:grep", { pattern: "needle", glob: "*.md" })).data).toMatchObject({
      matches: [{ path: "/workspace/s/z.md" }],
    });
    expect((await worker.execute("files:grep", { pattern: "no such thing" })).data).toEqual({
      matches: [],
      truncated: false,
    });
    expect(await worker.execute("files:grep", { pattern: "(" })).toMatchObject({ code: 4001 });
  });

  test("grep distinguishes names from lines", async () => {
    await inside(MAKE_ODD_NAMES);
    expect(await matchesOf(worker, { pattern: "needle", path: "odd" })).toEqual(ODD_MATCHES);
    await inside("rm -r odd");
  });

  test("grep supports Perl's syntax, or says that it does not", async () => {
    await inside("mkdir -p p; printf 'call(42)\\nword\\nfoobar\\nfoobaz\\n[\\\\d]\\n' > p/x");
    const found = async (pattern: string) => {
      const { data } = await worker.execute<{ matches: { text: string }[] }>("files:grep", {
        pattern,
        path: "p",
      });
      return data.matches.map(({ text }) => text);
    };
    expect(await found("\\d+")).toEqual(["call(42)"]);
    expect(await found("c(?:al)l\\([\\d]")).toEqual(["call(42)"]);
    expect(await found("foo(?=baz)")).toEqual(["foobaz"]);
    expect(await found("^\\w+?\\d?$")).toEqual(["word", "foobar", "foobaz"]);
    // Extended regular expressions are not converted.
    expect(await found("\\<word\\>|foo{1}bar")).toEqual(["word", "foobar"]);
    expect(await found("[[:digit:]]+")).toEqual(["call(42)"]);
    expect(await worker.execute("files:grep", { pattern: "\\<\\d", path: "p" })).toMatchObject({
      code: 4001,
      message: expect.stringContaining("mixes"),
    });
    // The sandbox ends catastrophic backtracking.
    await inside("{ printf 'a%.0s' $(seq 1 5000); echo '!'; } > p/long");
    expect(await worker.execute("files:grep", { pattern: "^(?:a+)+$", path: "p" })).toMatchObject({
      code: 4001,
    });
    await inside("rm -r p");
  });

  test("a problem with a file is the tool's failure", async () => {
    await inside("mkdir -p dir; head -c 100 /dev/urandom > binary; printf '\\377\\0' >> binary");
    for (const path of ["missing", "dir", "binary"]) {
      const { code, message } = await worker.execute("files:read", { file_path: path });
      expect({ path, code }).toEqual({ path, code: 4001 });
      expect(message).not.toBe("success");
    }
    for (const tool of ["files:glob", "files:grep"]) {
      expect(await worker.execute(tool, { pattern: "x", path: "missing" })).toMatchObject({
        code: 4001,
        message: '"/workspace/missing": there is no such file or directory.',
      });
    }
  });

  test("glob and grep find what there is next to megabytes of other names and lines", async () => {
    const deep = `many/${"d".repeat(250)}/${"e".repeat(250)}/${"f".repeat(250)}`;
    const touch = (format: string, from: number, to: number) =>
      `seq -f ${format} ${from} ${to} | xargs touch`;
    const touches = [touch("%g.py", 1, 450), touch("%0250.0f", 1, 9000), touch("%g.py", 451, 900)];
    await inside(`mkdir -p ${deep}; cd ${deep}; ${touches.join("; ")}`);
    const { data } = await worker.execute<{ files: unknown[] }>("files:glob", { pattern: "many/**/*.py" });
    expect(data).toMatchObject({ truncated: false });
    expect(data.files).toHaveLength(900);
    const lines = "yes \"$(printf 'needle%200s' x)\" | head -n 50000";
    await inside(`mkdir logs; cd logs; echo needle > a.py; ${lines} > 1; ${lines} > 2; echo needle > b.py`);
    const search = { pattern: "needle", path: "logs", glob: "*.py" };
    expect((await worker.execute("files:grep", search)).data).toEqual({
      matches: expect.arrayContaining([
        { path: "/workspace/logs/a.py", line: 1, text: "needle" },
        { path: "/workspace/logs/b.py", line: 1, text: "needle" },
      ]),
      truncated: false,
    });
    const all = await worker.execute<{ matches: unknown[] }>("files:grep", {
      pattern: "needle",
      path: "logs",
    });
    expect([all.data.matches.length, all.data]).toMatchObject([1000, { truncated: true }]);
    await inside("rm -r many logs");
  });

  test("grep of a pipe finds nothing, and does not wait for a writer", async () => {
    await inside("mkfifo pipe");
    const search = { pattern: "x", path: "pipe" };
    expect(await worker.execute("files:grep", search, { timeout: seconds(20) })).toMatchObject({
      code: 0,
      data: { matches: [], truncated: false },
    });
    await inside("rm pipe");
  });

  test.each([
    ["is too long", "x".repeat(200_000), "must have at most 10000 characters"],
    ["has a NUL", "a\0b", "must not contain a NUL byte"],
  ])("a pattern that %s is refused", async (_, pattern, problem) => {
    expect(await failureOf(worker.execute("files:grep", { pattern }))).toMatchObject({
      code: "INVALID_ARGUMENT",
      message: expect.stringContaining(`params.pattern: ${problem}`),
    });
  });

  test.each([
    ["..", "../etc/passwd"],
    ["an absolute path", "/etc/passwd"],
    ["a link to a file", "link"],
    ["a link to a directory", "linked/passwd"],
    ["a link that leads nowhere", "dangling"],
    ["a neighbour whose name begins alike", "/workspace2/x"],
  ])("a path that leaves the workspace by %s is refused", async (_, path) => {
    await inside("ln -sfn /etc/passwd link; ln -sfn /etc linked; ln -sfn /tmp/new dangling");
    for (const [tool, params] of [
      ["files:read", { file_path: path }],
      ["files:write", { file_path: path, content: "x" }],
      ["files:edit", { file_path: path, old_string: "root", new_string: "toor" }],
      ["files:grep", { pattern: "root", path }],
    ] as const) {
      await expect(worker.execute(tool, params)).rejects.toThrow(
        /INVALID_ARGUMENT: params\.\w+: .* leaves the session's workspace/,
      );
    }
  });

  test("the end of a large file is reached without reading it at once", async () => {
    await inside("seq 1 300000 > large; printf '%1500000s' x > line");
    expect((await worker.execute("files:read", { file_path: "large", offset: 299_999 })).data).toMatchObject({
      content: "299999→299999\n300000→300000\n",
      truncated: false,
    });
    expect((await worker.execute("files:read", { file_path: "large" })).data).toMatchObject({
      line_count: 2000,
      truncated: true,
    });
    const { data } = await worker.execute<{ content: string; truncated: boolean }>("files:read", {
      file_path: "line",
      numbered: false,
    });
    expect([data.content.length, data.truncated]).toEqual([1024 * 1024, true]);
  });
});

// bubblewrap's sandboxes use this machine's grep.
describe("on docker, with busybox's grep", () => {
  const app = useApp({ engine: "docker" });
  let worker: Worker;
  let sandboxId = "";

  beforeAll(async () => {
    worker = new Worker(app.client, "small");
    sandboxId = (await app.client.createSandbox({ image: BUSYBOX_IMAGE })).sandbox_id;
    await worker.create("files", undefined, { sandbox_id: sandboxId });
  });

  test("a pattern of Perl's syntax is refused, with what to write", async () => {
    await app.client.output(sandboxId, "echo 42 > x");
    expect(await worker.execute("files:grep", { pattern: "\\d" })).toMatchObject({
      code: 4001,
      message: expect.stringContaining("Perl's syntax (\\d)"),
    });
  });

  test("grep finds lines of text files, whatever their names", async () => {
    await app.client.output(sandboxId, MAKE_ODD_NAMES);
    expect(await matchesOf(worker, { pattern: "need(le)", path: "odd" })).toEqual(ODD_MATCHES);
    const one = { path: "/workspace/odd/plain.md", line: 3, text: "a needle: b" };
    expect(await matchesOf(worker, { pattern: "needle:", path: "odd" })).toEqual([one]);
    expect(await matchesOf(worker, { pattern: "needle:", path: "odd/plain.md" })).toEqual([one]);
    expect(await matchesOf(worker, { pattern: "needle", path: "odd", glob: "*.md" })).toEqual([one]);
    expect(await matchesOf(worker, { pattern: "no such thing", path: "odd" })).toEqual([]);
    expect(await worker.execute("files:grep", { pattern: "(", path: "odd" })).toMatchObject({ code: 4001 });
  });
});

interface Match {
  readonly path: string;
  readonly line: number;
  readonly text: string;
}

/** Names that could confuse a search, files that it skips, and lines to find. */
const MAKE_ODD_NAMES = String.raw`mkdir -p odd/.git 'odd/*
a:1:b'; cd odd
printf 'x\n\na needle: b\n' >plain.md; echo nothing >other.md
echo needle >.git/x; printf 'needle\n\0' >binary
for name in '*
a:1:b/file' a:7:needle 'back\slash' ' space ' -e 'ends
'; do printf '\tneedle\\n' >"./$name"; done`;

const ODD_MATCHES: readonly Match[] = [
  ...[" space ", "*\na:1:b/file", "-e", "a:7:needle", "back\\slash", "ends\n"].map((name) => ({
    path: `/workspace/odd/${name}`,
    line: 1,
    text: "\tneedle\\n",
  })),
  { path: "/workspace/odd/plain.md", line: 3, text: "a needle: b" },
];

async function matchesOf(
  worker: Worker,
  params: { readonly pattern: string; readonly path: string; readonly glob?: string },
): Promise<Match[]> {
  const { code, message, data } = await worker.execute<{ matches: Match[] }>("files:grep", params);
  expect({ code, message }).toMatchObject({ code: 0 });
  return data.matches.sort((a, b) => (a.path < b.path ? -1 : 1));
}
