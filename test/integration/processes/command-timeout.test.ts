import { beforeAll, expect, test } from "vitest";
import { useApp } from "../../support/app.ts";
import { processesOf } from "../../support/docker.ts";
import type { ExecutionResult } from "../../support/execution.ts";
import { withTimeEnough } from "../../support/time-enough.ts";
import { inSeconds, seconds } from "../../support/wire.ts";

/** For commands that must not exceed their timeout. */
const LONG = { timeout: seconds(60) };

const app = useApp();
let id = "";
/** What runs in an idle sandbox. */
let idle: string[] = [];

beforeAll(async () => {
  ({ sandbox_id: id } = await app.client.createSandbox({ command_timeout: seconds(1) }));
  await app.client.output(id, "true", LONG);
  idle = await processesOf(app.instance, id);
});

/** Fails if something with this argument still runs. */
async function expectGone(marker: string, sandboxId = id): Promise<void> {
  const left = await processesOf(app.instance, sandboxId);
  expect(left.filter((line) => line.includes(marker))).toEqual([]);
}

/** Runs a command with a timeout that passes only after the command has written this. */
function outlasted(line: string, written: string, first: number): Promise<ExecutionResult> {
  return withTimeEnough(
    first,
    (timeout) => app.client.exec(id, line, { timeout: seconds(timeout) }).result,
    ({ stdout }) => stdout.includes(written),
  );
}

/** The same with the timeout of a sandbox, in which nothing with this argument is left. */
function outlastedBySandbox<T extends { readonly stdout: Buffer }>(
  run: (sandboxId: string) => Promise<T>,
  written: string,
  marker: string,
): Promise<T> {
  const inSandbox = async (timeout: number): Promise<T> => {
    const spec = { command_timeout: seconds(timeout) };
    const { sandbox_id: sandboxId } = await app.client.createSandbox(spec);
    const result = await run(sandboxId);
    await expectGone(marker, sandboxId);
    await app.client.deleteSandbox(sandboxId);
    return result;
  };
  return withTimeEnough(1, inSandbox, ({ stdout }) => stdout.includes(written));
}

test("what exits with 0 after its timeout gives the test client no output", async () => {
  const line = "trap 'exit 0' TERM; echo ready; while :; do sleep 0.1; done";
  await expect(app.client.output(id, line, { timeout: seconds(2) })).rejects.toThrow(
    "EXIT_CAUSE_TIMED_OUT, exit code",
  );
});

test("a command without a timeout has its sandbox's", async () => {
  const line = "echo started; sleep 3111; echo never";
  const run = (sandboxId: string) => app.client.exec(sandboxId, line).result;
  const { exit, stdout } = await outlastedBySandbox(run, "started", "3111");
  expect(exit).toMatchObject({ cause: "EXIT_CAUSE_TIMED_OUT", exit_code: 143, signal: 15 });
  expect(stdout.toString()).toBe("started\n");
  expect(inSeconds(exit.duration)).toBeGreaterThan(0.95);
  expect(inSeconds(exit.duration)).toBeLessThan(120);
});

test("a command's own timeout may be shorter or longer than its sandbox's", async () => {
  const long = app.client.run(id, "sleep 1.5; echo done", { timeout: seconds(30) });
  const short = await app.client.run(id, "sleep 3222", { timeout: seconds(0.2) });
  expect(short.exit_status.cause).toBe("EXIT_CAUSE_TIMED_OUT");
  expect((await long).stdout.toString()).toBe("done\n");
  await expectGone("3222");
});

test("a command that ignores SIGTERM is killed after a grace period", async () => {
  const line = "trap 'echo no' TERM; echo set; while :; do sleep 0.03333; done";
  const { exit, stdout } = await outlasted(line, "set", 0.3);
  expect(exit).toMatchObject({ cause: "EXIT_CAUSE_TIMED_OUT", exit_code: 137, signal: 9 });
  expect(stdout.toString()).toBe("set\nno\n");
  expect(inSeconds(exit.duration)).toBeGreaterThan(1);
  expect(inSeconds(exit.duration)).toBeLessThan(120);
  await expectGone("0.03333");
});

test("children, grandchildren and those that left the session are killed too", async () => {
  const line = [
    "trap '' TERM",
    // A child that ignores SIGTERM, which it inherits.
    "sleep 3441 &",
    // A child of a child.
    "sh -c 'sleep 3442 & wait' &",
    // A process in its own session that still holds the pipes.
    "setsid sleep 3443 &",
    // A process in its own session below another shell.
    "setsid sh -c 'sleep 3444; :' &",
    // Only once all four run.
    "until [ $(grep -lzx '344[1-4]' /proc/[0-9]*/cmdline 2>/dev/null | wc -l) = 4 ]; do sleep 0.05; done",
    "echo ready; wait",
  ].join("\n");
  const { exit, stdout } = await outlasted(line, "ready", 1);
  expect(exit.cause).toBe("EXIT_CAUSE_TIMED_OUT");
  expect(stdout.toString()).toBe("ready\n");
  await expectGone("344");
});

test("RunCommand returns the output up to the timeout", async () => {
  const run = (sandboxId: string) => app.client.run(sandboxId, "echo err >&2; echo out; exec sleep 3551");
  const { stdout, stderr, exit_status: exit } = await outlastedBySandbox(run, "out", "3551");
  expect(exit.cause).toBe("EXIT_CAUSE_TIMED_OUT");
  expect(stdout.toString()).toBe("out\n");
  expect(stderr.toString()).toBe("err\n");
});

test("none of these processes is left, and the sandbox still works", async () => {
  expect(await app.client.output(id, "echo fine", LONG)).toBe("fine\n");
  const marked = (await processesOf(app.instance, id)).filter((line) => /\bsleep\b/.test(line));
  expect(marked).toEqual(idle.filter((line) => /\bsleep\b/.test(line)));
  expect((await app.client.getSandbox(id)).active_operations).toBe(0);
});
