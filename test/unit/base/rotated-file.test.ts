import {
  chmod,
  mkdir,
  mkdtemp,
  readdir,
  readFile,
  rename,
  rm,
  stat,
  symlink,
  writeFile,
} from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { RotatedFile, type RotatedFileOptions } from "../../../src/base/rotated-file.ts";
import { eventually } from "../../support/eventually.ts";

let directory: string;
let file: string;
const open: RotatedFile[] = [];

beforeEach(async () => {
  directory = await mkdtemp(path.join(tmpdir(), "berth-rotated-"));
  file = path.join(directory, "log");
});

afterEach(async () => {
  await Promise.all(open.splice(0).map((log) => log.close()));
  await rm(directory, { recursive: true });
});

async function start(changes: Partial<RotatedFileOptions> = {}): Promise<RotatedFile> {
  const log = await RotatedFile.open(file, {
    option: "audit-log",
    maxBytes: 1 << 20,
    maxFiles: 3,
    maxWaitingBytes: 1 << 20,
    gapLine: (lost) => `lost ${lost}`,
    onProblem: () => {},
    ...changes,
  });
  open.push(log);
  return log;
}

async function stop(log: RotatedFile): Promise<void> {
  open.splice(open.indexOf(log), 1);
  await log.close();
}

const read = (name = file) => readFile(name, "utf8");
/** Its current content. Between a rotation and the next line there is no file. */
const now = () => read().catch(() => "");

test("lines are written in order, including the last ones, to a file that only this user can read", async () => {
  const log = await start();
  const lines = Array.from({ length: 5000 }, (_, number) => `line ${number}`);
  for (const line of lines) log.append(line);
  await stop(log);
  expect(await read()).toBe(`${lines.join("\n")}\n`);
  expect((await stat(file)).mode & 0o777).toBe(0o600);
});

test("files are rotated before they exceed their size, and the oldest is removed", async () => {
  const log = await start({ maxBytes: 100, maxFiles: 3 });
  for (const number of [1, 2, 3, 4, 5]) {
    log.append(`${number}`.repeat(59));
    await eventually(async () => (await now()).startsWith(`${number}`));
  }
  await stop(log);
  expect((await readdir(directory)).sort()).toEqual(["log", "log.1", "log.2"]);
  const first = await Promise.all(["log", "log.1", "log.2"].map((name) => read(path.join(directory, name))));
  expect(first.map((text) => text[0])).toEqual(["5", "4", "3"]);
});

test("a file that another program moved away is created again", async () => {
  const log = await start();
  log.append("before");
  await eventually(async () => (await now()) !== "");
  await rename(file, `${file}.moved`);
  log.append("after");
  await stop(log);
  expect(await read(`${file}.moved`)).toBe("before\n");
  expect(await read()).toBe("after\n");
});

test("waiting lines are limited, lost ones are counted, and a line in their place says so", async () => {
  const problems: unknown[] = [];
  const log = await start({ maxWaitingBytes: 100, onProblem: (problem) => problems.push(problem) });
  // A directory in its place cannot be written, even by root.
  await rm(file);
  await mkdir(file);
  for (let number = 0; number < 30; number++) log.append(`line ${number % 10}`);
  await eventually(() => log.isFailing);
  expect(log.lost).toBe(30 - Math.floor(100 / 7));
  await rm(file, { recursive: true });
  await eventually(async () => !log.isFailing && (await now()) !== "");
  log.append("after");
  await stop(log);
  const lines = (await read()).trimEnd().split("\n");
  expect(lines.slice(-2)).toEqual(["lost 16", "after"]);
  expect(lines).toHaveLength(14 + 2);
  expect(problems).toEqual([expect.objectContaining({ reason: "INVALID_ARGUMENT" }), undefined]);
});

async function linkToOwnFile(): Promise<void> {
  await writeFile(`${file}.other`, "", { mode: 0o600 });
  await symlink(`${file}.other`, file);
}

test.each<[string, () => Promise<unknown>, string]>([
  ["an open file", () => writeFile(file, "", { mode: 0o644 }), "is open to other users. Type: chmod 600 "],
  ["a link", linkToOwnFile, "is a symbolic link. Name another file."],
  ["an open directory", () => chmod(directory, 0o777), "other users may write to the directory"],
  ["no directory", () => rm(directory, { recursive: true }), "cannot be used (ENOENT). Type: mkdir -p"],
])("%s is refused, with what to do", async (_, prepare, message) => {
  await prepare();
  await expect(start()).rejects.toMatchObject({
    reason: "INVALID_ARGUMENT",
    message: expect.stringContaining(message),
  });
  await mkdir(directory, { recursive: true });
});
