import { afterEach, expect, test } from "vitest";
import { parseUsage, USAGE_COMMAND } from "../../../../src/engine/kubernetes/scripts.ts";
import { removeContainers } from "../../../support/docker.ts";
import { BUSYBOX_IMAGE, TEST_IMAGE } from "../../../support/images.ts";
import { run, sh, spec, useEngine } from "../docker/support.ts";

// A container of Docker shows the same files as a pod.
const { engine, instance } = useEngine();
const MIB = 1 << 20;
const POLL = { timeout: 30_000 };

afterEach(() => removeContainers(instance));

test.each([
  ["dash", TEST_IMAGE, "dash"],
  ["bash", TEST_IMAGE, "bash"],
  ["busybox", BUSYBOX_IMAGE, "/bin/sh"],
])(
  "in %s, the script of pods reads what the control groups of the container say",
  async (_, image, shell) => {
    const { ref } = await engine.create(spec({ image }));
    const [, ...script] = USAGE_COMMAND;
    const read = async () => {
      const { stdout } = await run(engine, ref, [shell, ...script]);
      return parseUsage(stdout.toString());
    };
    // A file that the kernel keeps in memory as long as nobody else needs it, longer if it is read repeatedly.
    await sh(engine, ref, "head -c 67108864 /dev/zero >/file; for i in 1 2 3; do cat /file >/dev/null; done");
    await expect.poll(async () => (await read())?.memoryBytes, POLL).toBeLessThan(32 * MIB);
    const before = await engine.usage(ref);
    const inside = await read();
    const after = await engine.usage(ref);
    expect(inside?.cpuNanos).toBeGreaterThanOrEqual(before.cpuNanos);
    expect(inside?.cpuNanos).toBeLessThanOrEqual(after.cpuNanos);
    expect(Math.abs((inside?.memoryBytes ?? 0) - after.memoryBytes)).toBeLessThan(8 * MIB);
    expect(inside?.pids).toBeGreaterThan(0);
    expect(inside?.pids).toBeLessThan(20);
  },
);
