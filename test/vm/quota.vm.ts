import { mkdtempSync } from "node:fs";
import { describe, expect, onTestFinished, test } from "vitest";
import { startTestApp, useApp } from "../support/app.ts";
import { failureOf } from "../support/client.ts";
import { newDataDir, newInstance } from "../support/settings.ts";
import { makeTar } from "../support/tar-builder.ts";
import { WorkspaceClient } from "../support/workspaces.ts";

const MIB = 1024 * 1024;
const QUOTA = 4 * MIB;
/** Bytes that a file system may count in addition to a file's own. */
const MARGIN = 256 * 1024;

describe.each(["ext4", "xfs"])("on %s with project quotas", (type) => {
  const service = useApp({
    engine: "bubblewrap",
    workspacesRoot: mkdtempSync(`/run/disks/${type}/all workspaces-`),
    workspaceQuotaBytes: QUOTA,
  });
  const workspaces = new WorkspaceClient(() => service.client);
  /** How a command ends that writes a file. */
  const write = async (sandbox: string, file: string, size: string) => {
    const { exit_status: exit, stderr } = await service.client.run(
      sandbox,
      `head -c ${size} /dev/urandom > ${file}`,
    );
    return { exitCode: exit.exit_code, stderr: stderr.toString() };
  };

  test("a sandbox that writes past the quota is refused by the file system, others go on", async () => {
    const { workspace } = await workspaces.ensure("full");
    expect(workspace).toMatchObject({ quota_bytes: QUOTA, quota_enforcement: "QUOTA_ENFORCEMENT_ENFORCED" });
    const [full, other] = [workspace.sandbox_id, await workspaces.sandbox("other")];

    await service.client.output(full, "mkdir below");
    expect(await write(full, "file", "6M")).toMatchObject({
      exitCode: 1,
      stderr: expect.stringMatching(/quota exceeded|No space left/),
    });
    const size = (await workspaces.get("full", { measure_size: true })).size_bytes;
    expect(size).toBeGreaterThan(QUOTA - MARGIN);
    expect(size).toBeLessThanOrEqual(QUOTA);
    // Whatever is made below is held as well, and so is what a second sandbox makes.
    expect((await write(full, "more", "1M")).exitCode).not.toBe(0);
    const { sandbox_id: second } = await service.client.createSandbox({
      mounts: [{ workspace_id: "full", target: "/full" }],
    });
    expect((await write(second, "/full/below/file", "1M")).exitCode).not.toBe(0);

    expect((await write(other, "file", "3M")).exitCode).toBe(0);
    await service.client.output(full, "rm -rf file more below");
    expect((await write(full, "file", "3M")).exitCode).toBe(0);
  });

  test("what is imported is held as well, moved in or put in place", async () => {
    const tar = (name: string, mib: number) => makeTar([{ name, content: Buffer.alloc(mib * MIB, 1) }]);
    const sandbox = await workspaces.sandbox("imported");
    await workspaces.import("imported", tar("a", 2));
    expect((await write(sandbox, "b", "3M")).exitCode).not.toBe(0);
    expect((await failureOf(workspaces.import("imported", tar("c", 3)))).reason).toBe("NO_SPACE");
    await workspaces.stop("imported");
    await workspaces.import("imported", tar("c", 3), { replace: true });
    const next = await workspaces.sandbox("imported");
    expect(await service.client.output(next, "ls")).toBe("c\n");
    expect((await write(next, "d", "2M")).exitCode).not.toBe(0);
  });

  test("a cleaned up workspace leaves nothing to a new one of its name", async () => {
    expect((await write(await workspaces.sandbox("again"), "file", "3M")).exitCode).toBe(0);
    await workspaces.cleanup("again", { force: true });
    expect((await write(await workspaces.sandbox("again"), "file", "3M")).exitCode).toBe(0);
  });

  test.each([
    ["outside the workspaces", { workspacesRoot: mkdtempSync(`/run/disks/${type}/workspaces-`) }],
    ["on a disk of its own", {}],
  ])("a shared directory %s is held as well, also after a restart", async (_, settings) => {
    const sharedRoot = mkdtempSync(`/run/disks/${type}/shared-`);
    const same = { ...settings, dataDir: newDataDir(), instance: newInstance(), sharedRoot };
    for (const sharedQuotaBytes of [QUOTA, 2 * QUOTA]) {
      const app = await startTestApp({ engine: "bubblewrap", ...same, sharedQuotaBytes });
      onTestFinished(() => app.app.stop().then(() => {}));
      const sandbox = await new WorkspaceClient(() => app.client).sandbox("any");
      const run = (line: string) => app.client.run(sandbox, line);
      const { exit_status: exit, stderr } = await run(
        "mkdir -p /shared/x; head -c 16M /dev/zero > /shared/x/y",
      );
      expect(exit.exit_code).toBe(1);
      expect(stderr.toString()).toMatch(/quota exceeded|No space left/);
      const { shared_directory: usage } = await app.client.call("SandboxService/GetStats", {
        measure_shared_directory: true,
      });
      expect(usage).toMatchObject({ quota_bytes: sharedQuotaBytes, enforced: true, over_quota: false });
      expect(usage?.size_bytes).toBeGreaterThan(sharedQuotaBytes - MARGIN);
      expect((await run("head -c 16M /dev/zero > file")).exit_status.exit_code).toBe(0);
      await run("rm file");
      await app.stop();
    }
  });
});
