import { execFileSync } from "node:child_process";
import { createHash, randomBytes } from "node:crypto";
import { once } from "node:events";
import {
  chmod,
  lstat,
  mkdir,
  mkdtemp,
  readdir,
  readFile,
  readlink,
  rm,
  symlink,
  utimes,
  writeFile,
} from "node:fs/promises";
import net from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { Client } from "../../support/client.ts";
import { containersOf } from "../../support/docker.ts";
import { eventually } from "../../support/eventually.ts";
import { endOf, type ProgramEnd, ServeProcess } from "../../support/program.ts";

const SANDBOX = "box";
const SILENT = { exitCode: 0, stdout: "", stderr: "" };

let service: ServeProcess;
/** For calls that do not need the program, because a client takes a fraction of its time. */
let client: Client;
beforeAll(async () => {
  service = await ServeProcess.start();
  client = new Client(service.address);
  const { exitCode, stderr } = await service.runHere(["create", "--id", SANDBOX]);
  expect({ exitCode, stderr }).toEqual({ exitCode: 0, stderr: "" });
});
afterAll(async () => {
  client.close();
  await service.stop();
  expect(await containersOf(service.instance)).toEqual([]);
});

/** A directory on this machine, new for each test, and one in the sandbox. */
let here: string;
let there: string;
beforeEach(async () => {
  here = await mkdtemp(path.join(tmpdir(), "berth-cp-test-"));
  there = `/srv/${path.basename(here)}`;
  await inSandbox(`mkdir -p ${there}`);
});
afterEach(() => rm(here, { recursive: true, force: true }));

async function cp(...args: string[]) {
  return textOf(await service.runHere(["cp", ...args]));
}

/** The same in a process of its own. */
async function cpProgram(...args: string[]) {
  return textOf(await service.run(["cp", ...args]));
}

const textOf = ({ exitCode, stdout, stderr }: ProgramEnd) => ({
  exitCode,
  stdout: stdout.toString("latin1"),
  stderr,
});

/** The output of a shell line in the sandbox. */
async function inSandbox(line: string): Promise<string> {
  const { stdout, stderr, exit } = await client.exec(SANDBOX, line).result;
  expect([exit.exit_code, stderr.toString()]).toEqual([0, ""]);
  return stdout.toString("latin1");
}

/** Everything in a directory: kinds, modes, names, link targets and content hashes. */
const LISTING = `find . -mindepth 1 \\( -type f -printf '%M %P ' -exec sha256sum {} \\; -o -printf '%M %P %l\\n' \\) | LC_ALL=C sort`;
const listHere = (directory: string) =>
  execFileSync("sh", ["-c", LISTING], { cwd: directory }).toString("latin1");
const listThere = (directory: string) => inSandbox(`cd ${directory} && ${LISTING}`);

/** Whether a process has a file open. */
async function hasOpen(pid: number | undefined, file: string): Promise<boolean> {
  const directory = `/proc/${pid}/fd`;
  const open = (await readdir(directory)).map((fd) => readlink(`${directory}/${fd}`).catch(() => ""));
  return (await Promise.all(open)).includes(file);
}

describe("a file", () => {
  const content = randomBytes(5_000_000);
  const hash = createHash("sha256").update(content).digest("hex");

  test("is copied in and out byte for byte, a new one with its mode", async () => {
    await writeFile(`${here}/f`, content, { mode: 0o750 });
    expect(await cpProgram(`${here}/f`, `${SANDBOX}:${there}/g`)).toEqual(SILENT);
    expect(await inSandbox(`stat -c %a ${there}/g; sha256sum < ${there}/g`)).toBe(`750\n${hash}  -\n`);
    expect(await cpProgram(`${SANDBOX}:${there}/g`, `${here}/back`)).toEqual(SILENT);
    expect((await readFile(`${here}/back`)).equals(content)).toBe(true);
    expect((await lstat(`${here}/back`)).mode & 0o777).toBe(0o750);
  });

  test("is copied to and from a sandbox whose id contains colons and slashes", async () => {
    const id = "team:7/a b";
    expect((await service.runHere(["create", "--id", id])).exitCode).toBe(0);
    await writeFile(`${here}/f`, "x");
    expect(await cp("--sandbox", id, `${here}/f`, ":/tmp/g:h")).toEqual(SILENT);
    expect(await cp("--sandbox", id, ":/tmp/g:h", "-")).toEqual({ ...SILENT, stdout: "x" });
    const { exitCode, stderr } = await cp(`${here}/f`, `${id}:/tmp/g`);
    expect(exitCode).toBe(1);
    expect(stderr).toContain("--sandbox");
    expect((await service.runHere(["rm", id])).exitCode).toBe(0);
  });

  test("copied to an existing directory keeps its own name", async () => {
    await writeFile(`${here}/f`, "x");
    expect(await cp(`${here}/f`, `${SANDBOX}:${there}`)).toEqual(SILENT);
    expect(await inSandbox(`cat ${there}/f`)).toBe("x");
    await mkdir(`${here}/d`);
    expect(await cp(`${SANDBOX}:${there}/f`, `${here}/d`)).toEqual(SILENT);
    expect(await readFile(`${here}/d/f`, "utf8")).toBe("x");
  });

  test("an existing file is replaced and keeps its mode", async () => {
    await writeFile(`${here}/f`, "new", { mode: 0o700 });
    await inSandbox(`echo old > ${there}/f; chmod 640 ${there}/f`);
    expect(await cp(`${here}/f`, `${SANDBOX}:${there}`)).toEqual(SILENT);
    expect(await inSandbox(`stat -c %a ${there}/f; cat ${there}/f`)).toBe("640\nnew");
    await chmod(`${here}/f`, 0o600);
    await symlink("f", `${here}/link`);
    expect(await cp(`${SANDBOX}:${there}/f`, `${here}/link`)).toEqual(SILENT);
    expect((await lstat(`${here}/link`)).isSymbolicLink()).toBe(true);
    expect((await lstat(`${here}/f`)).mode & 0o777).toBe(0o600);
  });

  test("paths are relative to the working directory, and an empty one is that directory", async () => {
    await writeFile(`${here}/relative`, "y");
    expect(await cp(`${here}/relative`, `${SANDBOX}:`)).toEqual(SILENT);
    expect(await inSandbox("cat /workspace/relative")).toBe("y");
    expect(await cp(`${SANDBOX}:relative`, "-")).toEqual({ ...SILENT, stdout: "y" });
  });

  test("is read from stdin and written to stdout", async () => {
    const { exitCode } = await service.run(["cp", "-", `${SANDBOX}:${there}/in`], { stdin: content });
    expect(exitCode).toBe(0);
    const { stdout } = await service.run(["cp", `${SANDBOX}:${there}/in`, "-"]);
    expect(stdout.equals(content)).toBe(true);
  });

  test("an empty file, and one that the kernel generates as it is read", async () => {
    await writeFile(`${here}/empty`, "");
    expect(await cp(`${here}/empty`, `${SANDBOX}:${there}`)).toEqual(SILENT);
    expect(await cp("/proc/version", `${SANDBOX}:${there}`)).toEqual(SILENT);
    const version = await readFile("/proc/version", "latin1");
    expect(await inSandbox(`stat -c %s ${there}/empty; cat ${there}/version`)).toBe(`0\n${version}`);
    expect(await cp(`${SANDBOX}:${there}/empty`, `${here}/back`)).toEqual(SILENT);
    expect(await readFile(`${here}/back`, "utf8")).toBe("");
  });

  test("a special file is written to, not replaced", async () => {
    await inSandbox(`echo x > ${there}/f`);
    expect(await cp(`${SANDBOX}:${there}/f`, "/dev/null")).toEqual(SILENT);
    expect((await lstat("/dev/null")).isCharacterDevice()).toBe(true);
  });

  test("a named pipe is waited for, both ways, until a signal", async () => {
    const pipe = `${here}/pipe`;
    const place = `${SANDBOX}:${there}/piped`;
    execFileSync("mkfifo", [pipe]);
    for (const line of [
      [pipe, place],
      [place, pipe],
    ]) {
      const child = service.begin(["cp", ...line]);
      const end = endOf(child);
      const other = line[0] === pipe ? writeFile(pipe, content) : readFile(pipe);
      expect(await end).toMatchObject({ exitCode: 0, stderr: "" });
      if (line[0] !== pipe) expect(content.equals((await other) as Buffer)).toBe(true);
    }
    const idle = () =>
      eventually(async () => {
        const { active_operations: count, last_used_time: time } = await client.getSandbox(SANDBOX);
        return count === 0 && JSON.stringify(time);
      });
    for (const line of [
      [pipe, place],
      [place, pipe],
    ]) {
      const before = await idle();
      const child = service.begin(["cp", ...line]);
      const end = endOf(child);
      // By then it waits for the pipe. An earlier signal would prove less.
      if (line[0] === pipe) await eventually(() => hasOpen(child.pid, pipe));
      else await eventually(async () => (await idle()) !== before);
      child.kill("SIGTERM");
      expect(await end).toMatchObject({ exitCode: 143, stderr: "berth: stopped by SIGTERM\n" });
    }
  });

  test("-p creates missing parents; without it they are an error", async () => {
    await writeFile(`${here}/f`, "x");
    await mkdir(`${here}/tree`);
    const deep = `${SANDBOX}:${there}/a/b/f`;
    for (const source of ["f", "tree"]) {
      const { exitCode, stderr } = await cp(`${here}/${source}`, deep);
      expect([exitCode, stderr.split("\n")]).toEqual([
        1,
        [expect.stringContaining(`${there}/a/b/f`), "Create missing directories with --parents", ""],
      ]);
    }
    expect(await cp("-p", `${here}/f`, deep)).toEqual(SILENT);
    expect(await inSandbox(`cat ${there}/a/b/f`)).toBe("x");
  });

  test("-u acts as that user", async () => {
    await writeFile(`${here}/f`, "x");
    const { exitCode, stderr } = await cp("-u", "65534", `${here}/f`, `${SANDBOX}:${there}/f`);
    expect([exitCode, stderr]).toEqual([1, expect.stringMatching(/^berth: .*has no right to do this/)]);
    await inSandbox(`chmod 777 ${there}`);
    expect(await cp("-u", "65534", `${here}/f`, `${SANDBOX}:${there}/f`)).toEqual(SILENT);
    expect(await inSandbox(`stat -c %u ${there}/f`)).toBe("65534\n");
  });
});

describe("a tree", () => {
  /** Files, directories and links of many kinds, with odd names. */
  async function plant(directory: string): Promise<void> {
    const deep = `${directory}/a/${"long ".repeat(30)}/b`;
    await mkdir(deep, { recursive: true });
    await mkdir(`${directory}/empty`);
    await writeFile(`${deep}/data`, randomBytes(700_000));
    await writeFile(`${directory}/script`, "#!/bin/sh\n", { mode: 0o755 });
    await writeFile(Buffer.from(`${directory}/not \xff\xfe text\n`, "latin1"), "bytes");
    await symlink("script", `${directory}/link`);
    await symlink("/no/such/file", `${directory}/dangling`);
    for (let index = 0; index < 200; index++) await writeFile(`${directory}/a/${index}`, `${index}`);
    await chmod(deep, 0o500);
    await utimes(`${directory}/script`, 1_000_000_000, 1_000_000_000);
  }

  test("is the same after a copy in and out", async () => {
    await plant(`${here}/tree`);
    expect(await cpProgram(`${here}/tree`, `${SANDBOX}:${there}/copy`)).toEqual(SILENT);
    const listing = listHere(`${here}/tree`);
    expect(await listThere(`${there}/copy`)).toBe(listing);
    expect(await inSandbox(`stat -c %Y ${there}/copy/script`)).toBe("1000000000\n");
    expect(await cpProgram(`${SANDBOX}:${there}/copy`, `${here}/back`)).toEqual(SILENT);
    expect(listHere(`${here}/back`)).toBe(listing);
    expect((await lstat(`${here}/back/script`)).mtimeMs).toBe(1_000_000_000_000);
    expect((await readdir(here)).sort()).toEqual(["back", "tree"]);
  });

  test("copied to an existing directory keeps its name, or with /. only its contents go in", async () => {
    await mkdir(`${here}/tree`);
    await writeFile(`${here}/tree/f`, "x");
    await inSandbox(`mkdir ${there}/d; echo mine > ${there}/d/own; echo old > ${there}/d/f`);
    expect(await cp(`${here}/tree`, `${SANDBOX}:${there}/d`)).toEqual(SILENT);
    expect(await cp(`${here}/tree/.`, `${SANDBOX}:${there}/d`)).toEqual(SILENT);
    expect(await inSandbox(`cd ${there}/d; find . -type f -exec grep -H . {} + | sort`)).toBe(
      "./f:x\n./own:mine\n./tree/f:x\n",
    );
    await mkdir(`${here}/out`);
    await writeFile(`${here}/out/other`, "kept");
    await writeFile(`${here}/out/f`, "old");
    expect(await cp(`${SANDBOX}:${there}/d`, `${here}/out`)).toEqual(SILENT);
    expect(await cp(`${SANDBOX}:${there}/d/.`, `${here}/out`)).toEqual(SILENT);
    expect((await readdir(`${here}/out`, { recursive: true })).sort()).toEqual(
      ["d", "d/f", "d/own", "d/tree", "d/tree/f", "f", "other", "own", "tree", "tree/f"].sort(),
    );
    expect(await readFile(`${here}/out/f`, "utf8")).toBe("x");
    expect(await readFile(`${here}/out/other`, "utf8")).toBe("kept");
  });

  test("- is its tar, both ways", async () => {
    await inSandbox(`mkdir -p ${there}/d/e ${there}/into; echo x > ${there}/d/e/f`);
    const { stdout } = await service.run(["cp", `${SANDBOX}:${there}/d`, "-"]);
    expect(execFileSync("tar", ["-tf", "-"], { input: stdout }).toString()).toBe("e/\ne/f\n");
    const { exitCode } = await service.run(["cp", "-", `${SANDBOX}:${there}/into`], { stdin: stdout });
    expect(exitCode).toBe(0);
    expect(await inSandbox(`cat ${there}/into/e/f`)).toBe("x\n");
  });

  test("special files are left out and reported", async () => {
    await mkdir(`${here}/tree`);
    await writeFile(`${here}/tree/f`, "x");
    const socket = net.createServer().listen(`${here}/tree/socket`);
    await once(socket, "listening");
    execFileSync("mkfifo", [`${here}/tree/pipe\x1b[2J`]);
    const { exitCode, stderr } = await cp(`${here}/tree`, `${SANDBOX}:${there}`);
    await new Promise((closed) => socket.close(closed));
    expect(exitCode).toBe(0);
    expect(stderr).toBe(
      `berth: ${here}/tree/pipe\\u{1b}[2J is a named pipe and left out\nberth: ${here}/tree/socket is a socket and left out\n`,
    );
    expect(await inSandbox(`ls ${there}/tree; mkfifo ${there}/tree/pipe`)).toBe("f\n");
    expect(await cp(`${SANDBOX}:${there}/tree`, `${here}/back`)).toEqual({
      ...SILENT,
      stderr: "berth: pipe is a named pipe and left out\n",
    });
    expect(await readdir(`${here}/back`)).toEqual(["f"]);
  });
});

describe("a hostile sandbox", () => {
  test("a link left by an earlier copy is not followed", async () => {
    await mkdir(`${here}/outside`);
    await inSandbox(`mkdir -p ${there}/d; ln -s ${here}/outside ${there}/d/way`);
    expect(await cp(`${SANDBOX}:${there}/d`, `${here}/out`)).toEqual(SILENT);
    await inSandbox(`rm ${there}/d/way; mkdir ${there}/d/way; echo gotcha > ${there}/d/way/f`);
    const { exitCode, stderr } = await cp(`${SANDBOX}:${there}/d/.`, `${here}/out`);
    expect(exitCode).toBe(1);
    expect(stderr).toBe(`berth: ${here}/out/way is not a directory, and a directory would replace it\n`);
    expect(await readdir(`${here}/outside`)).toEqual([]);
    expect(await readdir(`${here}/out`)).toEqual(["way"]);
  });

  test.each([
    ["climbs out", "tar.addfile(info('../escaped', b'x'), io.BytesIO(b'x'))", '"../escaped"'],
    [
      "is absolute",
      "tar.addfile(info('/tmp/berth-escaped', b'x'), io.BytesIO(b'x'))",
      '"/tmp/berth-escaped"',
    ],
    [
      "goes through a link of its own",
      "link = tarfile.TarInfo('way'); link.type = tarfile.SYMTYPE; link.linkname = '..'; tar.addfile(link); " +
        "tar.addfile(info('way/escaped', b'x'), io.BytesIO(b'x'))",
      '"way/escaped"',
    ],
  ])("a tar that %s is refused, and leaves nothing", async (_how, entries, name) => {
    const forge = [
      "import io, sys, tarfile",
      "def info(name, data):",
      "  entry = tarfile.TarInfo(name); entry.size = len(data); return entry",
      "tar = tarfile.open(fileobj=sys.stdout.buffer, mode='w|')",
      "tar.addfile(info('harmless', b'x'), io.BytesIO(b'x'))",
      entries,
      "tar.close()",
    ].join("\n");
    const { sandbox_id: forger } = await client.createSandbox();
    const tool = "#!/bin/sh\nexec python3 /forge.py\n";
    await client.output(forger, "cat >/forge.py", { stdin: Buffer.from(forge) });
    await client.output(forger, "cat >/usr/local/bin/tar; chmod 755 /usr/local/bin/tar", {
      stdin: Buffer.from(tool),
    });
    const { exitCode, stderr } = await cp(`${forger}:/etc`, `${here}/out`);
    await client.deleteSandbox(forger);
    expect(exitCode).toBe(1);
    expect(stderr).toContain(
      `berth: The archive was refused, and nothing of it unpacked, for its entry ${name}`,
    );
    expect(await readdir(here)).toEqual([]);
  });
});

describe("errors", () => {
  test.each<[string, () => string[], () => string]>([
    ["no such file here", () => [`${here}/no`, "box:x"], () => `${here}/no: no such file or directory`],
    ["no such file there", () => ["box:/no/such", here], () => "box:/no/such does not exist"],
    [
      "no such directory here",
      () => ["box:/etc/passwd", `${here}/no/x`],
      () => `${here}/no: no such file or directory`,
    ],
    [
      "no directory, with a slash",
      () => ["box:/etc/passwd", `${here}/no/`],
      () => `${here}/no/ is not a directory`,
    ],
    ["a tree over a file", () => ["box:/etc", "/etc/passwd"], () => "/etc/passwd is not a directory"],
    [
      "a tree into nowhere",
      () => ["box:/etc", `${here}/no/x`],
      () => `${here}/no: no such file or directory`,
    ],
    ["a tree over a file there", () => [here, "box:/etc/passwd"], () => '"/etc/passwd"'],
    ["a device there", () => ["box:/dev/null", `${here}/x`], () => '"/dev/null"'],
    ["no such sandbox", () => ["nobody:/x", here], () => 'There is no sandbox "nobody"'],
  ])("%s", async (_what, args, message) => {
    const { exitCode, stderr } = await cp(...args());
    expect(exitCode).toBe(1);
    expect(stderr).toContain(`berth: ${message()}`);
    expect(await readdir(here)).toEqual([]);
  });

  test("a wrong command line", async () => {
    expect(await cp("a", "b")).toMatchObject({
      exitCode: 2,
      stderr: expect.stringContaining("neither side"),
    });
    expect(await cp("a")).toMatchObject({ exitCode: 2 });
  });

  test("Ctrl-C leaves the old content and no temporary file", async () => {
    await inSandbox(`truncate -s 2G ${there}/huge`);
    await writeFile(`${here}/huge`, "old");
    const child = service.begin(["cp", `${SANDBOX}:${there}/huge`, `${here}/huge`]);
    const end = endOf(child);
    await eventually(async () => (await readdir(here)).length > 1);
    child.kill("SIGINT");
    expect(await end).toMatchObject({ exitCode: 130, stderr: "berth: stopped by SIGINT\n" });
    expect(await readdir(here)).toEqual(["huge"]);
    expect(await readFile(`${here}/huge`, "utf8")).toBe("old");
  });

  test("an interrupted upload leaves the old content", async () => {
    await inSandbox(`echo old > ${there}/f`);
    const child = service.begin(["cp", "-", `${SANDBOX}:${there}/f`], { stdin: "open" });
    const end = endOf(child);
    child.stdin.write(randomBytes(1_000_000));
    await eventually(async () => (await inSandbox(`ls -A ${there} | wc -l`)) === "2\n");
    child.kill("SIGTERM");
    expect((await end).exitCode).toBe(143);
    await eventually(async () => (await inSandbox(`ls -A ${there}`)) === "f\n");
    expect(await inSandbox(`cat ${there}/f`)).toBe("old\n");
  });
});
