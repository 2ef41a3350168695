import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { expect, onTestFinished, test } from "vitest";
import { pageBytesIn, usageOfTree } from "../../../../src/engine/bubblewrap/tree-usage.ts";

const PROCESSES = 600;

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

test("threads count, and so do the children of every thread", async () => {
  const script = [
    "import subprocess, threading, time",
    "def work():",
    "    subprocess.Popen(['sleep', '60'])",
    "    print('started', flush=True)",
    "    time.sleep(60)",
    "threading.Thread(target=work).start()",
  ].join("\n");
  const child = spawn("python3", ["-c", script], { detached: true, stdio: ["ignore", "pipe", "ignore"] });
  const pid = child.pid as number;
  onTestFinished(() => void process.kill(-pid, "SIGKILL"));
  await once(child.stdout, "data");
  // Two threads of Python, and one process.
  expect((await usageOfTree([pid])).pids).toBe(3);
});

test("the size of a page is the kernel's", () => {
  const own = readFileSync("/proc/self/auxv");
  expect(pageBytesIn(own)).toBe(Number(execFileSync("getconf", ["PAGESIZE"])));
  const other = Buffer.from(own);
  for (let at = 0; at < other.length; at += 16)
    if (other.readBigUInt64LE(at) === 6n) other.writeBigUInt64LE(65_536n, at + 8);
  expect(pageBytesIn(other)).toBe(65_536);
});
