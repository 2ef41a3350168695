import { afterAll, beforeAll, expect, test } from "vitest";
import { eventually } from "../../support/eventually.ts";
import { endOf, ServeProcess } from "../../support/program.ts";
import { expectRemaining } from "../../support/remaining.ts";

let service: ServeProcess;
beforeAll(async () => {
  service = await ServeProcess.start(["--engine", "bubblewrap", "--session-ttl", "10m"]);
});
afterAll(() => service.stop());

test("a session from create to destroy, and its tools", async () => {
  const run = async (...args: string[]) => {
    const { stdout, stderr, exitCode: code } = await service.runHere(args);
    return { stdout: stdout.toString(), stderr, code };
  };
  const created = await run("session", "create", "bash", "-w", "ann", "--config", '{"env":{"A":"1"}}');
  expect(created).toMatchObject({ stdout: expect.stringMatching(/^bash_ann_001_[0-9a-f]{8}\n$/), code: 0 });
  const id = created.stdout.trim();
  const tool = (...words: string[]) => run("tool", "run", "-w", "ann", ...words);

  expect(await tool("bash:run", "command=cd /tmp; echo $A; echo bad >&2; (exit 7)")).toEqual({
    stdout: "1\n",
    stderr: "bad\n",
    code: 7,
  });
  expect(await tool("bash:run", "command=pwd")).toMatchObject({ stdout: "/tmp\n", code: 0 });
  expect(await tool("bash:run", "command=sleep 1000", "timeout:=0.2")).toMatchObject({ code: 124 });
  expect(await tool("bash:run", "comand=x")).toMatchObject({
    code: 1,
    stderr: expect.stringContaining("comand"),
  });
  expect(await tool("bash:run", "command")).toMatchObject({ code: 2 });

  await tool("bash:run", "command=kill -9 $$");
  const restarted =
    "berth: the session was lost before this call and has been restarted: what it held is gone\n";
  expect(await tool("bash:run", "command=(exit 3)")).toEqual({ stdout: "", stderr: restarted, code: 3 });
  const begin = performance.now();
  expect(await tool("bash:run", "command=:")).toEqual({ stdout: "", stderr: "", code: 0 });

  const ls = await run("session", "ls");
  const [headings, row = "", ...rest] = ls.stdout.split("\n");
  expect(headings).toMatch(/^ID +WORKER +TYPE +STATUS +SANDBOX +EXPIRES$/);
  const cells = row.split(/ {2,}/);
  const sandbox = expect.stringMatching(/^sbx_\w+$/);
  expect(cells).toEqual([id, "ann", "bash", "active", sandbox, expect.any(String)]);
  expectRemaining(cells[5], 600, begin);
  expect(rest).toEqual([""]);
  const { sessions } = JSON.parse((await run("session", "ls", "--json")).stdout);
  expect(sessions).toMatchObject([{ sessionId: id, ttl: "600s", config: { env: { A: "1" } } }]);

  const reset = await run("session", "reset", "bash", "-w", "ann", "--config", '{"env":{"A":"2"}}');
  expect(reset.stdout).toMatch(/^bash_ann_002_/);
  expect(await tool("bash:run", "command=echo $A")).toMatchObject({ stdout: "2\n" });
  expect(await run("session", "rm", "-w", "ann")).toMatchObject({ stdout: reset.stdout, code: 0 });
  const none = "berth: there is no session of the type bahs\nTo list them: berth session ls\n";
  expect(await run("session", "rm", "-w", "ann", "bahs")).toEqual({ stdout: "", stderr: none, code: 1 });
  expect(await run("session", "rm", "-f", "-w", "ann", "bahs")).toEqual({ stdout: "", stderr: "", code: 0 });
  expect((await run("session", "ls")).stdout).toBe("ID  WORKER  TYPE  STATUS  SANDBOX  EXPIRES\n");

  expect(await run("session", "create", "hologram")).toMatchObject({
    code: 1,
    stderr: expect.stringContaining(
      'there is no resource type "hologram". There are: bash, browser, code, files, python',
    ),
  });
  expect((await run("tool", "ls", "bash")).stdout).toBe("TOOL      PARAMS\nbash:run  command [timeout]\n");
});

test("to end all sessions is no failure while others end them", async () => {
  const run = (...args: string[]) => service.runHere([...args, "-w", "leaving"]);
  const id = (await run("session", "create", "bash")).stdout.toString();
  const busy = service.begin(["tool", "run", "bash:run", "command=echo on; sleep 1000", "-w", "leaving"]);
  const end = endOf(busy);
  await new Promise((resolve) => busy.stdout.once("data", resolve));
  // Both wait for the end of the tool.
  const both = [run("session", "rm", "--grace", "10m"), run("session", "rm", "--grace", "10m")];
  await eventually(async () => {
    const metrics = await (await fetch(`http://${service.address}/metrics`)).text();
    return /^berth_rpc_in_flight\{.*DestroySessions.*\} 2$/m.test(metrics);
  });
  busy.kill("SIGINT");
  const ends = (await Promise.all(both)).map(({ exitCode, stdout, stderr }) => [
    exitCode,
    `${stdout}${stderr}`,
  ]);
  expect(ends.sort()).toEqual([
    [0, ""],
    [0, id],
  ]);
  await end;
});

test("code that throws ends with 1, and the exception is shown after its output", async () => {
  const python = async (code: string, ...flags: string[]) => {
    const { stdout, stderr, exitCode } = await service.runHere([
      "tool",
      "run",
      ...flags,
      "python:run",
      `code=${code}`,
    ]);
    return { stdout: stdout.toString(), stderr, exitCode };
  };
  const wrote = await python("print('started')\n1 / 0");
  expect(wrote).toMatchObject({ stdout: "started\n", exitCode: 1 });
  expect(wrote.stderr).toMatch(/^Traceback [\s\S]*\nZeroDivisionError: division by zero\n$/);
  const silent = await python("1 / 0");
  expect(JSON.parse(silent.stdout)).toMatchObject({ result: null, error: { name: "ZeroDivisionError" } });
  expect(silent).toMatchObject({ stderr: "", exitCode: 1 });
  expect(await python("1 / 0", "--json")).toMatchObject({ stderr: "", exitCode: 1 });
  expect(await python("print('fine')")).toEqual({ stdout: "fine\n", stderr: "", exitCode: 0 });
});

test("what a session's program says when it does not start cannot control the terminal", async () => {
  const sandbox = (await service.runHere(["create"])).stdout.toString().trim();
  await service.runHere(["session", "create", "bash", "-w", "eve", "--sandbox", sandbox]);
  const script = "#!/bin/sh\\nprintf '\\\\033]0;owned\\\\007' >&2; exit 1\\n";
  const command = `mkdir /tmp/bin && printf "${script}" >/tmp/bin/bash && chmod 755 /tmp/bin/bash`;
  await service.runHere(["tool", "run", "-w", "eve", "bash:run", `command=${command}`]);
  const config = JSON.stringify({ env: { PATH: "/tmp/bin:/usr/bin:/bin" } });
  const reset = await service.runHere(["session", "reset", "bash", "-w", "eve", "--config", config]);
  expect([reset.exitCode, reset.stderr.toString()]).toEqual([1, expect.stringContaining("owned")]);
  expect(reset.stderr.toString()).not.toMatch(/[\x07\x1b]/);
  await service.runHere(["rm", sandbox]);
});

test("who asks for what no installation brings is not sent to doctor", async () => {
  await service.runHere(["session", "create", "bash", "-w", "blind"]);
  const { exitCode, stderr } = await service.runHere(["session", "view", "blind", "bash"]);
  expect({ exitCode, stderr }).toEqual({
    exitCode: 1,
    stderr: "berth: A session of the type bash has no screen to show.\n",
  });
  await service.runHere(["session", "rm", "-w", "blind"]);
});
