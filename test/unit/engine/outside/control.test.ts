import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, expect, test } from "vitest";
import type { Freezer } from "../../../../src/engine/outside/cgroup.ts";
import { OutsideView } from "../../../../src/engine/outside/control.ts";
import { NO_SCOPE, readProcess } from "../../../../src/engine/outside/host-process.ts";

const children: ChildProcess[] = [];
afterEach(() => {
  for (const child of children.splice(0)) child.kill("SIGKILL");
});

/** Looks at one process of this machine as if it were all of a sandbox. */
function viewOf(pid: number, freezer: Freezer): OutsideView {
  return new OutsideView({
    ...{ entering: NO_SCOPE, level: 0, freezer, freezeLast: false },
    scope: { pids: async () => [pid], holds: (one) => one === pid },
    isHalfWayIn: () => false,
    oldestStartMs: () => 0,
    oomKills: () => undefined,
    isFull: async () => false,
  });
}

test("a tree that is killed on a machine which takes over a second for it has ended all the same", async () => {
  const child = spawn("sleep", ["600"], { detached: true, stdio: "ignore" });
  children.push(child);
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
  await viewOf(pid, busy).killTree(leader);
  expect(await ended).toEqual([null, "SIGKILL"]);
});
