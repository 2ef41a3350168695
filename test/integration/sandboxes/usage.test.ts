import { describe, expect, test } from "vitest";
import { useApp } from "../../support/app.ts";
import { failureOf } from "../../support/client.ts";
import { ENGINES } from "../../support/engines.ts";
import { inSeconds } from "../../support/wire.ts";

const MIB = 2 ** 20;
const POLL = { interval: 50 };
const HUNGRY = "x = bytearray(100 << 20)\nwhile True: pass";

describe.each(ENGINES)("on $name", ({ name, settings }) => {
  const app = useApp(settings);

  async function usageOf(sandbox_id: string) {
    return (await app.client.call("SandboxService/GetSandboxUsage", { sandbox_id })).usage;
  }

  test("a sandbox that holds memory and burns CPU time shows it, running and paused", async () => {
    const resources = { memory_bytes: 300 * MIB, cpu_millis: 1000, pids_limit: 77 };
    const { sandbox_id } = await app.client.createSandbox({ resources });
    const idle = await usageOf(sandbox_id);
    expect(idle).toMatchObject({ memory_limit_bytes: 300 * MIB, cpu_limit_millis: 1000 });
    // Kubernetes limits the processes of a node's pods, not those of a sandbox.
    expect(idle.process_limit).toBe(name === "kubernetes" ? undefined : 77);
    expect(idle.memory_bytes).toBeLessThan(100 * MIB);
    expect(idle.processes).toBeGreaterThan(0);

    const running = app.client.call("ProcessService/RunCommand", {
      sandbox_id,
      argv: { args: ["python3", "-c", HUNGRY] },
    });
    await expect
      .poll(async () => (await usageOf(sandbox_id)).memory_bytes - idle.memory_bytes, POLL)
      .toBeGreaterThan(100 * MIB);
    await expect
      .poll(async () => inSeconds((await usageOf(sandbox_id)).cpu_time), POLL)
      .toBeGreaterThan(inSeconds(idle.cpu_time) + 0.5);
    const busy = await usageOf(sandbox_id);
    expect(busy.processes).toBeGreaterThan(idle.processes);
    expect(busy.memory_bytes).toBeLessThan(200 * MIB);
    // With one core the sandbox cannot have used more CPU time than has passed, but for a period of the kernel's.
    const passed = inSeconds(busy.measure_time) - inSeconds(idle.measure_time);
    expect(inSeconds(busy.cpu_time) - inSeconds(idle.cpu_time)).toBeLessThan(passed * 1.2 + 0.2);

    if (name !== "kubernetes") {
      await app.client.call("SandboxService/PauseSandbox", { sandbox_id });
      const paused = await usageOf(sandbox_id);
      expect(paused.memory_bytes).toBeGreaterThan(100 * MIB);
      await expect
        .poll(async () => inSeconds((await usageOf(sandbox_id)).measure_time), POLL)
        .toBeGreaterThan(inSeconds(paused.measure_time) + 0.5);
      expect((await usageOf(sandbox_id)).cpu_time).toEqual(paused.cpu_time);
      await app.client.call("SandboxService/ResumeSandbox", { sandbox_id });
    }
    await app.client.call("SandboxService/DeleteSandbox", { sandbox_id, grace: { seconds: 0, nanos: 0 } });
    expect((await running).exit_status.cause).toBe("EXIT_CAUSE_SANDBOX_TERMINATED");
  });

  test("it is not a use of the sandbox, and a sandbox that is gone is refused", async () => {
    const { sandbox_id } = await app.client.createSandbox();
    const before = await app.client.getSandbox(sandbox_id);
    const calls = Array.from({ length: 50 }, () => usageOf(sandbox_id));
    for (const usage of await Promise.all(calls)) expect(usage.processes).toBeGreaterThan(0);
    const after = await app.client.getSandbox(sandbox_id);
    expect(after.last_used_time).toEqual(before.last_used_time);
    expect(after.active_operations).toBe(0);
    await app.client.call("SandboxService/DeleteSandbox", { sandbox_id });
    expect(await failureOf(usageOf(sandbox_id))).toMatchObject({
      code: "FAILED_PRECONDITION",
      reason: "SANDBOX_NOT_RUNNING",
    });
    expect(await failureOf(usageOf("nosuch"))).toMatchObject({
      code: "NOT_FOUND",
      reason: "SANDBOX_NOT_FOUND",
    });
  });
});
