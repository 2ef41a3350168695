import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { DatabaseSync } from "node:sqlite";
import { buffer } from "node:stream/consumers";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { Store } from "../../../src/store.ts";
import { removeContainers } from "../../support/docker.ts";
import { nodeAsOrdinaryUser, PROGRAM } from "../../support/ordinary-user.ts";
import { runProgram, ServeProcess } from "../../support/program.ts";
import { runProgramHere } from "../../support/program-here.ts";

const root = mkdtempSync(path.join(tmpdir(), "berth-data-dir-"));
/** The database of an intact data directory. */
let whole: Buffer;

beforeAll(() => {
  const good = path.join(root, "good");
  Store.open(good).close();
  whole = readFileSync(path.join(good, "berth.db"));
});
afterAll(() => rmSync(root, { recursive: true }));

/** A data directory with that database. */
function dataDir(name: string, database: Uint8Array): string {
  const directory = path.join(root, name);
  mkdirSync(directory, { mode: 0o700 });
  writeFileSync(path.join(directory, "berth.db"), database);
  return directory;
}

const serve = (directory: string) =>
  runProgram(["serve", "--engine", "bubblewrap", "--listen", "127.0.0.1:0", "--data-dir", directory]);

describe("berth serve ends with 1 and says why, and what to do, for a data directory", () => {
  test.each([
    {
      what: "of a newer version",
      spoil: (file: string) => {
        const database = new DatabaseSync(file);
        database.exec("PRAGMA user_version = 9999");
        database.close();
      },
      message: /written by a newer version of Berth \(schema 9999; .*Run that version/,
    },
    {
      what: "that is corrupt",
      spoil: (file: string) => writeFileSync(file, Buffer.from(whole).fill(0xff, 4096, 12_288)),
      message: /is damaged\. Restore it from a backup, or move it away/,
    },
    {
      what: "that is truncated",
      spoil: (file: string) => truncateSync(file, whole.length / 2),
      message: /is damaged\. Restore it from a backup, or move it away/,
    },
  ])("$what, and leaves it as it was", async ({ what, spoil, message }) => {
    const directory = dataDir(what, whole);
    const file = path.join(directory, "berth.db");
    spoil(file);
    const before = readFileSync(file);
    const { exitCode, stdout, stderr } = await serve(directory);
    expect({ exitCode, stdout: stdout.toString() }).toEqual({ exitCode: 1, stdout: "" });
    expect(stderr).toMatch(message);
    expect(stderr).toContain("--data-dir");
    expect(readFileSync(file).equals(before)).toBe(true);
  });

  test.each([
    [
      "of a newer version",
      (file: string) => {
        const database = new DatabaseSync(file);
        database.exec("PRAGMA user_version = 9999");
        database.close();
      },
      /berth\.db was written by a newer version of Berth/,
    ],
    ["with something else in its place", (file: string) => writeFileSync(file, "text"), /is not a database/],
  ])("%s, and so does berth doctor", async (what, spoil, found) => {
    const directory = dataDir(`doctor ${what}`, whole);
    spoil(path.join(directory, "berth.db"));
    const before = readdirSync(directory);
    const options = ["--engine", "bubblewrap", "--listen", "127.0.0.1:0", "--data-dir", directory];
    const { exitCode, stdout } = await runProgramHere(["doctor", "--json", ...options]);
    expect(JSON.parse(stdout.toString()).findings).toContainEqual({
      subject: "database",
      status: "missing",
      found: expect.stringMatching(found),
      fix: "Run the version that wrote it, restore a backup, or name another directory with --data-dir",
    });
    expect(exitCode).toBe(1);
    expect(readdirSync(directory)).toEqual(before);
  });

  test("that another service holds", async () => {
    const directory = path.join(root, "held");
    const holder = Store.open(directory);
    try {
      const { exitCode, stderr } = await serve(directory);
      expect(exitCode).toBe(1);
      expect(stderr).toMatch(/is in use by another service\. Stop that one, or give this one/);
    } finally {
      holder.close();
    }
  });

  test("that lies below a dangling link", async () => {
    const link = path.join(root, "nowhere");
    symlinkSync(path.join(root, "missing", "disk"), link);
    const { exitCode, stderr } = await serve(path.join(link, "data"));
    expect({ exitCode, stderr }).toEqual({
      exitCode: 1,
      stderr: expect.stringContaining(
        `cannot be used (${link} is a link to a place that does not exist). Make`,
      ),
    });
  });

  test("that is a file", async () => {
    const file = path.join(root, "file");
    writeFileSync(file, "");
    const { exitCode, stderr } = await serve(file);
    expect({ exitCode, stderr }).toEqual({
      exitCode: 1,
      stderr: expect.stringContaining(`cannot be used (${file} is not a directory). Make`),
    });
  });

  test("that its user may not write", async () => {
    const directory = dataDir("unwritable", whole);
    const args = [PROGRAM, "serve", "--engine", "bubblewrap", "--data-dir", directory];
    const { child } = nodeAsOrdinaryUser(args);
    const ended = new Promise<number | null>((resolve) => child.once("close", resolve));
    if (child.stderr === null) throw new Error("its stderr is not piped");
    const stderr = (await buffer(child.stderr)).toString();
    expect(await ended).toBe(1);
    expect(stderr).toMatch(
      /cannot be used \(.+\)\. Make it a directory to which this user may write, or name another with --data-dir/,
    );
    expect(readdirSync(directory)).toEqual(["berth.db"]);
    expect(readFileSync(path.join(directory, "berth.db")).equals(whole)).toBe(true);
  });

  test.each([
    [
      "on a full disk",
      "size=64k",
      /cannot be used \(.*full.*\)\. Free space on its disk/,
      /is full: room for .+ files/,
    ],
    [
      "on a disk with no room for files",
      "nr_inodes=1",
      /ENOSPC.*Free space on its disk/,
      /room for .+ and 0 files/,
    ],
    [
      "on a read-only disk",
      "ro",
      /cannot be used \(EROFS: .*Make it a directory/,
      /the file system of .+ is read-only/,
    ],
  ])("%s, and so does berth doctor", async (what, options, refused, diagnosed) => {
    const directory = path.join(root, what);
    mkdirSync(directory);
    const mount = ["unshare", "--mount", "--propagation", "private", "sh", "-c"];
    const within = [...mount, 'mount -t tmpfs -o "mode=700,$1" tmpfs "$2" && shift 2 && exec "$@"', "sh"];
    const on = (...args: string[]) =>
      runProgram([...args, "--engine", "bubblewrap", "--listen", "127.0.0.1:0", "--data-dir", directory], {
        within: [...within, options, directory],
      });
    const { exitCode, stderr } = await on("serve");
    expect({ exitCode, stderr }).toEqual({ exitCode: 1, stderr: expect.stringMatching(refused) });
    const doctor = await on("doctor");
    expect(doctor.exitCode).toBe(1);
    expect(doctor.stdout.toString()).toMatch(diagnosed);
    expect(doctor.stdout.toString()).not.toContain("install -d");
  });
});

test("a copy of the data directory of a running service is refused where it would remove that one's containers", async () => {
  const service = await ServeProcess.start(["--engine", "docker"]);
  const copy = path.join(root, "copy");
  cpSync(service.dataDir, copy, { recursive: true });
  try {
    expect((await service.runHere(["create", "--id", "since"])).stdout.toString()).toBe("since\n");
    const start = (args: string[]) =>
      ServeProcess.start(args, {}, { instance: service.instance, dataDir: copy }).then(
        async (second) => {
          await second.stop();
          return second.startLine;
        },
        (error: unknown) => String(error),
      );
    expect(await start(["--engine", "docker"])).toContain(
      `another service on this machine runs as the same instance, ${service.instance}, probably from a copy of this directory.`,
    );
    const { stdout } = await service.runHere(["exec", "since", "--", "echo", "alive"]);
    expect(stdout.toString()).toBe("alive\n");
    // Its sandboxes are its own processes.
    expect(await start(["--engine", "bubblewrap"])).toContain("engine bubblewrap");
    await service.stop("SIGKILL");
    expect(await start(["--engine", "docker"])).toContain("engine docker");
  } finally {
    await service.dispose();
    await removeContainers(service.instance);
  }
});

test("a database without its key is refused, and no other key is made", async () => {
  const service = await ServeProcess.start(["--engine", "bubblewrap"]);
  await service.runHere(["run", "--", "true"]);
  await service.stop();
  const key = path.join(service.dataDir, "key");
  const isRefused = async () => {
    const { exitCode, stderr } = await serve(service.dataDir);
    expect({ exitCode, stderr }).toEqual({
      exitCode: 1,
      stderr: `berth: --data-dir: ${key} is missing, and the database cannot be read without it. Restore both from the same backup.\n`,
    });
  };
  writeFileSync(key, "");
  await isRefused();
  expect(readFileSync(key)).toHaveLength(0);
  rmSync(key);
  await isRefused();
  expect(existsSync(key)).toBe(false);
  // Also if all that is left is a command of the last day.
  const database = new DatabaseSync(path.join(service.dataDir, "berth.db"));
  database.exec("DELETE FROM sandboxes");
  database.close();
  await isRefused();
});
