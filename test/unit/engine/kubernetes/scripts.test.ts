import { spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import fc from "fast-check";
import { expect, onTestFinished, test } from "vitest";
import {
  PROBE_COMMAND,
  parseUsage,
  type SpawnText,
  spawnText,
  USAGE_COMMAND,
} from "../../../../src/engine/kubernetes/scripts.ts";
import { codePoint } from "../../../support/code-point.ts";
import { processorMs } from "../../../support/measure.ts";

const request: SpawnText = {
  endNonce: "e".repeat(32),
  startNonce: "s".repeat(32),
  user: "",
  terminal: false,
  stdin: true,
  setsHome: false,
  env: {},
  argv: ["true"],
};

/** The words that a shell parses from a request, as the script in the pod would. */
function wordsOf(text: Buffer, shell = "/bin/sh", env = process.env): string[] {
  const script = `BERTHZ_NL='
'
BERTHZ_Q= BERTHZ_L=
while IFS= read -r BERTHZ_L && [ "$BERTHZ_L" ]; do BERTHZ_Q=$BERTHZ_Q$BERTHZ_L; done
eval "$BERTHZ_Q"
printf '%s\\0' "$@"`;
  const { stdout, status } = spawnSync(shell, ["-c", script], { input: text, env });
  expect(status).toBe(0);
  return stdout.toString().split("\0").slice(0, -1);
}

test("a request with any words reaches the shell unchanged", () => {
  const word = fc.oneof(
    fc.string({ unit: codePoint, maxLength: 40 }).map((text) => text.replaceAll("\0", "")),
    fc.constantFrom(
      "",
      " ",
      "a\nb\n",
      "\n",
      "'\"\\$(x)`y`",
      "\x01\x03\x04\x1b[0m\x7f",
      "%s\\n%",
      "ü🎉",
      "-n",
    ),
  );
  fc.assert(
    fc.property(fc.array(word, { minLength: 1, maxLength: 5 }), (argv) => {
      // Lone surrogates are not valid text.
      fc.pre(argv.every((text) => text.isWellFormed()));
      const words = wordsOf(spawnText({ ...request, argv: ["prog", ...argv] }));
      expect(words.slice(words.indexOf("--") + 1)).toEqual(["prog", ...argv]);
    }),
    { numRuns: 60 },
  );
});

test("a long request reaches bash unchanged where the locale is UTF-8", () => {
  for (let shift = 0; shift < 4; shift++) {
    const word = "x".repeat(shift) + "ä€🎉".repeat(400);
    const text = spawnText({ ...request, argv: ["prog", word] });
    expect(wordsOf(text, "/bin/bash", { LC_ALL: "C.UTF-8" }).at(-1)).toBe(word);
  }
});

test("newlines take about as long as the text that they become", () => {
  const least = (act: () => void): number => Math.min(...Array.from({ length: 5 }, () => processorMs(act)));
  const timeOf = (word: string): number => {
    const argv = ["prog", word];
    return least(() => void spawnText({ ...request, argv }));
  };
  const newlines = "\n".repeat(500_000);
  const length = spawnText({ ...request, argv: ["prog", newlines] }).length;
  const ratio = timeOf(newlines) / timeOf("x".repeat(length));
  expect(ratio).toBeLessThan(3);
});

test("no line is longer than a terminal accepts, and none contains control characters", () => {
  const argv = ["x".repeat(100_000), "\x03\x04\x1a\x7f", "a\nb"];
  const lines = spawnText({ ...request, argv })
    .toString("latin1")
    .split("\n");
  for (const line of lines) expect(line.length).toBeLessThan(4_000);
  expect(lines.join("")).toMatch(/^[\x20-\x7e]*$/);
});

test("a terminal's echo of it does not contain the nonce", () => {
  const text = spawnText(request).toString();
  expect(text).not.toContain(request.endNonce);
  expect(text).not.toContain(request.startNonce);
  expect(wordsOf(Buffer.from(text)).slice(0, 2)).toEqual([request.endNonce, request.startNonce]);
});

test("variables that shells drop or change go through env, and so does a program that looks like an option", () => {
  const env = { PLAIN: "1", "odd.name": "2", IFS: "/" };
  const words = wordsOf(spawnText({ ...request, env }));
  expect(words.slice(6)).toEqual(["4", "PLAIN=1", "--", "env", "--", "odd.name=2", "IFS=/", "true"]);
  expect(wordsOf(spawnText({ ...request, argv: ["-x"] })).slice(6)).toEqual(["2", "--", "env", "--", "-x"]);
});

test("a usage is what the script prints, and nothing that other code may print", () => {
  expect(parseUsage("1048576 2000000000 4\n")).toEqual({
    memoryBytes: 1_048_576,
    cpuNanos: 2_000_000_000,
    pids: 3,
  });
  // The kernel counts memory and page cache one after the other.
  expect(parseUsage("-4096 5000 1\n")).toEqual({ memoryBytes: 0, cpuNanos: 5000, pids: 0 });
  const wrong = [
    "",
    "\n",
    "  \n",
    "1 2\n",
    "1.5 2 3\n",
    "1 -2 3\n",
    "1 2 0\n",
    "1e9 2 3\n",
    "1 2 3\n4 5 6\n",
  ];
  const large = [`${"9".repeat(16)} 2 3\n`, `1 ${"9".repeat(19)} 3\n`, "1 2 99999999\n", "Infinity 2 3\n"];
  for (const text of [...wrong, ...large]) expect(parseUsage(text)).toBeUndefined();
});

/** The files of a container's control groups, by version. */
const GROUPS = {
  1: {
    "memory/memory.usage_in_bytes": "9500\n",
    "memory/memory.stat": "cache 1\ninactive_file 5\ntotal_inactive_file 1000\ntotal_active_file 500\n",
    "cpuacct/cpuacct.usage": "7000000\n",
    "pids/pids.current": "4\n",
  },
  2: {
    "memory.current": "9500\n",
    "memory.stat": "anon 1\ninactive_anon 5\ninactive_file 1000\nactive_file 500\n",
    "cpu.stat": "usage_usec 7000\nuser_usec 1\n",
    "pids.current": "4\n",
  },
  // gVisor's has no statistics of memory.
  "1, without memory.stat": {
    "memory/memory.usage_in_bytes": "8000\n",
    "cpuacct/cpuacct.usage": "7000000\n",
    "pids/pids.current": "4\n",
  },
} as const;

test.each(Object.entries(GROUPS))("the usage of control groups of version %s is read", (_, files) => {
  const dir = mkdtempSync(path.join(tmpdir(), "berth-groups-"));
  onTestFinished(() => rmSync(dir, { recursive: true }));
  for (const [name, text] of Object.entries(files)) {
    mkdirSync(path.dirname(path.join(dir, name)), { recursive: true });
    writeFileSync(path.join(dir, name), text);
  }
  const [shell, ...args] = USAGE_COMMAND.map((word) => word.replace("/sys/fs/cgroup", dir));
  const { stdout } = spawnSync(shell ?? "", args);
  expect(parseUsage(stdout.toString())).toEqual({ memoryBytes: 8000, cpuNanos: 7_000_000, pids: 3 });
});

const PASSWD = "root:x:0:0::/root:/bin/sh\napp:x:1000:1000::/app:/bin/sh\nweb:x:2000:100::/:/bin/sh\n";
const GROUP = "root:x:0:\nusers:x:100:\napp:x:1000:\nmodels:x:1500:app\n";

test.each([
  ["with its own group keeps all that the image gives it", [1000, 1000], "1000"],
  ["with another group has only that one", [1000, 1500], "1000:1500"],
  ["with a group of others", [2000, 100], "2000"],
  ["that is not in the image", [3000, 0], "3000"],
  ["that is not in the image, with a group", [3000, 3000], "3000:3000"],
  ["that is root", [0, 0], "0"],
] as const)("an image's user %s", (_, [uid, gid], reported) => {
  const dir = mkdtempSync(path.join(tmpdir(), "berth-user-"));
  onTestFinished(() => rmSync(dir, { recursive: true }));
  const status = `Name:\tsh\nUid:\t${[uid, uid, uid, uid].join("\t")}\nGid:\t${[gid, gid, gid, gid].join("\t")}\n`;
  const files = { "etc/passwd": PASSWD, "etc/group": GROUP, "proc/self/status": status };
  for (const [name, text] of Object.entries(files)) {
    mkdirSync(path.dirname(path.join(dir, name)), { recursive: true });
    writeFileSync(path.join(dir, name), text);
  }
  mkdirSync(path.join(dir, "dev"));
  const [shell, ...args] = PROBE_COMMAND.map((word) =>
    word.replaceAll(/\/(etc\/(passwd|group)|proc\/self\/status|dev\/termination-log)/g, `${dir}$&`),
  );
  expect(spawnSync(shell ?? "", args).stderr.toString()).toBe("");
  expect(readFileSync(path.join(dir, "dev/termination-log"), "utf8")).toBe(reported);
});
