import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { Client } from "../../support/client.ts";
import { CuttableLink } from "../../support/cuttable-link.ts";
import { containersOf } from "../../support/docker.ts";
import { eventually } from "../../support/eventually.ts";
import { LastingService } from "../../support/lasting-service.ts";
import { endOf, runProgram, ServeProcess } from "../../support/program.ts";

const SANDBOX = "box";
const MIB = 1024 * 1024;

let service: ServeProcess;
/** For calls that do not need the program, because a client takes a fraction of its time. */
let client: Client;
beforeAll(async () => {
  service = await ServeProcess.start(["--engine", "bubblewrap", "--transcript-window", "1MiB"]);
  client = new Client(service.address);
  const { exitCode, stderr } = await service.runHere(["create", "--id", SANDBOX]);
  expect({ exitCode, stderr }).toEqual({ exitCode: 0, stderr: "" });
});
afterAll(async () => {
  client.close();
  await service.stop();
  expect(await containersOf(service.instance)).toEqual([]);
});

/** Leaves a shell line running. Returns the process id. */
async function leave(line: string): Promise<string> {
  const execution = client.exec(SANDBOX, line, { on_disconnect: "ON_DISCONNECT_DETACH" });
  const processId = await execution.processId;
  execution.cancel();
  return processId;
}

async function logs(...args: string[]) {
  const { exitCode, stdout, stderr } = await service.runHere(["logs", ...args]);
  return { exitCode, stdout: stdout.toString("latin1"), stderr };
}

/** Runs a line to its end. Returns the process id. */
async function ended(line: string): Promise<string> {
  const processId = await leave(line);
  await client.attach(processId).result;
  return processId;
}

describe("the output so far", () => {
  let processId: string;
  beforeAll(async () => {
    processId = await ended("echo to stdout; echo to stderr >&2; printf '\\377\\0\\r\\n'; exit 5");
  });

  test("is printed byte for byte, each stream to its own, and is no failure whatever the process's code", async () => {
    const { exitCode, stdout, stderr } = await service.run(["logs", processId]);
    expect({ exitCode, stdout: stdout.toString("latin1"), stderr }).toEqual({
      exitCode: 0,
      stdout: "to stdout\n\xff\0\r\n",
      stderr: "to stderr\n",
    });
  });

  test.each<[string, string[], string, string]>([
    ["one stream", ["--stdout"], "to stdout\n\xff\0\r\n", ""],
    ["the other, to stdout", ["--stderr"], "to stderr\n", ""],
    ["the end of both", ["--tail", "5"], "\n\xff\0\r\n", "derr\n"],
    ["the end of one", ["--stderr", "--tail", "5"], "derr\n", ""],
    ["a tail longer than it", ["--tail", "1000"], "to stdout\n\xff\0\r\n", "to stderr\n"],
    ["no tail", ["--tail", "0"], "", ""],
    ["from a place on", ["--offset", "3"], "stdout\n\xff\0\r\n", "stderr\n"],
    ["from a place that one stream has not", ["--offset", "12"], "\r\n", ""],
    ["from a place that none has", ["--offset", "1000"], "", ""],
  ])("%s", async (_what, flags, stdout, stderr) => {
    expect(await logs(...flags, processId)).toEqual({ exitCode: 0, stdout, stderr });
  });

  test("with --json is printed as the API returns it", async () => {
    const { stdout } = await logs("--json", "--stdout", "--offset", "3", processId);
    const events = stdout
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line));
    expect(events[0].started.processId).toBe(processId);
    const output = events.slice(1).map(({ output }) => output);
    expect(output[0]).toMatchObject({ stream: "OUTPUT_STREAM_STDOUT", offset: "3" });
    const data = Buffer.concat(output.map(({ data }) => Buffer.from(data, "base64")));
    expect(data.toString("latin1")).toBe("stdout\n\xff\0\r\n");
  });

  test("of a running process ends with what there is", async () => {
    const running = await leave("echo so far; exec sleep 600");
    await eventually(async () => (await logs(running)).stdout === "so far\n");
    expect(await logs("--tail", "4", running)).toEqual({ exitCode: 0, stdout: "far\n", stderr: "" });
    const silent = await leave("exec sleep 600");
    expect(await logs(silent)).toEqual({ exitCode: 0, stdout: "", stderr: "" });
  });
});

describe("followed to the end", () => {
  test("the exit code is the process's, and output is printed as it is written", async () => {
    const processId = await leave("echo first; while [ ! -e go ]; do sleep 0.05; done; echo last; exit 7");
    const child = service.begin(["logs", "-f", processId]);
    const end = endOf(child);
    let seen = "";
    child.stdout.on("data", (data) => {
      seen += data;
    });
    await eventually(() => seen === "first\n");
    await client.output(SANDBOX, "touch go");
    expect(await end).toMatchObject({ exitCode: 7, stdout: Buffer.from("first\nlast\n"), stderr: "" });
  });

  test("any other end is reported as exec reports it", async () => {
    const left = await service.runHere(["exec", "-d", "--timeout", "300ms", SANDBOX, "--", "sleep", "60"]);
    expect(left).toMatchObject({ exitCode: 0, stderr: "" });
    expect(left.stdout.toString()).toMatch(/^prc_[a-z2-7]{20}\n$/);
    const { exitCode, stderr } = await logs("-f", left.stdout.toString().trim());
    expect(exitCode).toBe(124);
    expect(stderr).toMatch(/^berth: the command exceeded its timeout/);
  });

  test("Ctrl-C stops following, not the process", async () => {
    const processId = await leave("echo up; exec sleep 600");
    const child = service.begin(["logs", "-f", processId]);
    const end = endOf(child);
    await new Promise((resolve) => child.stdout.once("data", resolve));
    child.kill("SIGINT");
    expect((await end).exitCode).toBe(130);
    expect((await service.runHere(["ps", SANDBOX])).stdout.toString()).toContain(processId);
  });

  test("from --offset on, including output yet to come", async () => {
    const processId = await leave("printf 0123; sleep 0.5; printf 456789");
    expect(await logs("-f", "--offset", "6", processId)).toEqual({ exitCode: 0, stdout: "6789", stderr: "" });
  });
});

describe.concurrent("a connection that breaks", () => {
  const LINES = 200;
  const whole = Array.from({ length: LINES }, (_, index) => `line ${index + 1}\n`).join("");

  test("it reconnects and continues where it was, as often as needed, and says so", async () => {
    // It waits before the part after each cut, so that some output is always left, however slow the test is.
    const processId = await leave(
      `for part in 0 1 2 3; do
         until [ $part = 0 ] || [ -e /tmp/part$part ]; do sleep 0.05; done
         for i in $(seq $((part * ${LINES / 4} + 1)) $((part * ${LINES / 4} + ${LINES / 4}))); do echo line $i; sleep 0.02; done
       done; exit 3`,
    );
    const link = await CuttableLink.to(service.address);
    const child = service.begin(["logs", "-f", processId], { env: { BERTH_ADDRESS: link.address } });
    const end = endOf(child);
    let seen = 0;
    child.stdout.on("data", (data) => {
      seen += data.length;
    });
    for (const [index, share] of [0.1, 0.3, 0.6].entries()) {
      await eventually(() => seen > whole.length * share);
      link.cut();
      await link.restore();
      await client.exec(SANDBOX, `touch /tmp/part${index + 1}`).result;
    }
    const { exitCode, stdout, stderr } = await end;
    link.cut();
    expect(exitCode).toBe(3);
    expect(stdout.toString()).toBe(whole);
    const broke = `berth: the connection to ${link.address} broke; reconnecting (1 of 6)\n`;
    expect(stderr.replaceAll(/^berth: no service answers.*\n/gm, "")).toBe(broke.repeat(3));
  });

  test("a restart of the service breaks it too, for berth wait as well", async () => {
    await using lasting = await LastingService.start({
      BERTH_ENGINE: "docker",
      BERTH_LEAVE_SANDBOXES: "true",
      // A stop waits for calls that follow a process for a share of this.
      BERTH_STOP_TIMEOUT: "1s",
    });
    const first = new Client(lasting.address);
    const { sandbox_id: sandbox } = await first.createSandbox();
    const line = "echo up; until [ -e /tmp/end ]; do sleep 0.1; done; echo end; exit 3";
    const processId = await first.exec(sandbox, line, { on_disconnect: "ON_DISCONNECT_DETACH" }).processId;
    const begin = (...args: string[]) => runProgram(args, { env: { BERTH_ADDRESS: lasting.address } });
    const ends = [begin("logs", "-f", processId), begin("wait", processId), begin("wait", sandbox)];
    await eventually(async () => {
      const metrics = await (await fetch(`http://${lasting.address}/metrics`)).text();
      return (
        /^berth_rpc_in_flight\{.*AttachProcess.*\} 2$/m.test(metrics) &&
        /^berth_rpc_in_flight\{.*WatchEvents.*\} 1$/m.test(metrics)
      );
    });
    first.close();
    await lasting.stop();
    await lasting.begin();
    const second = new Client(lasting.address);
    await second.run(sandbox, "touch /tmp/end");
    await second.attach(processId).result;
    await second.deleteSandbox(sandbox);
    second.close();
    const results = (await Promise.all(ends)).map(({ exitCode, stdout, stderr }) => [
      ...[exitCode, stdout.toString()],
      stderr.split("\n")[0],
    ]);
    const broke = `berth: the service at ${lasting.address} is shutting down; reconnecting (1 of 6)`;
    expect(results).toEqual([
      [3, "up\nend\n", broke],
      [3, "3\n", broke],
      [0, "deleted\n", broke],
    ]);
  });

  test("without a new connection it gives up, with the code of Berth's own failures", async () => {
    const processId = await leave("echo up; exec sleep 600");
    const link = await CuttableLink.to(service.address);
    const child = service.begin(["logs", "-f", processId], { env: { BERTH_ADDRESS: link.address } });
    const end = endOf(child);
    await new Promise((resolve) => child.stdout.once("data", resolve));
    link.cut();
    const { exitCode, stderr } = await end;
    expect(exitCode).toBe(125);
    const lines = stderr.split("\n");
    expect(lines[0]).toBe(`berth: the connection to ${link.address} broke; reconnecting (1 of 6)`);
    expect(lines[5]).toBe(`berth: no service answers at ${link.address}; reconnecting (6 of 6)`);
    expect(lines[6]).toBe(`berth: no service answers at ${link.address}`);
  });
});

test("output that is no longer kept is a gap, reported on stderr, and the rest is exact", async () => {
  const bytes = 6 * MIB;
  const processId = await ended(`awk 'BEGIN { for (i = 0; i < ${bytes / 16}; i++) printf "%015d\\n", i }'`);
  const lines = Array.from({ length: bytes / 16 }, (_, index) => `${String(index).padStart(15, "0")}\n`);
  const all = Buffer.from(lines.join(""));

  const events = (await logs("--json", processId)).stdout.trim().split("\n");
  const gaps = events.filter((line) => line.startsWith('{"gap"')).map((line) => JSON.parse(line).gap);
  expect(gaps).toHaveLength(1);
  const [from, to] = [Number(gaps[0].fromOffset), Number(gaps[0].toOffset)];
  const { exitCode, stdout, stderr } = await service.run(["logs", processId]);
  expect({ exitCode, stderr }).toEqual({ exitCode: 0, stderr: `[… ${to - from} bytes are gone …]\n` });
  expect(stdout.equals(Buffer.concat([all.subarray(0, from), all.subarray(to)]))).toBe(true);

  expect((await logs("--tail", "32", processId)).stdout).toBe(all.subarray(-32).toString());
  expect((await logs("--offset", String(from + 1), processId)).stderr).toBe(
    `[… ${to - from - 1} bytes are gone …]\n`,
  );
  expect((await logs("--offset", String(to), processId)).stderr).toBe("");
});

describe("ps", () => {
  test("lists running processes, and with --all ended ones", async () => {
    await client.call("SandboxService/CreateSandbox", { sandbox_id: "busy" });
    const exec = async (...args: string[]) =>
      (await service.runHere(["exec", "-d", "busy", "--", ...args])).stdout.toString().trim();
    const gone = await exec("sh", "-c", 'echo a word; printf "\\033[2J" >&2; exit 4');
    const killed = await exec("sh", "-c", "kill -9 $$");
    await client.attach(gone).result;
    await client.attach(killed).result;
    const running = await exec("sleep", "600");
    const list = async (...flags: string[]) => {
      const { stdout } = await service.run(["ps", ...flags, "busy"]);
      return stdout
        .toString()
        .trimEnd()
        .split("\n")
        .map((line) => line.split(/ {2,}/));
    };
    const headings = ["ID", "STATE", "STARTED", "STDOUT", "STDERR", "COMMAND"];
    const ago = expect.stringMatching(/^(\d+m?s|\d+m( \d+s)?) ago$/);
    const sleeps = [running, "running", ago, "0 B", "0 B", "sleep 600"];
    expect(await list()).toEqual([headings, sleeps]);
    expect(await list("--all")).toEqual([
      headings,
      sleeps,
      [killed, "signaled (9)", ago, "0 B", "0 B", "sh -c 'kill -9 $$'"],
      [gone, "exited (4)", ago, "7 B", "4 B", "sh -c 'echo a word; printf \"\\033[2J\" >&2; exit 4'"],
    ]);
    const { stdout } = await service.runHere(["ps", "--json", "--all", "busy"]);
    const { processes } = JSON.parse(stdout.toString());
    expect(processes.map(({ processId }: { processId: string }) => processId)).toEqual([
      running,
      killed,
      gone,
    ]);
    await client.call("SandboxService/DeleteSandbox", { sandbox_id: "busy", grace: {} });
  });

  test("commands are shown on one line, without control characters", async () => {
    await client.exec(SANDBOX, ["sh", "-c", "true\n\t\x1b[2J\u202e"]).result;
    const { stdout } = await service.runHere(["ps", "--all", SANDBOX]);
    expect(stdout.toString()).toContain("sh -c 'true\\n\\t\\u{1b}[2J\\u{202e}'\n");
  });

  test("a missing sandbox", async () => {
    const { exitCode, stderr } = await service.runHere(["ps", "nobody"]);
    expect(exitCode).toBe(1);
    expect(stderr).toMatch(/^berth: .*nobody.*\nTo list them: berth ls --all\n$/);
  });
});

describe("a wrong command line", () => {
  test.each<[string[], string]>([
    [["logs"], "missing required argument 'process'"],
    [
      ["logs", "--stdout", "--stderr", "prc_x"],
      "--stdout and --stderr cannot be used together: leave both out to get both streams",
    ],
    [["logs", "--tail", "1", "--offset", "1", "prc_x"], "--tail and --offset cannot be used together"],
    [["logs", "--tail", "-1", "prc_x"], '--tail: "-1" is not a whole number'],
    [["ps"], "missing required argument 'sandbox'"],
    [["exec", "-d", "-i", SANDBOX, "--", "cat"], "-d and -i cannot be used together"],
  ])("%j", async (args, problem) => {
    const { exitCode, stderr } = await service.runHere(args);
    expect(exitCode).toBe(2);
    expect(stderr).toContain(`berth: ${problem}`);
  });

  test("a missing process", async () => {
    const nobody = "prc_aaaaaaaaaaaaaaaaaaaa";
    const { exitCode, stderr } = await service.runHere(["logs", nobody]);
    expect(exitCode).toBe(1);
    expect(stderr).toMatch(new RegExp(`^berth: .*${nobody}.*\nTo list them: berth ps --all SANDBOX\n$`));
    expect((await service.runHere(["logs", "-f", nobody])).exitCode).toBe(125);
  });
});
