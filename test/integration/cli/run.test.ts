import { createHash } from "node:crypto";
import { once } from "node:events";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { expectNoContainers } from "../../support/app.ts";
import { containersOf } from "../../support/docker.ts";
import { eventually } from "../../support/eventually.ts";
import { MISSING_IMAGE } from "../../support/images.ts";
import { endOf, ServeProcess } from "../../support/program.ts";

let service: ServeProcess;
beforeAll(async () => {
  service = await ServeProcess.start();
});
afterAll(async () => {
  const { exitCode } = await service.stop();
  expect(exitCode).toBe(0);
});
afterEach(async () => {
  expect(await containersOf(service.instance)).toEqual([]);
});

describe("the exit code is the command's", () => {
  test.each<[string, string[], number, string]>([
    ["success", ["--", "true"], 0, ""],
    ["a code", ["--", "sh", "-c", "exit 3"], 3, ""],
    ["not executable", ["--", "/etc/passwd"], 126, ""],
    ["no such command", ["--", "no-such-command"], 127, ""],
    ["a signal", ["--", "sh", "-c", "kill -15 $$"], 143, ""],
    [
      "a timeout",
      ["--timeout", "500ms", "--", "sleep", "60"],
      124,
      "exceeded its timeout and was killed after",
    ],
    [
      "out of memory",
      ["--memory", "48MiB", "--", "python3", "-c", "x = bytearray(200_000_000)"],
      137,
      "the sandbox is out of memory",
    ],
  ])("%s", async (_what, args, code, remark) => {
    const { exitCode, stderr } = await service.runHere(["run", ...args]);
    expect({ exitCode, stderr }).toEqual({ exitCode: code, stderr: expect.stringContaining(remark) });
  });

  test("-- may be left out before a command without dashes, and its own flags stay its own", async () => {
    const { exitCode, stdout } = await service.run(["run", "echo", "-n", "--json", "--"]);
    expect([exitCode, stdout.toString()]).toEqual([0, "--json --"]);
  });
});

describe("output", () => {
  test("is exact, each stream separate", async () => {
    const script = "import os\nfor i in range(256): os.write(1, bytes([i])); os.write(2, bytes([255 - i]))";
    const { stdout, stderr, exitCode } = await service.run(["run", "--", "python3", "-c", script]);
    expect(exitCode).toBe(0);
    expect(stdout).toEqual(Buffer.from(Array.from({ length: 256 }, (_, i) => i)));
    expect(stderr).toBe(Buffer.from(Array.from({ length: 256 }, (_, i) => 255 - i)).toString());
  });

  test("is printed as it is written", async () => {
    const child = service.begin(["run", "--", "sh", "-c", "echo first; read line; echo got $line"], {
      stdin: "open",
    });
    const end = endOf(child);
    await once(child.stdout, "data");
    child.stdin.end("second\n");
    expect(await end).toMatchObject({ exitCode: 0, stdout: Buffer.from("first\ngot second\n") });
  });

  test("a reader that stops ends the command and its sandbox", async () => {
    const child = service.begin(["run", "--", "yes"]);
    child.stdout.once("data", () => child.stdout.destroy());
    const [exitCode] = await once(child, "exit");
    expect(exitCode).toBe(141);
  });
});

describe("settings of the sandbox", () => {
  test("env, workdir, user, cpus and memory reach it", async () => {
    const { stdout, stderr } = await service.runHere(
      [
        [
          "run",
          "-e",
          "GREETING=hello there",
          "-e",
          "EMPTY=",
          "-w",
          "/srv/data",
          "-u",
          "65534",
          "--memory",
          "64MiB",
        ],
        ["--cpus", "0.5", "--json", "--", "sh", "-c", 'echo "$GREETING|$EMPTY|$PWD|$(id -u)"'],
      ].flat(),
    );
    expect(stderr).toBe("");
    const lines = stdout
      .toString()
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line));
    const { sandbox } = lines.find((line) => "sandbox" in line);
    expect(sandbox.spec.resources).toMatchObject({ memoryBytes: String(64 * 2 ** 20), cpuMillis: 500 });
    const output = lines
      .filter((line) => "output" in line)
      .map((line) => Buffer.from(line.output.data, "base64"));
    expect(Buffer.concat(output).toString()).toBe("hello there||/srv/data|65534\n");
  });

  test("with --json every line is one event, in order, ending in exited", async () => {
    const { stdout, exitCode } = await service.run([
      "run",
      "--json",
      "--",
      "sh",
      "-c",
      "echo out; echo err >&2; exit 4",
    ]);
    expect(exitCode).toBe(4);
    const lines = stdout
      .toString()
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line));
    const kinds = lines.map((line) => Object.keys(line)).filter(([kind]) => kind !== "event");
    expect(kinds).toEqual([["sandbox"], ["started"], ["output"], ["output"], ["exited"]]);
    const { started, exited } = Object.assign({}, ...lines);
    expect(started).toEqual({
      processId: expect.stringMatching(/^prc_[a-z2-7]{20}$/),
      startTime: expect.any(String),
      recoveries: 0,
      stdoutOffset: "0",
      stderrOffset: "0",
    });
    expect(exited).toEqual({
      cause: "EXIT_CAUSE_EXITED",
      exitCode: 4,
      signal: 0,
      duration: expect.stringMatching(/s$/),
      stdoutBytes: "4",
      stderrBytes: "4",
      message: "",
    });
  });
});

describe("stdin", () => {
  test("a pipe is passed on to its end", async () => {
    const { stdout, exitCode } = await service.run(["run", "--", "sha256sum"], { stdin: "some input" });
    const hash = createHash("sha256").update("some input").digest("hex");
    expect([exitCode, stdout.toString()]).toEqual([0, `${hash}  -\n`]);
  });

  test("an open stdin does not delay the end of the command", async () => {
    const { exitCode } = await endOf(service.begin(["run", "--", "true"], { stdin: "open" }));
    expect(exitCode).toBe(0);
  });
});

describe("on a signal", () => {
  test.each([
    ["SIGINT", 130],
    ["SIGTERM", 143],
    ["SIGHUP", 129],
  ] as const)("%s during the command: no sandbox is left", async (signal, code) => {
    const child = service.begin(["run", "--", "sh", "-c", "echo ready; sleep 600"]);
    const end = endOf(child);
    await once(child.stdout, "data");
    child.kill(signal);
    expect(await end).toMatchObject({ exitCode: code, stderr: `berth: stopped by ${signal}\n` });
  });

  test("during the create: no sandbox is left", async () => {
    const child = service.begin(["run", "--", "sleep", "600"]);
    const end = endOf(child);
    await eventually(async () => (await containersOf(service.instance)).length > 0);
    child.kill("SIGINT");
    expect((await end).exitCode).toBe(130);
    // A canceled create ends after some seconds, even if Docker takes longer to remove its container.
    await expectNoContainers(service.instance);
  });

  test("while nobody reads its output: it still ends", async () => {
    const child = service.begin(["run", "--", "yes"]);
    // Reads once and then stops, so that the pipe fills up and the program waits.
    await once(child.stdout, "readable");
    child.stderr.resume();
    await new Promise((resolve) => setTimeout(resolve, 1000));
    child.kill("SIGTERM");
    const [exitCode] = await once(child, "exit");
    expect(exitCode).toBe(143);
    child.stdout.destroy();
  });
});

test("an image that cannot be found is reported with what to do", async () => {
  const { exitCode, stderr, stdout } = await service.runHere(["run", "--image", MISSING_IMAGE, "--", "true"]);
  expect([exitCode, stdout.length]).toEqual([125, 0]);
  expect(stderr).toContain(MISSING_IMAGE);
  expect(stderr).toMatch(/^berth: The image .+ cannot be reached .+\. Check .+\n$/s);
});
