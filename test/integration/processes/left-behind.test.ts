import { readFileSync } from "node:fs";
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { Client } from "../../support/client.ts";
import { ENGINES } from "../../support/engines.ts";
import { ServeProcess } from "../../support/program.ts";
import { Worker } from "../../support/worker.ts";

const MEASURED_MS = 3_000;
/** Of a CPU. It uses about 1; without limits each `yes` used 29. */
const MAX_PERCENT = 10;
/**
 * Bytes per second that the service reads: some hundred KiB per writer. Unlike CPU time, this distinguishes a flood
 * from a trickle on a busy machine too.
 */
const MAX_RATE = 10 << 20;
/** How long something of a job may be left before its end is reported. */
const SETTLED_MS = 1_500;
const SOON = { timeout: 60_000 };
/** A clock tick of /proc. */
const TICK_MS = 10;
/** Per sandbox. */
const KEPT = 16;

/** CPU time that a process has used, in milliseconds. */
function cpuMs(pid: number): number {
  const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
  const [utime, stime] = stat
    .slice(stat.lastIndexOf(")") + 2)
    .split(" ")
    .slice(11, 13);
  return (Number(utime) + Number(stime)) * TICK_MS;
}

/** Bytes that a process has read, including from pipes and sockets. */
function bytesRead(pid: number): number {
  return Number(/^rchar: (\d+)$/m.exec(readFileSync(`/proc/${pid}/io`, "utf8"))?.[1]);
}

/** How much CPU the service uses, in percent, and how much it reads. */
async function costOf({ pid }: ServeProcess): Promise<{ percent: number; bytesPerSecond: number }> {
  const before = { cpu: cpuMs(pid), bytes: bytesRead(pid) };
  const began = performance.now();
  await sleep(MEASURED_MS);
  const ms = performance.now() - began;
  return {
    percent: ((cpuMs(pid) - before.cpu) / ms) * 100,
    bytesPerSecond: ((bytesRead(pid) - before.bytes) / ms) * 1000,
  };
}

/** Fails unless the service is soon nearly idle. How long it reads before depends on the machine. */
async function expectIdle(service: ServeProcess, maxPercent = MAX_PERCENT): Promise<void> {
  const isIdle = async () => {
    const { percent, bytesPerSecond } = await costOf(service);
    const isCheap = bytesPerSecond < MAX_RATE && percent < maxPercent;
    return isCheap ? "idle" : `${Math.round(percent)} %, ${Math.round(bytesPerSecond)} bytes a second`;
  };
  await expect.poll(isIdle, SOON).toBe("idle");
}

// Each engine has its own service, and a test mostly waits.
describe.concurrent.each(ENGINES)("on $name", ({ name }) => {
  const inTurn = { concurrent: false };
  let service: ServeProcess;
  let client: Client;
  let id = "";
  beforeAll(async () => {
    service = await ServeProcess.start(["--engine", name]);
    client = new Client(service.address);
    ({ sandbox_id: id } = await client.createSandbox());
  });
  afterAll(async () => {
    client.close();
    await service.stop();
  });

  test.each([
    ["a command", "yes & exit 0", {}],
    ["a command, on stderr", "yes >&2 & exit 0", {}],
    ["a command with stdin", "yes & exit 0", { keep_stdin_open: true }],
    ["a command whose shell was killed", "yes & kill -9 $PPID", {}],
  ])("what %s leaves behind can write without limit at next to no cost", inTurn, async (_, command, more) => {
    await client.exec(id, command, more).result;
    await sleep(SETTLED_MS);
    await expectIdle(service);
  });

  // Its shell is asked repeatedly whether anything is left.
  test("what is left behind can write without limit while its shell does not answer", inTurn, async () => {
    const { sandbox_id: stopped } = await client.createSandbox();
    await client.exec(stopped, "yes & (sleep 0.3; kill -STOP $PPID) & exit 0").result;
    await sleep(SETTLED_MS);
    await expectIdle(service);
    await client.deleteSandbox(stopped);
  });

  test(
    "what a call of a session leaves behind can write without limit at next to no cost",
    inTurn,
    async () => {
      const worker = new Worker(client, "leaver");
      await worker.create("bash");
      await worker.bash("yes &");
      await sleep(SETTLED_MS);
      await expectIdle(service);
      expect(await worker.bash("echo usable")).toMatchObject({ stdout: "usable\n" });
      await sleep(SETTLED_MS);
      await expectIdle(service);
      await worker.destroy();
    },
  );

  test(
    "of what many commands leave behind the pipes of 16 are kept, and none is ended",
    inTurn,
    async ({ expect }) => {
      const kept = async (): Promise<number> => {
        const response = await fetch(`http://${service.address}/metrics`);
        return Number(/^berth_orphaned_pipes (\d+)$/m.exec(await response.text())?.[1]);
      };
      const before = await kept();
      const { sandbox_id: many } = await client.createSandbox();
      for (let i = 0; i < KEPT + 4; i++)
        await client.exec(many, "yes & exit 0", { keep_stdin_open: true }).result;
      await expect.poll(kept, SOON).toBe(before + KEPT);
      const count = "grep -cx yes /proc/[0-9]*/comm -h | grep -c 1";
      expect(await client.output(many, count)).toBe(`${KEPT + 4}\n`);
      await client.deleteSandbox(many);
      await expect.poll(kept, SOON).toBe(before);
    },
  );

  test("what a command leaves behind still writes some hundred KiB a second", inTurn, async ({ expect }) => {
    const { workspace: made } = await client.call("WorkspaceService/CreateWorkspace", {
      workspace_id: "turns",
    });
    const { sandbox_id: other } = await client.createSandbox({
      mounts: [{ workspace_id: made.workspace_id, target: "/turns" }],
    });
    const turns = (): number => readFileSync(path.join(made.path, "turns")).length;
    const writer = "(while :; do head -c 65536 /dev/zero; echo >>/turns/turns; done) & exit 0";
    await client.exec(other, `: >/turns/turns; ${writer}`).result;
    // More than all buffers between the two hold. It fills them as fast as it can.
    await expect.poll(turns, SOON).toBeGreaterThan(32);
    const before = turns();
    const began = performance.now();
    await expect.poll(turns, SOON).toBeGreaterThan(before + 16);
    const seconds = (performance.now() - began) / 1000;
    expect((turns() - before) / seconds).toBeLessThan(20);
    await client.deleteSandbox(other);
  });
});

// Sandboxes of bubblewrap end with the service.
test("what the commands of a killed service write costs the next one little", async () => {
  const first = await ServeProcess.start(["--engine", "docker", "--leave-sandboxes"]);
  const client = new Client(first.address);
  const { sandbox_id: id } = await client.createSandbox();
  await client.exec(id, "yes & yes >&2 & exit 0").result;
  await first.stop("SIGKILL");
  client.close();
  const second = await first.again(["--engine", "docker"]);
  try {
    await sleep(SETTLED_MS);
    await expectIdle(second, 2 * MAX_PERCENT);
  } finally {
    await second.stop();
  }
});
