import { expect, test } from "vitest";
import { BerthError } from "../../../src/base/errors.ts";
import { settled } from "../../support/manual-clock.ts";
import { newManager, OWNER } from "./support.ts";

const never = new AbortController().signal;
const name = { owner: OWNER, sandboxId: "x" };

async function withSandbox() {
  const parts = await newManager();
  await parts.manager.create(OWNER, { memoryBytes: 2 ** 26 }, { sandboxId: "x", signal: never });
  /** How often the engine measured, and a gate that holds it. */
  const measurements = { count: 0, gate: undefined as Promise<void> | undefined };
  parts.engine.before = async (step) => {
    if (step !== "usage") return;
    measurements.count++;
    await measurements.gate;
  };
  return { ...parts, measurements };
}

test("a sandbox's usage comes with its limits and the time", async () => {
  const { manager, clock } = await withSandbox();
  expect(await manager.usage(name, never)).toEqual({
    memoryBytes: 1024,
    memoryLimitBytes: 2 ** 26,
    cpuNanos: 1_500_000_000,
    cpuLimitMillis: 1000,
    processes: 3,
    processLimit: 512,
    measureTimeMs: clock.wallMs(),
  });
});

test("a limit that the engine does not enforce is unset", async () => {
  const { manager, monitor } = await withSandbox();
  const { capabilities } = monitor.info;
  Object.assign(capabilities, { memoryLimit: false, cpuLimit: false, pidsLimit: false });
  expect(await manager.usage(name, never)).toMatchObject({
    memoryLimitBytes: undefined,
    cpuLimitMillis: undefined,
    processLimit: undefined,
  });
});

test("a measurement does not count as use, of a paused sandbox either", async () => {
  const { manager, clock } = await withSandbox();
  const { lastUsedTimeMs, expireTimeMs } = manager.get(name);
  await clock.advance(60_000);
  await manager.usage(name, never);
  expect(manager.get(name)).toMatchObject({ lastUsedTimeMs, expireTimeMs, activeOperations: 0 });
  const paused = await manager.pause(name, never);
  await clock.advance(60_000);
  await manager.usage(name, never);
  expect(manager.get(name)).toEqual(paused);
});

test("a sandbox expires while it is measured", async () => {
  const { manager, clock, measurements } = await withSandbox();
  const gate = Promise.withResolvers<void>();
  manager.start();
  measurements.gate = gate.promise;
  await clock.advance(3_595_000);
  const measuring = manager.usage(name, never);
  measuring.catch(() => {});
  await clock.advance(6_000);
  await expect.poll(() => manager.get(name)).toMatchObject({ termination: { cause: "IDLE_TIMEOUT" } });
  gate.resolve();
  await expect(measuring).rejects.toMatchObject({
    reason: "SANDBOX_NOT_RUNNING",
    message: expect.stringContaining("idle"),
  });
});

test("unknown, foreign, replaced, unfinished and ended sandboxes are refused as elsewhere", async () => {
  const { manager, engine } = await withSandbox();
  const refused = (other: Partial<typeof name> & { generation?: number }) =>
    expect(manager.usage({ ...name, ...other }, never)).rejects;
  await refused({ sandboxId: "y" }).toMatchObject({ reason: "SANDBOX_NOT_FOUND" });
  await refused({ owner: "mallory" }).toMatchObject({ reason: "SANDBOX_NOT_FOUND" });
  await refused({ generation: 2 }).toMatchObject({ reason: "SANDBOX_REPLACED" });
  const gate = Promise.withResolvers<void>();
  engine.before = async (step) => (step === "create" ? gate.promise : undefined);
  const creating = manager.create(OWNER, {}, { sandboxId: "z", signal: never });
  await settled();
  await refused({ sandboxId: "z" }).toMatchObject({
    reason: "SANDBOX_NOT_RUNNING",
    metadata: { state: "CREATING" },
  });
  gate.resolve();
  await creating;
  await manager.delete(name);
  await refused({}).toMatchObject({ reason: "SANDBOX_NOT_RUNNING", metadata: { state: "TERMINATED" } });
});

test("many callers share one measurement of a sandbox, which one of them cannot cancel", async () => {
  const { manager, measurements } = await withSandbox();
  const gate = Promise.withResolvers<void>();
  measurements.gate = gate.promise;
  const abort = new AbortController();
  const canceled = manager.usage(name, abort.signal);
  const others = Array.from({ length: 1000 }, () => manager.usage(name, never));
  abort.abort();
  await expect(canceled).rejects.toMatchObject({ reason: "CANCELED" });
  gate.resolve();
  for (const usage of await Promise.all(others)) expect(usage.processes).toBe(3);
  expect(measurements.count).toBe(1);
  await manager.usage(name, never);
  expect(measurements.count).toBe(2);
});

test("a measurement that takes too long, or that the engine refuses, fails with ENGINE_UNAVAILABLE", async () => {
  const { manager, clock, measurements, engine } = await withSandbox();
  measurements.gate = new Promise<void>(() => {});
  const slow = manager.usage(name, never);
  slow.catch(() => {});
  await clock.advance(10_000);
  await expect(slow).rejects.toMatchObject({
    reason: "ENGINE_UNAVAILABLE",
    message: "The engine did not measure the sandbox within 10s.",
  });
  measurements.gate = undefined;
  expect(await manager.usage(name, never)).toMatchObject({ processes: 3 });
  engine.usage = async () => {
    throw new BerthError("ENGINE_UNAVAILABLE", "It is down.");
  };
  await expect(manager.usage(name, never)).rejects.toMatchObject({ message: "It is down." });
});
