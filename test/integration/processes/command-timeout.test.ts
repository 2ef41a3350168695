import { beforeAll, expect, test } from "vitest";
import { useApp } from "../../support/app.ts";
import { processesOf } from "../../support/docker.ts";
import { eventually } from "../../support/eventually.ts";
import { inSeconds, seconds } from "../../support/wire.ts";

const app = useApp();
let id = "";
/** What runs in an idle sandbox. */
let idle: string[] = [];

beforeAll(async () => {
  ({ sandbox_id: id } = await app.client.createSandbox({ command_timeout: seconds(1) }));
  await app.client.output(id, "true");
  idle = await processes();
});

async function processes(): Promise<string[]> {
  return processesOf(app.instance, id);
}

/** Fails if something with this argument still runs. */
async function expectGone(marker: string): Promise<void> {
  expect((await processes()).filter((line) => line.includes(marker))).toEqual([]);
}

test("a command without a timeout has its sandbox's", async () => {
  const { exit, stdout } = await app.client.exec(id, "echo started; sleep 3111; echo never").result;
  expect(exit).toMatchObject({ cause: "EXIT_CAUSE_TIMED_OUT", exit_code: 143, signal: 15 });
  expect(stdout.toString()).toBe("started\n");
  expect(inSeconds(exit.duration)).toBeGreaterThan(0.95);
  expect(inSeconds(exit.duration)).toBeLessThan(30);
  await expectGone("3111");
});

test("a command's own timeout may be shorter or longer than its sandbox's", async () => {
  const long = app.client.run(id, "sleep 1.5; echo done", { timeout: seconds(30) });
  const short = await app.client.run(id, "sleep 3222", { timeout: seconds(0.2) });
  expect(short.exit_status.cause).toBe("EXIT_CAUSE_TIMED_OUT");
  expect((await long).stdout.toString()).toBe("done\n");
  await expectGone("3222");
});

test("a command that ignores SIGTERM is killed after a grace period", async () => {
  const { exit, stdout } = await app.client.exec(id, "trap 'echo no' TERM; while :; do sleep 0.03333; done", {
    timeout: seconds(0.3),
  }).result;
  expect(exit).toMatchObject({ cause: "EXIT_CAUSE_TIMED_OUT", exit_code: 137, signal: 9 });
  expect(stdout.toString()).toBe("no\n");
  expect(inSeconds(exit.duration)).toBeGreaterThan(1);
  expect(inSeconds(exit.duration)).toBeLessThan(30);
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
    "echo ready; wait",
  ].join("\n");
  const execution = app.client.exec(id, line, { timeout: seconds(1) });
  await execution.until("ready");
  await eventually(async () => (await processes()).filter((one) => /sleep 344\d$/.test(one)).length === 4);
  const { exit } = await execution.result;
  expect(exit.cause).toBe("EXIT_CAUSE_TIMED_OUT");
  await expectGone("344");
});

test("RunCommand returns the output up to the timeout", async () => {
  const {
    stdout,
    stderr,
    exit_status: exit,
  } = await app.client.run(id, "echo out; echo err >&2; exec sleep 3551");
  expect(exit.cause).toBe("EXIT_CAUSE_TIMED_OUT");
  expect(stdout.toString()).toBe("out\n");
  expect(stderr.toString()).toBe("err\n");
  await expectGone("3551");
});

test("none of these processes is left, and the sandbox still works", async () => {
  expect(await app.client.output(id, "echo fine")).toBe("fine\n");
  const marked = (await processes()).filter((line) => /\bsleep\b/.test(line));
  expect(marked).toEqual(idle.filter((line) => /\bsleep\b/.test(line)));
  expect((await app.client.getSandbox(id)).active_operations).toBe(0);
});
