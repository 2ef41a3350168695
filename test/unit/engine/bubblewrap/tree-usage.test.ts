import { spawn } from "node:child_process";
import { once } from "node:events";
import { expect, onTestFinished, test } from "vitest";
import { usageOfTree } from "../../../../src/engine/bubblewrap/tree-usage.ts";

const PROCESSES = 300;

test("the usage of many processes is added up with turns of the event loop between them", async () => {
  const script = `for i in $(seq ${PROCESSES}); do sleep 60 & done; echo started; wait`;
  const child = spawn("/bin/sh", ["-c", script], { detached: true, stdio: ["ignore", "pipe", "ignore"] });
  const pid = child.pid as number;
  onTestFinished(() => void process.kill(-pid, "SIGKILL"));
  await once(child.stdout, "data");
  let turns = 0;
  let isDone = false;
  const count = (): void => {
    turns++;
    if (!isDone) setImmediate(count);
  };
  setImmediate(count);
  const usage = await usageOfTree([pid]);
  isDone = true;
  expect(usage.pids).toBe(PROCESSES + 1);
  expect(usage.memoryBytes).toBeGreaterThan(PROCESSES * 4096);
  expect(turns).toBeGreaterThan(0);
});
