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
  const service = useApp({ ...settings, sharedQuotaBytes: MIB });
  const workspaces = new WorkspaceClient(() => service.client);

  const usage = async (measure: boolean) =>
    (await service.client.call("SandboxService/GetStats", { measure_shared_directory: measure }))
      .shared_directory;
  const gauges = async () => {
    const text = await (await fetch(`http://${service.app.address}/metrics`)).text();
    const of = (name: string) => Number(new RegExp(`^${name} (\\d+)$`, "m").exec(text)?.[1]);
    return { bytes: of("berth_shared_directory_bytes"), over: of("berth_shared_directories_over_quota") };
  };

  test("past its watched quota a shared directory is reported, and workspaces get no new sandbox", async () => {
    expect(service.log.lines).toContainEqual(
      expect.objectContaining({
        level: "warn",
        message: expect.stringContaining("shared directories is watched, not enforced"),
      }),
    );
    const within = { quota_bytes: MIB, enforced: false, over_quota: false };
    expect(await usage(true)).toMatchObject(within);
    const [first, second] = [await workspaces.sandbox("first"), await workspaces.sandbox("second")];
    // Neither has the shared directory.
    await service.client.createSandbox();
    await service.client.createSandbox({ mounts: [{ workspace_id: "first", target: "/shared" }] });
    const events: SandboxEvent[] = [];
    const watch = service.client.stream("SandboxService/WatchEvents");
    watch.on("data", ({ event }) => event && events.push(event));
    watch.on("error", () => {});
    onTestFinished(() => watch.cancel());
    const told = (type: string) =>
      events.filter((event) => event.type === `SANDBOX_EVENT_TYPE_SHARED_${type}_QUOTA`);
    const hearers = (type: string) => told(type).map((event) => event.sandbox_id);

    // In one step: the watch may measure at any time, and reports the size that it finds.
    await service.client.output(first, "fallocate -l 3M /shared/file");
    const measured = await usage(true);
    expect(measured).toMatchObject({ ...within, over_quota: true });
    const size = measured?.size_bytes ?? 0;
    expect(size).toBeGreaterThan(3 * MIB);
    expect(await usage(true)).toEqual(measured);
    expect(await usage(false)).toEqual(measured);
    expect(await gauges()).toEqual({ bytes: size, over: 1 });
    await eventually(() => told("OVER").length > 1);
    expect(told("OVER")[0]?.workspace_usage).toEqual({
      workspace_id: "",
      size_bytes: size,
      quota_bytes: MIB,
    });
    const warnings = service.log.lines.filter(({ message }) => message.includes("shared directory is past"));
    expect(warnings).toHaveLength(1);

    // Running sandboxes continue, so that somebody can free space.
    expect(await workspaces.ensure("first")).toMatchObject({ reused: true });
    const failure = await failureOf(workspaces.ensure("third"));
    expect(failure).toMatchObject({
      code: "RESOURCE_EXHAUSTED",
      reason: "NO_SPACE",
      metadata: { size_bytes: String(size), quota_bytes: String(MIB) },
    });
    expect(failure.message).toContain("Delete files in /shared");
    const elsewhere = { mounts: [{ workspace_id: "first", target: "/shared" }] };
    expect(await workspaces.ensure("fourth", elsewhere)).toMatchObject({ reused: false });
    await workspaces.import("third", makeTar([{ name: "small", content: "x" }]));

    const { sandbox_id: mender } = await service.client.createSandbox({
      mounts: [{ workspace_id: "third", target: "/third" }],
    });
    await service.client.output(mender, "rm /shared/file");
    expect(await workspaces.ensure("third")).toMatchObject({ sandbox: { state: "SANDBOX_STATE_RUNNING" } });
    await eventually(() => told("WITHIN").length > 2);
    expect(hearers("OVER").sort()).toEqual([first, second].sort());
    expect(hearers("WITHIN").sort()).toEqual([first, second, mender].sort());
    expect(await usage(false)).toMatchObject(within);
    expect(await gauges()).toMatchObject({ over: 0 });
  });

  test("a shared directory is not a workspace: no call lists, names or mounts it", async () => {
    await workspaces.create("only");
    const { workspaces: listed, broken } = await workspaces.list();
    expect(listed.map(({ workspace_id: id }) => id)).not.toContain("");
    expect(broken).toEqual([]);
    const invalid = { code: "INVALID_ARGUMENT" };
    expect(await failureOf(workspaces.get(""))).toMatchObject(invalid);
    expect(await failureOf(workspaces.cleanup("", { force: true }))).toMatchObject(invalid);
    const mounts = [{ workspace_id: "", target: "/x" }];
    expect(await failureOf(service.client.createSandbox({ mounts }))).toMatchObject(invalid);
  });
});
