import { readdir, readFile } from "node:fs/promises";
import path from "node:path";
import type { Container } from "dockerode";
import { describe, expect, test } from "vitest";
import { useApp } from "../../support/app.ts";
import { containersOf, docker, rawExec } from "../../support/docker.ts";
import { eventually } from "../../support/eventually.ts";
import { TEST_IMAGE } from "../../support/images.ts";
import { newDataDir } from "../../support/settings.ts";
import { WorkspaceClient } from "../../support/workspaces.ts";

const dataDir = newDataDir();
const service = useApp({ dataDir, warmPools: [{ image: TEST_IMAGE, count: 2 }] });
const workspaces = new WorkspaceClient(() => service.client);

/** The waiting containers, once the pool is full. */
async function waiting(): Promise<Set<string>> {
  await eventually(async () => {
    const { warm_pools: pools } = await service.client.call("SandboxService/GetStats");
    return pools.every(({ ready, target }) => ready === target);
  });
  return new Set((await containersOf(service.instance)).map(({ Id }) => Id));
}

/** The container with a file, among those that waited. Labels have the id under which it waited. */
async function claimed(before: Set<string>, mark: string): Promise<Container | undefined> {
  for (const { Id } of await containersOf(service.instance)) {
    if (!before.has(Id)) continue;
    const container = docker.getContainer(Id);
    if ((await rawExec(container, ["test", "-e", mark])).exitCode === 0) return container;
  }
  return undefined;
}

describe("a claim from the warm pool", () => {
  test("works in the workspace, with the shared directory, like any other", async () => {
    const before = await waiting();
    const { workspace } = await workspaces.ensure("warm");
    const id = workspace.sandbox_id;
    const said = await service.client.output(
      id,
      "pwd; echo in > file; echo all > /shared/note; touch /claimed; ls /run/berth",
    );
    expect(said).toBe("/workspace\n");
    expect(await readFile(path.join(workspace.path, "file"), "utf8")).toBe("in\n");
    expect(await readFile(path.join(dataDir, "shared/note"), "utf8")).toBe("all\n");
    expect(await claimed(before, "/claimed")).toBeDefined();
    const options = await service.client.output(
      id,
      "grep -c ' /\\(workspace\\|shared\\) .*nosuid,nodev' /proc/self/mounts",
    );
    expect(options).toBe("2\n");
    // Nothing of it stays on the host, except what the container has.
    await workspaces.stop("warm");
    const mounts = await readFile("/proc/self/mounts", "utf8");
    expect(mounts).not.toContain(path.basename(workspace.path));
    expect(await readdir(workspace.path)).toEqual(["file"]);
  });

  test("serves read-only mounts, other targets and other users", async () => {
    await workspaces.create("other");
    const before = await waiting();
    const { sandbox_id: id } = await service.client.createSandbox({
      mounts: [
        { workspace_id: "other", target: "/deep/in the/tree" },
        { workspace_id: "warm", target: "/read/only", read_only: true },
      ],
    });
    const said = await service.client.output(
      id,
      "cat /read/only/file; touch '/deep/in the/tree/x' /claimed-2; touch /read/only/y || echo refused",
    );
    expect(said).toBe("in\nrefused\n");
    expect(await claimed(before, "/claimed-2")).toBeDefined();
  });

  test("is made cold for a target that a running container cannot have, and for another user", async () => {
    await waiting();
    const { sandbox_id: id } = await service.client.createSandbox({
      mounts: [{ workspace_id: "other", target: "/dev/data" }],
    });
    expect(await service.client.output(id, "ls /dev/data")).toBe("x\n");
    const user = await workspaces.sandbox("of a user", { user: "1234" });
    expect(await service.client.output(user, "touch mine; stat -c %u mine")).toBe("1234\n");
  });

  test("keeps the workspace's files when its container is removed from outside", async () => {
    const before = await waiting();
    const { workspace } = await workspaces.ensure("survives");
    await service.client.output(workspace.sandbox_id, "mkdir dir; echo kept > dir/file; touch /claimed-3");
    const container = await claimed(before, "/claimed-3");
    await container?.remove({ force: true, v: true });
    expect(container).toBeDefined();
    await service.client.deleteSandbox(workspace.sandbox_id);
    expect(await readFile(path.join(workspace.path, "dir/file"), "utf8")).toBe("kept\n");
    expect((await workspaces.ensure("survives")).sandbox?.generation).toBe(2);
  });
});
