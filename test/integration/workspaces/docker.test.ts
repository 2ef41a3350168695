import { readFile, stat } from "node:fs/promises";
import path from "node:path";
import { describe, expect, test } from "vitest";
import { startTestApp, useApp } from "../../support/app.ts";
import { failureOf } from "../../support/client.ts";
import { containerOf } from "../../support/docker.ts";
import { DockerLink } from "../../support/docker-link.ts";
import { eventually } from "../../support/eventually.ts";
import { makeTar } from "../../support/tar-builder.ts";
import { WorkspaceClient } from "../../support/workspaces.ts";

// What only Docker has: a daemon that goes away, containers that others remove, and users of all kinds.
describe("on docker", () => {
  const service = useApp();
  const workspaces = new WorkspaceClient(() => service.client);

  test.each(["nobody", "1234:5678"])("lets the sandbox's user write: %s", async (user) => {
    const id = await workspaces.sandbox(`owned by ${user}`, { user });
    await service.client.output(id, "touch mine && mkdir dir && touch /shared/of-$(id -u)");
    // Another user accesses it later.
    const mounts = [{ workspace_id: `owned by ${user}`, target: "/work" }];
    const { sandbox_id: other } = await service.client.createSandbox({ user: "4321", mounts });
    await service.client.output(other, "touch /work/theirs");
  });

  test("an import belongs to the user of the workspace's sandbox", async () => {
    const id = await workspaces.sandbox("imported", { user: "1234:5678" });
    await workspaces.import("imported", makeTar([{ name: "dir/file", content: "x" }]));
    const said = await service.client.output(id, "echo more >> dir/file; stat -c %u:%g dir dir/file");
    expect(said).toBe("1234:5678\n1234:5678\n");
  });

  test("a container removed by others is replaced, and never taken for the workspace's again", async () => {
    const id = await workspaces.sandbox("removed");
    await service.client.output(id, "echo kept > kept");
    await (await containerOf(service.instance, id)).remove({ force: true });
    await eventually(async () => (await workspaces.get("removed")).sandbox_id === "");
    const replaced = await workspaces.ensure("removed");
    expect(replaced).toMatchObject({ reused: false, sandbox: { sandbox_id: id, generation: 2 } });
    expect(await service.client.output(id, "cat kept")).toBe("kept\n");
  });
});

describe("while Docker does not answer", () => {
  test("a forced cleanup deletes nothing under a container that may be running, and can be retried", async () => {
    const link = await DockerLink.open();
    const app = await startTestApp({ dockerHost: link.host });
    const client = new WorkspaceClient(() => app.client);
    try {
      const { workspace } = await client.ensure("used");
      await app.client.output(workspace.sandbox_id, "echo kept > file");
      link.cut();
      await eventually(async () => !(await app.client.call("SandboxService/GetStats")).engine.available);
      const failure = await failureOf(client.cleanup("used", { force: true }));
      expect(failure).toMatchObject({ code: "UNAVAILABLE", reason: "ENGINE_UNAVAILABLE" });
      expect(await readFile(path.join(workspace.path, "file"), "utf8")).toBe("kept\n");
      expect((await client.list()).broken).toEqual([
        {
          workspace_id: "used",
          path: workspace.path,
          message: expect.stringContaining("its deletion failed"),
        },
      ]);
      await link.restore();
      await eventually(async () => (await app.client.call("SandboxService/GetStats")).engine.available);
      expect(await client.cleanup("used", { force: true })).toMatchObject({ deleted: true });
      await expect(stat(workspace.path)).rejects.toThrow("ENOENT");
    } finally {
      await app.stop();
      await link.close();
    }
  });

  test("ensure succeeds without a sandbox, says why and logs it; with --docker-required it fails", async () => {
    for (const dockerRequired of [false, true]) {
      const link = await DockerLink.open();
      const app = await startTestApp({ dockerHost: link.host, dockerRequired });
      const client = new WorkspaceClient(() => app.client);
      try {
        link.cut();
        await eventually(async () => !(await app.client.call("SandboxService/GetStats")).engine.available);
        if (dockerRequired) {
          const failure = await failureOf(client.ensure("down"));
          expect(failure).toMatchObject({ code: "UNAVAILABLE", reason: "ENGINE_UNAVAILABLE" });
        } else {
          const answer = await client.ensure("down");
          expect(answer).toMatchObject({ sandbox: null, reused: false, workspace: { sandbox_id: "" } });
          expect(answer.sandbox_unavailable_reason).toContain("does not answer");
          expect((await stat(answer.workspace.path)).isDirectory()).toBe(true);
          expect(app.log.lines).toContainEqual(
            expect.objectContaining({ level: "warn", message: expect.stringContaining("has no sandbox") }),
          );
        }
        await link.restore();
        await eventually(async () => (await app.client.call("SandboxService/GetStats")).engine.available);
        expect((await client.ensure("down")).sandbox?.state).toBe("SANDBOX_STATE_RUNNING");
      } finally {
        await app.stop();
        await link.close();
      }
    }
  });
});
