import { describe, expect, test } from "vitest";
import type { Resources } from "../../../src/engine/port.ts";
import { useApp } from "../../support/app.ts";
import { eventually } from "../../support/eventually.ts";
import { TEST_IMAGE } from "../../support/images.ts";
import { failure, sh, spec } from "../engine/docker/support.ts";
import { openEngine } from "../engine/kubernetes/support.ts";

const { engine } = await openEngine();

/** Prints the memory limit in bytes, then the CPU quota in microseconds for each 100 ms, with either control groups. */
const LIMITS = `cd /sys/fs/cgroup
if [ -e memory/memory.limit_in_bytes ]; then cat memory/memory.limit_in_bytes cpu/cpu.cfs_quota_us
else cat memory.max; cut -d' ' -f1 cpu.max; fi`;

const resources = (changes: Partial<Resources>): Resources => ({ ...spec().resources, ...changes });

describe("new limits of a sandbox that runs", () => {
  test.each([
    { memoryBytes: 64 << 20, cpuMillis: 1000 },
    { memoryBytes: 100 << 20, cpuMillis: 333 },
    // Only the limit of processes differs, which Kubernetes does not have.
    { memoryBytes: 256 << 20, cpuMillis: 1000, pidsLimit: 32 },
  ])("are in force once they are set: %o", async (changes) => {
    const { ref } = await engine.create(spec());
    await engine.setResources(ref, resources(changes));
    const quota = changes.cpuMillis * 100;
    expect(await sh(engine, ref, LIMITS)).toBe(`${changes.memoryBytes}\n${quota}\n`);
    await engine.remove(ref);
  });

  test.each<[string, Partial<Resources>]>([
    ["memory", { memoryBytes: 2 ** 42 }],
    ["CPU", { cpuMillis: 640_000 }],
  ])("for whose %s the node has no room are refused", async (_, changes) => {
    const { ref } = await engine.create(spec());
    const refused = await failure(engine.setResources(ref, resources(changes)), "UNSUPPORTED");
    expect(refused.message).toMatch(/^The sandbox's limits cannot be changed: .*enough capacity/);
    await engine.remove(ref);
  });

  test("of a sandbox that is gone are refused", async () => {
    const { ref } = await engine.create(spec());
    await engine.remove(ref);
    await failure(engine.setResources(ref, resources({ cpuMillis: 500 })), "SANDBOX_TERMINATED");
  });
});

describe("a warm sandbox", () => {
  const app = useApp({ engine: "kubernetes", warmPools: [{ image: TEST_IMAGE, count: 1 }] });

  test("has the limits of its claim from its first command on", async () => {
    const { client } = app;
    await eventually(
      async () => (await client.call("SandboxService/GetStats", {})).warm_pools?.[0]?.ready === 1,
      { timeoutMs: 60_000 },
    );
    const limits = { memory_bytes: String(64 << 20), cpu_millis: 500 };
    const { sandbox_id: id } = await client.createSandbox({ resources: limits });
    expect(await client.output(id, LIMITS)).toBe(`${64 << 20}\n50000\n`);
    await client.deleteSandbox(id);
  });
});
