import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import path from "node:path";
import { afterAll, describe, expect, test } from "vitest";
import { useApp } from "../../support/app.ts";
import { failureOf } from "../../support/client.ts";
import { ENGINES } from "../../support/engines.ts";
import { eventually } from "../../support/eventually.ts";
import { TEST_IMAGE } from "../../support/images.ts";

/** Accessible to bubblewrap's own user on the host as well. */
const base = mkdtempSync("/var/tmp/berth-mount-targets-");
const directory = path.join(base, "data");
mkdirSync(directory);
afterAll(() => rmSync(base, { recursive: true }));

/** Where a directory cannot be mounted, and why. */
const REFUSED: readonly [target: string, why: string][] = [
  ["/proc", "/proc is the kernel's own"],
  ["/proc/sys/kernel", "/proc is the kernel's own"],
  ["/proc/new", "/proc is the kernel's own"],
  ["/sys", "/sys is the kernel's own"],
  ["/dev", "/dev is the kernel's own"],
  ["/dev/null", "/dev/null is the kernel's own"],
  ["/etc/hosts", "not a directory"],
  ["/etc/passwd/below", "not a directory"],
];

describe.each(ENGINES)("on $name", ({ name, settings }) => {
  const dataDir = path.join(base, `${name} data`);
  const workspacesRoot = path.join(base, `${name} workspaces`);
  const service = useApp({ ...settings, allowHostPaths: [base], dataDir, workspacesRoot });

  test.each(REFUSED)("a mount at %s is refused with its field", async (target, why) => {
    const mounts = [
      { host_path: directory, target: "/mnt/fine" },
      { host_path: directory, target },
    ];
    const refusal = await failureOf(service.client.createSandbox({ mounts }));
    expect(refusal).toMatchObject({
      code: "INVALID_ARGUMENT",
      reason: "INVALID_ARGUMENT",
      message: `spec.mounts[1].target: nothing can be mounted at ${JSON.stringify(target)}: ${why}.`,
      metadata: { field: "spec.mounts[1].target" },
    });
  });

  test("a directory of the service, or one that holds or lies in one, is not mounted though it is allowed", async () => {
    for (const host_path of [base, dataDir, path.join(dataDir, "shared"), workspacesRoot]) {
      const mounts = [{ host_path, target: "/mnt/service" }];
      const refusal = await failureOf(service.client.createSandbox({ mounts }));
      expect(refusal).toMatchObject({ reason: "NOT_ALLOWED", metadata: { host_path } });
    }
  });

  test("a mount in shared memory works", async () => {
    const mounts = [{ host_path: directory, target: "/dev/shm/mounted" }];
    const { sandbox_id: id } = await service.client.createSandbox({ mounts });
    expect(await service.client.output(id, "ls -d /dev/shm/mounted")).toBe("/dev/shm/mounted\n");
    await service.client.deleteSandbox(id);
  });
});

describe("a sandbox of a warm pool", () => {
  const service = useApp({ warmPools: [{ image: TEST_IMAGE, count: 1 }], allowHostPaths: [base] });

  test.each(REFUSED)("a later mount is refused at %s with its field", async (target, why) => {
    await eventually(async () => {
      const { warm_pools: pools } = await service.client.call("SandboxService/GetStats", {});
      return pools[0]?.ready === 1;
    });
    const mounts = [{ host_path: directory, target }];
    const refusal = await failureOf(service.client.createSandbox({ mounts }));
    expect(refusal.reason).toBe("INVALID_ARGUMENT");
    expect(refusal.message).toContain(`spec.mounts[0].target: nothing can be mounted at`);
    expect(refusal.message).toContain(why);
  });
});
