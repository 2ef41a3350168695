import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { closeSync, constants, mkdirSync, mkdtempSync, openSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, type TestContext, test, vi } from "vitest";
import type { Freezer } from "../../../../src/engine/outside/cgroup.ts";
import { OutsideView } from "../../../../src/engine/outside/control.ts";
import {
  childrenOf,
  NO_SCOPE,
  type ProcessScope,
  readProcess,
  scanTurns,
} from "../../../../src/engine/outside/host-process.ts";
import { eventually } from "../../../support/eventually.ts";
import { followTurns } from "../../../support/turns.ts";

/** Starts a program that is killed when the test ends, if it has not ended by then. */
function start(
  { onTestFinished }: TestContext,
  ...[program, args, options]: Parameters<typeof spawn>
): ChildProcess {
  const child = spawn(program, args, { stdio: "ignore", ...options });
  onTestFinished(() => void child.kill("SIGKILL"));
  return child;
}

/** Starts a shell with so many children, and waits for them. */
async function startTree(context: TestContext, count: number) {
  const line = `n=0; while [ $n -lt ${count} ]; do sleep 600 & n=$((n+1)); done; wait`;
  const child = start(context, "sh", ["-c", line], { detached: true });
  await once(child, "spawn");
  const { pid = 0 } = child;
  const sleeps = await eventually(() => childrenOf(pid).length === count && childrenOf(pid));
  return { pid, sleeps, leader: { pid, startTime: readProcess(pid)?.startTime ?? "" } };
}

/** A view of processes of this machine, as if they were all the processes of a sandbox. */
function viewOf(
  pids: readonly number[] | (() => readonly number[]),
  freezer: Freezer,
  level = 0,
  look: () => Promise<void> = async () => {},
): OutsideView {
  const now = typeof pids === "function" ? pids : () => pids;
  const scope = { pids: () => look().then(now), holds: (one: number) => now().includes(one) };
  return viewOfScope(scope, freezer, level);
}

function viewOfScope(scope: ProcessScope, freezer: Freezer, level = 0): OutsideView {
  return new OutsideView({
    ...{ entering: NO_SCOPE, level, freezer, freezeLast: false, scope },
    isHalfWayIn: () => false,
    oldestStartMs: () => 0,
    oomKills: () => undefined,
    isFull: async () => false,
  });
}

// They wait for most of their time.
describe.concurrent("a view from outside", () => {
  test("a tree that is killed on a machine that needs more than a second for it has ended anyway", async (context) => {
    const child = start(context, "sleep", ["600"], { detached: true });
    await once(child, "spawn");
    const { pid = 0 } = child;
    const leader = { pid, startTime: readProcess(pid)?.startTime ?? "" };
    const busy: Freezer = {
      paused: false,
      thaw() {},
      async frozen(act) {
        await sleep(600);
        const done = await act("running");
        await sleep(600);
        return done;
      },
    };
    const ended = once(child, "exit");
    await viewOf([pid], busy).killTree(leader);
    expect(await ended).toEqual([null, "SIGKILL"]);
  });

  test("a tree that starts more while a busy machine takes long to look at it is killed to its end", async (context) => {
    const { pid, sleeps, leader } = await startTree(context, 4);
    // Each look finds one more, as if it had just been started.
    let looks = 0;
    const busy: Freezer = {
      paused: false,
      thaw() {},
      async frozen(act) {
        looks++;
        await sleep(400);
        return act("running");
      },
    };
    const seen = () => [pid, ...sleeps.slice(0, Math.max(0, looks - 1))];
    await viewOf(seen, busy).killTree(leader);
    expect(looks).toBeGreaterThan(sleeps.length);
    await eventually(() => sleeps.every((one) => readProcess(one) === undefined));
  });

  test("a tree that starts processes faster than they can be stopped is given up after a second", async (context) => {
    const { pid, sleeps, leader } = await startTree(context, 400);
    let rounds = 0;
    const unfrozen: Freezer = {
      paused: false,
      thaw() {},
      async frozen(act) {
        rounds++;
        return act("running");
      },
    };
    // Each look finds one more, as if it had just been started.
    let looks = 0;
    const look = async () => {
      looks++;
      await sleep(10);
    };
    const seen = () => [pid, ...sleeps.slice(0, looks)];
    try {
      await expect(viewOf(seen, unfrozen, 0, look).killTree(leader)).rejects.toThrow("did not end");
      expect(rounds).toBeLessThan(8);
    } finally {
      process.kill(-pid, "SIGKILL");
    }
  });

  test("a sandbox counts as ending as soon as its main process has been killed, before its init notices", async (context) => {
    const args = ["--user", "--map-root-user", "--pid", "--fork", "sh", "-c", "sleep 600; exit 1"];
    const outer = start(context, "unshare", args, {});
    const [init = 0] = await eventually(() => atLeastOne(childrenOf(outer.pid ?? 0)));
    const [main = 0] = await eventually(() => atLeastOne(childrenOf(init)));
    const freezer: Freezer = { paused: false, thaw() {}, frozen: (act) => act("running") };
    const view = viewOf([init, main], freezer, 1);
    try {
      expect(await view.isEnding()).toBe(false);
      process.kill(init, "SIGSTOP");
      process.kill(main, "SIGKILL");
      expect(await view.isEnding()).toBe(true);
    } finally {
      // If the first assertion fails, the init process still runs.
      process.kill(init, "SIGKILL");
    }
  });
});

/** Every process of these tests can read it. */
const STDIN = 0;
/** Changes nothing for a program that does not expect it. */
const SIGWINCH = 28;
/** Some more than can be read in a turn. */
const DESCRIPTORS = 8_000;

test("a process with thousands of descriptors is searched for the pipes of a tree with turns of the event loop in between", async (context) => {
  const directory = mkdtempSync(path.join(tmpdir(), "berth-test-"));
  context.onTestFinished(() => rmSync(directory, { recursive: true }));
  const pipe = path.join(directory, "pipe");
  execFileSync("mkfifo", [pipe]);
  const held = openSync(pipe, constants.O_RDWR);
  // The kernel takes long to name a file in a deep directory.
  const deep = path.join(directory, "d/".repeat(1_900));
  mkdirSync(deep, { recursive: true });
  const many = Array<number>(DESCRIPTORS).fill(openSync(deep, "r"));
  const children = [
    start(context, "sleep", ["600"], { stdio: ["ignore", "ignore", "ignore", held] }),
    start(context, "sleep", ["600"], { stdio: many }),
    start(context, "sleep", ["600"], { stdio: [...many, held] }),
  ];
  await Promise.all(children.map((child) => once(child, "spawn")));
  for (const fd of [held, ...many.slice(0, 1)]) closeSync(fd);
  const freezer: Freezer = { paused: false, thaw() {}, frozen: (act) => act("running") };
  const [pid = 0, other = 0, holder = 0] = children.map((child) => child.pid);
  const turns = followTurns();
  const tree = await viewOf([pid, other, holder], freezer).tree({ pid, startTime: "" });
  const taken = turns();
  expect(tree.map((one) => one.pid)).toEqual([pid, holder]);
  const sum = taken.reduce((all, one) => all + one, 0);
  expect(Math.max(...taken)).toBeLessThan(sum / 4);
});

test("the other processes of a sandbox are searched for the pipes of a tree once for each kill", async (context) => {
  const directory = mkdtempSync(path.join(tmpdir(), "berth-test-"));
  context.onTestFinished(() => rmSync(directory, { recursive: true }));
  const pipe = path.join(directory, "pipe");
  execFileSync("mkfifo", [pipe]);
  const [held, nothing] = [openSync(pipe, constants.O_RDWR), openSync("/dev/null", "r")];
  const children = [
    start(context, "sleep", ["600"], { stdio: ["ignore", "ignore", "ignore", held], detached: true }),
    start(context, "sleep", ["600"], { stdio: Array<number>(DESCRIPTORS).fill(nothing) }),
  ];
  await Promise.all(children.map((child) => once(child, "spawn")));
  for (const fd of [held, nothing]) closeSync(fd);
  const [pid = 0, other = 0] = children.map((child) => child.pid);
  const freezer: Freezer = { paused: false, thaw() {}, frozen: (act) => act("running") };
  const looks = vi.spyOn(scanTurns, "enter");
  context.onTestFinished(() => looks.mockRestore());
  const leader = { pid, startTime: readProcess(pid)?.startTime ?? "" };
  await (await viewOf([pid, other], freezer).terminateTree(leader)).kill();
  expect(readProcess(pid)).toBeUndefined();
  expect(looks.mock.calls.length).toBeGreaterThan(DESCRIPTORS);
  expect(looks.mock.calls.length).toBeLessThan(1.5 * DESCRIPTORS);
});

test("a process group of thousands gets a signal with turns of the event loop in between", async (context) => {
  const { pid, sleeps, leader } = await startTree(context, 2_000);
  const freezer: Freezer = { paused: false, thaw() {}, frozen: (act) => act("running") };
  try {
    const turns = followTurns();
    expect(await viewOf([pid, ...sleeps], freezer).signalGroup(leader, SIGWINCH)).toBe(true);
    const taken = turns();
    const sum = taken.reduce((all, one) => all + one, 0);
    expect(Math.max(...taken)).toBeLessThan(sum / 4);
  } finally {
    process.kill(-pid, "SIGKILL");
  }
});

test("of a process's many children, only a few are searched for an open file", async (context) => {
  const { pid, sleeps, leader } = await startTree(context, 200);
  const freezer: Freezer = { paused: false, thaw() {}, frozen: (act) => act("running") };
  const searched = new Set<number>();
  const holds = (one: number): boolean => {
    searched.add(one);
    return false;
  };
  try {
    const view = viewOfScope({ pids: async () => [pid], holds }, freezer);
    expect(await view.openFile(leader, STDIN)).toBeUndefined();
    expect(searched).toContain(sleeps[0]);
    expect(searched.size).toBeLessThan(sleeps.length / 2);
  } finally {
    process.kill(-pid, "SIGKILL");
  }
});

function atLeastOne(pids: number[]): number[] | undefined {
  return pids.length > 0 ? pids : undefined;
}
