import { mkdtempSync } from "node:fs";
import { expect, test } from "vitest";
import { useApp } from "../support/app.ts";
import { runHere } from "../support/program-here.ts";
import { inSeconds } from "../support/wire.ts";
import { WorkspaceClient } from "../support/workspaces.ts";

const MIB = 2 ** 20;
/** What an interpreter takes, and pages that the kernel has counted for a processor in advance. */
const MARGIN = 40 * MIB;
const RESOURCES = { memory_bytes: 400 * MIB, cpu_millis: 500, pids_limit: 90 };

const app = useApp({
  engine: "bubblewrap",
  workspacesRoot: mkdtempSync("/run/disks/ext4/usage-"),
});
const workspaces = new WorkspaceClient(() => app.client);

async function usageOf(sandbox_id: string) {
  return (await app.client.call("SandboxService/GetSandboxUsage", { sandbox_id })).usage;
}
const memoryOf = async (id: string): Promise<number> => (await usageOf(id)).memory_bytes;
/** What the kernel counts in the sandbox's group, as the sandbox sees it. */
async function kernelCount(id: string, key: string): Promise<number> {
  const text = await app.client.output(id, "cat /sys/fs/cgroup/memory.stat");
  return Number(new RegExp(`^${key} (\\d+)$`, "m").exec(text)?.[1]);
}

test("memory that a program holds counts until it ends, and a file on a tmpfs until it is removed", async () => {
  const { sandbox_id: id } = await app.client.createSandbox({ resources: RESOURCES });
  const idle = await usageOf(id);
  expect(idle).toMatchObject({
    memory_limit_bytes: 400 * MIB,
    cpu_limit_millis: 500,
    process_limit: 90,
  });
  expect(idle.memory_bytes).toBeGreaterThan(0);
  expect(idle.memory_bytes).toBeLessThan(MARGIN);

  const hold = 'import time\nx = b"x" * (100 << 20)\nprint("held", flush=True)\ntime.sleep(1000)';
  const holding = app.client.exec(id, ["python3", "-c", hold]);
  await holding.until("held");
  expect(await memoryOf(id)).toBeGreaterThan(100 * MIB);
  expect(await memoryOf(id)).toBeLessThan(idle.memory_bytes + 100 * MIB + MARGIN);
  holding.cancel();
  await expect.poll(() => memoryOf(id)).toBeLessThan(idle.memory_bytes + MARGIN);

  await app.client.output(id, "head -c 100M /dev/zero >/tmp/file");
  expect(await memoryOf(id)).toBeGreaterThan(100 * MIB);
  expect(await memoryOf(id)).toBeLessThan(idle.memory_bytes + 100 * MIB + MARGIN);
  await app.client.output(id, "rm /tmp/file");
  await expect.poll(() => memoryOf(id)).toBeLessThan(idle.memory_bytes + MARGIN);
});

test("files on a disk that a sandbox writes and reads do not count as memory", async () => {
  const id = await workspaces.sandbox("files", { resources: RESOURCES });
  const before = await memoryOf(id);
  await app.client.output(id, "head -c 100M /dev/zero >file && sync file && cat file >/dev/null");
  // They are in the page cache of the sandbox's group.
  expect(await kernelCount(id, "file")).toBeGreaterThan(100 * MIB);
  expect(await memoryOf(id)).toBeLessThan(before + MARGIN);
  // What is read repeatedly is kept for longer.
  await app.client.output(id, "for i in 1 2 3; do cat file >/dev/null; done");
  expect(await kernelCount(id, "active_file")).toBeGreaterThan(90 * MIB);
  expect(await memoryOf(id)).toBeLessThan(before + MARGIN);
});

test("CPU time is what programs took, also those that ended, and stands still in a pause", async () => {
  const { sandbox_id: id } = await app.client.createSandbox({ resources: RESOURCES });
  const before = await usageOf(id);
  const burn = "import time\nwhile time.process_time() < 2: pass\nprint(time.process_time())";
  const took = Number((await app.client.run(id, ["python3", "-c", burn])).stdout);
  const after = await usageOf(id);
  const used = inSeconds(after.cpu_time) - inSeconds(before.cpu_time);
  const passed = inSeconds(after.measure_time) - inSeconds(before.measure_time);
  expect(took).toBeGreaterThanOrEqual(2);
  expect(used).toBeGreaterThanOrEqual(took);
  // Half a core, except for a period of the kernel's.
  expect(used).toBeLessThan(passed * 0.5 * 1.2 + 0.2);

  const spinning = app.client.exec(id, "while :; do :; done");
  await spinning.processId;
  await expect
    .poll(async () => inSeconds((await usageOf(id)).cpu_time))
    .toBeGreaterThan(inSeconds(after.cpu_time) + 0.5);
  await app.client.call("SandboxService/PauseSandbox", { sandbox_id: id });
  const paused = await usageOf(id);
  await expect
    .poll(async () => inSeconds((await usageOf(id)).measure_time))
    .toBeGreaterThan(inSeconds(paused.measure_time) + 1);
  expect((await usageOf(id)).cpu_time).toEqual(paused.cpu_time);
  await app.client.call("SandboxService/ResumeSandbox", { sandbox_id: id });
  await expect
    .poll(async () => inSeconds((await usageOf(id)).cpu_time))
    .toBeGreaterThan(inSeconds(paused.cpu_time));
  spinning.cancel();
});

test("processes are those that the sandbox sees, and threads", async () => {
  const { sandbox_id: id } = await app.client.createSandbox({ resources: RESOURCES });
  const program = `
import glob, subprocess, threading, time
for _ in range(10): threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
for _ in range(5): subprocess.Popen(["sleep", "1000"])
while True:
    print(len(glob.glob("/proc/[0-9]*/task/*")), flush=True)
    time.sleep(0.2)`;
  const counting = app.client.exec(id, ["python3", "-c", program]);
  await counting.until("\n");
  const seen = () => Number(counting.output.stdout.toString().trimEnd().split("\n").at(-1));
  await expect.poll(async () => (await usageOf(id)).processes - seen()).toBe(0);
  expect(seen()).toBeGreaterThan(16);
  expect(seen()).toBeLessThan(30);
  counting.cancel();
});

test("berth top lists a sandbox that computes before one that holds memory", async () => {
  const resources = RESOURCES;
  const { sandbox_id: busy } = await app.client.createSandbox({ resources });
  const { sandbox_id: full } = await app.client.createSandbox({ resources });
  const spinning = app.client.exec(busy, "while :; do :; done");
  await spinning.processId;
  await app.client.output(full, "head -c 100M /dev/zero >/tmp/file");

  const args = ["top", "--json", full, busy];
  const { code, stdout, stderr } = await runHere(args, { env: { BERTH_ADDRESS: app.app.address } });
  expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
  const [first, second] = JSON.parse(stdout).sandboxes;
  expect([first.sandboxId, second.sandboxId]).toEqual([busy, full]);
  expect(first.cpuPercent).toBeGreaterThan(0);
  expect(first.cpuPercent).toBeLessThan(80);
  expect(second.cpuPercent).toBeLessThan(first.cpuPercent);
  expect(Number(first.memoryBytes)).toBeLessThan(MARGIN);
  expect(Number(second.memoryBytes)).toBeGreaterThan(100 * MIB);
  expect(Number(second.memoryBytes)).toBeLessThan(100 * MIB + MARGIN);
  spinning.cancel();
});
