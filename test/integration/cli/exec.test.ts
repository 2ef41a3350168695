import { createHash, randomBytes } from "node:crypto";
import { once } from "node:events";
import { cpSync, globSync, rmSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { endOf, type ProgramEnd, ServeProcess } from "../../support/program.ts";
import { runProgramHere } from "../../support/program-here.ts";
import { newDataDir, packageDir } from "../../support/settings.ts";

const SANDBOX = "box";

let service: ServeProcess;
beforeAll(async () => {
  service = await ServeProcess.start();
  const { exitCode, stderr } = await service.runHere(["create", "--id", SANDBOX, "-e", "WHO=sandbox"]);
  expect({ exitCode, stderr }).toEqual({ exitCode: 0, stderr: "" });
});
afterAll(() => service.stop());

const exec = (command: string[], stdin: Buffer | string) =>
  service.run(["exec", SANDBOX, "--", ...command], { stdin });
const execHere = (flags: string[], command: string[]) =>
  service.runHere(["exec", ...flags, SANDBOX, "--", ...command]);

describe("stdin", () => {
  const input = randomBytes(8_000_000);
  const hash = createHash("sha256").update(input).digest("hex");

  test("8 MB arrive whole", async () => {
    const { exitCode, stdout } = await exec(["sha256sum"], input);
    expect([exitCode, stdout.toString()]).toEqual([0, `${hash}  -\n`]);
  });

  test("and are returned whole", async () => {
    const { exitCode, stdout } = await exec(["cat"], input);
    expect(exitCode).toBe(0);
    expect(createHash("sha256").update(stdout).digest("hex")).toBe(hash);
  });

  test("a command need not read it", async () => {
    const { exitCode, stdout, stderr } = await exec(["head", "-c", "5"], input);
    expect({ exitCode, stdout, stderr }).toEqual({ exitCode: 0, stdout: input.subarray(0, 5), stderr: "" });
  });

  test("an empty one ends at once", async () => {
    const { exitCode, stdout } = await exec(["cat"], "");
    expect([exitCode, stdout.length]).toEqual([0, 0]);
  });

  test.each([
    ["/dev/zero", 32],
    ["/dev/null", 0],
  ])("from a device is passed on: %s", async (device, length) => {
    const within = ["sh", "-c", `exec "$@" <${device}`, "sh"];
    const { exitCode, stdout } = await service.run(["exec", SANDBOX, "--", "head", "-c", "32"], { within });
    expect({ exitCode, stdout }).toEqual({ exitCode: 0, stdout: Buffer.alloc(length) });
  });
});

/** The program, whose files that are loaded only for a failure are gone: an upgrade has replaced them. */
function upgraded(): readonly string[] {
  const directory = newDataDir();
  cpSync(packageDir(), directory, { recursive: true, verbatimSymlinks: true });
  const [file = ""] = globSync(`${directory}/dist/failure-*.js`);
  rmSync(file);
  return [`${directory}/dist/main.js`];
}

test("a command that does not read all of its stdin succeeds if an upgrade has replaced the program's files", async () => {
  const line = ["exec", SANDBOX, "--", "head", "-c", "3"];
  const end = await service.run(line, { entry: upgraded(), stdin: Buffer.alloc(32 * 2 ** 20, "x") });
  expect({ ...end, stdout: end.stdout.toString() }).toMatchObject({ exitCode: 0, stdout: "xxx", stderr: "" });
});

test("a failure keeps its message and its exit code if an upgrade has replaced the program's files", async () => {
  const end = await service.run(["exec", "missing", "--", "true"], { entry: upgraded() });
  expect(end).toMatchObject({
    exitCode: 125,
    stderr: expect.stringMatching(/^berth: .*There is no sandbox/),
  });
  expect(end.stderr).not.toContain("failure-");
});

describe("flags", () => {
  test("env, workdir, user and timeout reach the command", async () => {
    const flags = ["-e", "WHAT=flag", "-w", "/tmp", "-u", "65534"];
    const { stdout } = await execHere(flags, ["sh", "-c", 'echo "$WHO $WHAT $PWD $(id -u)"']);
    expect(stdout.toString()).toBe("sandbox flag /tmp 65534\n");
    expect((await execHere(["--timeout", "300ms"], ["sleep", "60"])).exitCode).toBe(124);
  });

  test("-- is not needed, and a second one is the command's", async () => {
    const { stdout } = await service.runHere(["exec", SANDBOX, "echo", "-n", "--", "-x"]);
    expect(stdout.toString()).toBe("-- -x");
  });

  test("a flag after the sandbox is Berth's; after the command or -- it is the command's", async () => {
    const { stdout } = await service.runHere([
      "exec",
      SANDBOX,
      "-i",
      "-e",
      "A=1",
      "--",
      "sh",
      "-c",
      "echo $A $0",
      "-i",
    ]);
    expect(stdout.toString()).toBe("1 -i\n");
  });

  test.each<[string[], string]>([
    [["exec"], "missing required argument 'sandbox'"],
    [["exec", SANDBOX], "missing required argument 'command'"],
    [["exec", SANDBOX, "--"], "there is no command; write: berth exec SANDBOX -- COMMAND"],
    [["exec", "--timeout", "5", SANDBOX, "--", "true"], '--timeout: "5" has no unit; for seconds write 5s'],
    [["exec", "-e", "A", SANDBOX, "--", "true"], '--env: "A" is not of the form KEY=VALUE'],
    [["exec", "--colour", SANDBOX, "--", "true"], "unknown option '--colour'"],
  ])("%j is a usage error", async (args, problem) => {
    const { exitCode, stderr } = await service.runHere(args);
    expect(exitCode).toBe(2);
    expect(stderr).toContain(`berth: ${problem}`);
  });
});

describe("a program that cannot be run is reported without the shell that looked for it", () => {
  const cases = [
    ["nosuch", 127, "not found in the sandbox"],
    ["/no/such", 127, "not found in the sandbox"],
    ["./nosuch", 127, "not found in the sandbox"],
    // Shell builtins and syntax.
    ["cd", 127, "not found in the sandbox"],
    ["a=b", 127, "not found in the sandbox"],
    ["-x", 127, "not found in the sandbox"],
    ["/etc/passwd", 126, "is not executable"],
    ["/tmp", 126, "is a directory"],
  ] as const;

  test.each(cases)(
    "%s, in a lane, with stdin, as another user, with variables that shells change",
    async (...[program, code, problem]) => {
      const end = { exitCode: code, stdout: Buffer.alloc(0), stderr: `berth: ${program}: ${problem}\n` };
      const args = [SANDBOX, "--", program, "argument"];
      expect(await service.runHere(["exec", ...args])).toMatchObject(end);
      expect(await service.runHere(["exec", ...args], { stdin: "in" })).toMatchObject(end);
      expect(await service.runHere(["exec", "-u", "1000", ...args])).toMatchObject(end);
      expect(await service.runHere(["exec", "-e", "LC_ALL=C", ...args])).toMatchObject(end);
    },
  );

  test("programs are found by PATH, also in the directory where the command starts", async () => {
    const run = async (place: string, ...more: string[]) =>
      (await service.runHere(["exec", "-e", `PATH=${place}`, ...more, SANDBOX, "--", "true"])).exitCode;
    expect(await run("/nowhere")).toBe(127);
    expect(await run("/nowhere:/usr/bin")).toBe(0);
    expect(await run("/nowhere::/bin", "-w", "/usr/bin")).toBe(0);
    expect(await run("", "-w", "/usr/bin")).toBe(0);
  });

  test("the search leaves no trace in the program's environment", async () => {
    const { stdout } = await service.runHere([
      "exec",
      "-e",
      "PATH=/usr/bin:/bin",
      "-e",
      "p=1",
      SANDBOX,
      "--",
      "env",
    ]);
    const names = stdout
      .toString()
      .match(/^\w+(?==)/gm)
      ?.sort();
    const plain = await service.runHere([
      "exec",
      "-e",
      "PATH=/usr/bin:/bin",
      "-e",
      "p=1",
      SANDBOX,
      "--",
      "/bin/sh",
      "-c",
      "exec env",
    ]);
    expect(names).toEqual(
      plain.stdout
        .toString()
        .match(/^\w+(?==)/gm)
        ?.filter((name) => !/^(PWD|OLDPWD|SHLVL|_)$/.test(name))
        .sort(),
    );
    expect(stdout.toString()).toMatch(/^p=1$/m);
  });
});

test("a missing sandbox: 125, and where to look", async () => {
  const { exitCode, stderr } = await service.runHere(["exec", "nobody", "--", "true"]);
  expect(exitCode).toBe(125);
  expect(stderr).toMatch(/^berth: .*nobody.*\nTo list them: berth ls --all\n$/);
});

test.each([
  [125, ["exec", SANDBOX, "--", "echo", "lost"]],
  [1, ["ls"]],
])("output that cannot be written: %i, and an error message", async (failed, args) => {
  const within = ["sh", "-c", 'exec "$@" >/dev/full', "sh"];
  const { exitCode, stderr } = await service.run(args, { within });
  expect(stderr).toMatch(/^berth: stdout cannot be written: .*no space left.*\n$/);
  expect(exitCode).toBe(failed);
});

test.each([
  ["is full", 1, 125, ["sh", "-c", 'exec "$@" >/dev/full', "sh"]],
  // The reader has gone before the program starts.
  ["is closed", 141, 141, ["sh", "-c", 'exec 3>&1; { "$@"; echo $? >&3; } | :; exec 3>&-', "sh"]],
])("what was made is named on stderr if stdout %s", async (what, created, started, within) => {
  const codeOf = ({ exitCode, stdout }: ProgramEnd) => (what === "is full" ? exitCode : Number(stdout));
  const id = `unsaid-${created}`;
  const create = await service.run(["create", "--id", id], { within });
  expect([codeOf(create), create.stderr]).toEqual([
    created,
    expect.stringMatching(
      new RegExp(
        `^berth: stdout cannot be written: .+\nThe sandbox was created. Delete it with: berth rm ${id}\n$`,
      ),
    ),
  ]);
  const exec = await service.run(["exec", "-d", id, "--", "sleep", "600"], { within });
  const [, processId = ""] =
    /\nThe command was started\. End it with: berth kill (\S+)\n$/.exec(exec.stderr) ?? [];
  expect([codeOf(exec), processId, exec.stderr]).toEqual([started, expect.stringMatching(/./), exec.stderr]);
  expect(await service.runHere(["kill", processId])).toMatchObject({ exitCode: 0 });
  expect(await service.runHere(["rm", id])).toMatchObject({ exitCode: 0 });
});

test("an error output that cannot be written: 125, and 141 if its reader has gone", async () => {
  const command = ["exec", SANDBOX, "--", "sh", "-c", "echo lost >&2; sleep 60"];
  const within = ["sh", "-c", 'exec "$@" 2>/dev/full', "sh"];
  expect(await service.run(command, { within })).toMatchObject({ exitCode: 125 });
  const child = service.begin(["exec", SANDBOX, "--", "sh", "-c", "exec yes >&2"]);
  child.stderr.once("data", () => child.stderr.destroy());
  const [exitCode] = await once(child, "exit");
  expect(exitCode).toBe(141);
});

test("a missing directory is the service's refusal, not the command's", async () => {
  const { exitCode, stderr } = await execHere(["-w", "/no/such/dir"], ["true"]);
  expect(exitCode).toBe(125);
  expect(stderr).toContain("/no/such/dir");
});

test("deleting the sandbox ends the command with 125", async () => {
  await service.runHere(["create", "--id", "short"]);
  const child = service.begin(["exec", "short", "--", "sh", "-c", "echo up; sleep 600"]);
  const end = endOf(child);
  await once(child.stdout, "data");
  await service.runHere(["rm", "--grace", "0s", "short"]);
  const { exitCode, stderr } = await end;
  expect(exitCode).toBe(125);
  expect(stderr).toMatch(/^berth: .*sandbox/);
});

test("no service: the address and how to start one", async () => {
  const { exitCode, stderr } = await runProgramHere(["exec", "x", "--", "true"], {
    env: { BERTH_ADDRESS: "127.0.0.1:1" },
  });
  expect(exitCode).toBe(125);
  expect(stderr).toBe(
    "berth: no service answers at 127.0.0.1:1\nStart one with: berth serve\n" +
      "If it listens elsewhere, say where with --address or BERTH_ADDRESS.\n",
  );
});
