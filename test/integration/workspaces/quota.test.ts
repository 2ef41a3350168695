import { describe, expect, onTestFinished, test } from "vitest";
import { useApp } from "../../support/app.ts";
import { failureOf } from "../../support/client.ts";
import { ENGINES } from "../../support/engines.ts";
import { eventually } from "../../support/eventually.ts";
import { makeTar } from "../../support/tar-builder.ts";
import type { SandboxEvent } from "../../support/wire.ts";
import { WorkspaceClient } from "../../support/workspaces.ts";

const MIB = 1024 * 1024;
describe.each(ENGINES)("on $name", ({ settings }) => {
  const service = useApp({ ...settings, workspaceQuotaBytes: MIB });
  const workspaces = new WorkspaceClient(() => service.client);

  test("a quota that the file system cannot enforce is watched: past it no new sandbox and no import", async () => {
    expect(service.log.lines).toContainEqual(
      expect.objectContaining({
        level: "warn",
        message: expect.stringContaining("is watched, not enforced"),
      }),
    );
    const { workspace } = await workspaces.ensure("full");
    expect(workspace).toMatchObject({ quota_bytes: MIB, quota_enforcement: "QUOTA_ENFORCEMENT_WATCHED" });
    expect(workspace.over_quota).toBe(false);
    const id = workspace.sandbox_id;
    const events: SandboxEvent[] = [];
    const watch = service.client.stream("SandboxService/WatchEvents");
    watch.on("data", ({ event }) => event && events.push(event));
    watch.on("error", () => {});
    onTestFinished(() => watch.cancel());
    const told = (type: string) =>
      events.filter((event) => event.type === `SANDBOX_EVENT_TYPE_WORKSPACE_${type}`);
    // In one step: the watch may measure at any time, and reports the size that it finds.
    await service.client.output(id, "fallocate -l 3M file");
    const measured = await workspaces.get("full", { measure_size: true });
    expect(measured.size_bytes).toBeGreaterThan(3 * MIB);
    expect(measured.over_quota).toBe(true);
    await workspaces.get("full", { measure_size: true });
    await eventually(() => told("OVER_QUOTA").length > 0);
    const { size_bytes: size } = measured;
    expect(told("OVER_QUOTA")).toMatchObject([
      {
        sandbox_id: id,
        workspace_usage: { workspace_id: "full", size_bytes: size, quota_bytes: MIB },
      },
    ]);
    expect(service.log.lines).toContainEqual(
      expect.objectContaining({
        level: "warn",
        message: expect.stringContaining("past its quota"),
        fields: expect.objectContaining({ workspaceId: "full", quotaBytes: MIB }),
      }),
    );
    // Running sandboxes continue, so that somebody can free space.
    expect(await workspaces.ensure("full")).toMatchObject({ reused: true });
    const small = makeTar([{ name: "small", content: "x" }]);
    const refusal = {
      code: "RESOURCE_EXHAUSTED",
      reason: "NO_SPACE",
      metadata: { quota_bytes: String(MIB) },
    };
    expect(await failureOf(workspaces.import("full", small))).toMatchObject(refusal);
    await workspaces.stop("full");
    const failure = await failureOf(workspaces.ensure("full"));
    expect(failure).toMatchObject(refusal);
    expect(failure.message).toContain("Delete files");

    const { sandbox_id: mender } = await service.client.createSandbox({
      mounts: [{ workspace_id: "full", target: "/full" }],
    });
    await service.client.output(mender, "rm /full/file");
    const mended = await workspaces.ensure("full");
    expect(mended).toMatchObject({
      sandbox: { state: "SANDBOX_STATE_RUNNING" },
      workspace: { over_quota: false },
    });
    await eventually(() => told("WITHIN_QUOTA").length > 0);
    expect(told("WITHIN_QUOTA").map((event) => event.sandbox_id)).toEqual([mender]);
    await workspaces.import("full", small);
  });

  test("an import that would exceed the quota is refused as it arrives, and leaves nothing", async () => {
    const large = makeTar([
      { name: "a", content: Buffer.alloc(0.6 * MIB, 1) },
      { name: "b", content: Buffer.alloc(0.6 * MIB, 1) },
    ]);
    expect((await failureOf(workspaces.import("large", large))).reason).toBe("NO_SPACE");
    let running = "";
    const isOver = async (): Promise<boolean> => {
      const response = await fetch(`http://${service.app.address}/metrics`);
      running =
        /^berth_rpc_in_flight\{[^}]*ImportWorkspace[^}]*\} (\d+)$/m.exec(await response.text())?.[1] ?? "";
      return running === "0";
    };
    await eventually(isOver).catch(() => {});
    expect(running).toBe("0");
    const half = makeTar([{ name: "a", content: Buffer.alloc(0.6 * MIB, 1) }]);
    await workspaces.import("large", half);
    const more = makeTar([{ name: "b", content: Buffer.alloc(0.6 * MIB, 1) }]);
    expect((await failureOf(workspaces.import("large", more))).reason).toBe("NO_SPACE");
    await workspaces.import("large", more, { replace: true });
  });
});
