import { expect, test } from "vitest";
import { KeyedLock } from "../../../src/base/keyed-lock.ts";
import type { EngineSandbox } from "../../../src/engine/port.ts";
import { SandboxRecord } from "../../../src/sandboxes/record.ts";
import { Reconciler } from "../../../src/sandboxes/recover.ts";
import { SandboxRegistry } from "../../../src/sandboxes/registry.ts";
import { SANDBOX_DEFAULTS } from "../../../src/sandboxes/spec.ts";
import { ManualClock } from "../../support/manual-clock.ts";

const COUNT = 4_000;

/** The CPU time of some work, in milliseconds: on a busy machine it may lose its CPU for longer. */
function cpuTime(work: () => void): number {
  const before = process.threadCpuUsage();
  work();
  const { user, system } = process.threadCpuUsage(before);
  return (user + system) / 1000;
}

test("thousands of sandboxes are compared with the engine's in much less time than looking up each takes", () => {
  const clock = new ManualClock();
  const registry = new SandboxRegistry(clock, () => {});
  const present = Array.from({ length: COUNT }, (_, place): EngineSandbox => {
    const identity = { sandboxId: `sbx-${place}`, owner: "me", generation: 1 };
    const found = { ...identity, ref: crypto.randomUUID(), isolation: "CONTAINER", user: "" } as const;
    const engine = { ...found, state: "running" } as const;
    const record = new SandboxRecord(
      {
        ...{ ...identity, place, spec: { ...SANDBOX_DEFAULTS, env: {}, labels: {} } as never },
        phase: { state: "RUNNING", engine },
        reservation: { leave() {}, stay() {}, release() {} },
      },
      { clock, onUse() {}, onIdle() {} },
    );
    registry.add(record);
    // As if the engine's answer had been parsed.
    return JSON.parse(JSON.stringify(engine)) as EngineSandbox;
  });
  const warmPool = { refs: () => [], owns: () => false, lost() {} };
  const parts = { registry, warmPool, locks: new KeyedLock(), logger: {}, engine: {} };
  const compare = new Reconciler(parts as never).beginSync(false);
  const compared = cpuTime(() => compare(present));
  const lookedUp = cpuTime(() => present.forEach(({ ref }) => void registry.byRef(ref)));
  expect(compared).toBeLessThan(lookedUp / 2);
});
