import { spawn } from "node:child_process";
import { once } from "node:events";
import { expect, onTestFinished, test } from "vitest";
import {
  childrenOf,
  descriptorsOf,
  holdsAny,
  idsOf,
  isExiting,
  readProcess,
  startTimeOf,
  threadsOf,
} from "../../../../src/engine/outside/host-process.ts";
import { takeDescriptors } from "../../../support/no-descriptors.ts";

test("a process is there although no more files can be opened", async () => {
  const child = spawn("sleep", ["600"]);
  onTestFinished(() => void child.kill("SIGKILL"));
  await once(child, "spawn");
  const { pid = 0 } = child;
  const stdin = descriptorsOf(pid, ["0"]);
  const look = async () => ({
    process: readProcess(pid)?.pid,
    startTime: startTimeOf(pid),
    threads: threadsOf(pid),
    ids: idsOf(pid, "NSpid"),
    holdsStdin: await holdsAny(pid, stdin),
    isExiting: isExiting(pid),
    isChild: childrenOf(process.pid).includes(pid),
  });
  const before = await look();
  expect(before).toMatchObject({ process: pid, threads: [pid], holdsStdin: true, isExiting: false });
  const end = takeDescriptors(0);
  const looks = [await look(), await look(), await look()];
  end();
  expect(looks).toEqual([before, before, before]);
});

test("a killed process is exiting from then on, also while it takes the signal", async () => {
  // It takes the signal at any of these looks.
  for (let count = 0; count < 150; count++) {
    const child = spawn("sleep", ["600"]);
    await once(child, "spawn");
    const { pid = 0 } = child;
    expect(isExiting(pid)).toBe(false);
    child.kill("SIGKILL");
    const looks = Array.from({ length: 12 }, () => isExiting(pid));
    expect(looks).not.toContain(false);
    await once(child, "exit");
  }
});
