import { readdir, readFile, stat } from "node:fs/promises";
import path from "node:path";
import { describe, expect, test } from "vitest";
import { useApp } from "../../support/app.ts";
import { failureOf } from "../../support/client.ts";
import { ENGINES } from "../../support/engines.ts";
import { newDataDir } from "../../support/settings.ts";
import { directoryOf, WorkspaceClient } from "../../support/workspaces.ts";

describe.each(ENGINES)("on $name", ({ settings }) => {
  const dataDir = newDataDir();
  const service = useApp({ ...settings, dataDir });
  const workspaces = new WorkspaceClient(() => service.client);

  describe("ensure", () => {
    test("creates the workspace and a sandbox that works in it, with the shared directory", async () => {
      const { workspace, sandbox, reused } = await workspaces.ensure("ensured");
      expect(reused).toBe(false);
      expect(workspace.sandbox_id).toBe(sandbox?.sandbox_id);
      expect(sandbox).toMatchObject({ state: "SANDBOX_STATE_RUNNING", generation: 1 });
      const id = workspace.sandbox_id;
      expect(await service.client.output(id, "pwd; echo out > file; echo both > /shared/note")).toBe(
        "/workspace\n",
      );
      expect(await readFile(path.join(workspace.path, "file"), "utf8")).toBe("out\n");
      const other = await workspaces.sandbox("other");
      expect(await service.client.output(other, "cat /shared/note; ls /workspace")).toBe("both\n");
    });

    test("reuses the running sandbox, resumes a paused one and replaces one that ended", async () => {
      const first = await workspaces.ensure("again");
      const id = first.workspace.sandbox_id;
      await service.client.output(id, "echo kept > kept");
      expect(await workspaces.ensure("again")).toMatchObject({
        reused: true,
        sandbox: { sandbox_id: id, generation: 1 },
      });
      await service.client.call("SandboxService/PauseSandbox", { sandbox_id: id });
      expect(await workspaces.ensure("again")).toMatchObject({
        reused: true,
        sandbox: { sandbox_id: id, state: "SANDBOX_STATE_RUNNING" },
      });
      await service.client.deleteSandbox(id);
      const replaced = await workspaces.ensure("again");
      expect(replaced).toMatchObject({ reused: false, sandbox: { sandbox_id: id, generation: 2 } });
      expect(await service.client.output(id, "cat kept")).toBe("kept\n");
      const stale = await failureOf(service.client.run(id, "true", { generation: 1 }));
      expect(stale.reason).toBe("SANDBOX_REPLACED");
    });

    test("creates one sandbox for many concurrent callers, and does not delay other workspaces", async () => {
      const asked = Array.from({ length: 10 }, () => workspaces.ensure("busy"));
      const quick = await workspaces.create("quick");
      expect(quick.workspace_id).toBe("quick");
      const answers = await Promise.all(asked);
      expect(new Set(answers.map(({ workspace }) => workspace.sandbox_id)).size).toBe(1);
      expect(answers.filter(({ reused }) => !reused)).toHaveLength(1);
    });

    test("takes a spec: the workspace appears at its working directory", async () => {
      const id = await workspaces.sandbox("placed", { working_dir: "/src/project", env: { NAME: "value" } });
      expect(await service.client.output(id, "pwd; echo $NAME; touch here")).toBe("/src/project\nvalue\n");
      expect(
        (await stat(path.join(directoryOf(path.join(dataDir, "workspaces"), "placed"), "here"))).isFile(),
      ).toBe(true);
      for (const spec of [
        { working_dir: "/" },
        { working_dir: "/x", mounts: [{ workspace_id: "other", target: "/x" }] },
      ]) {
        expect((await failureOf(workspaces.ensure("placed-badly", spec))).code).toBe("INVALID_ARGUMENT");
      }
    });
  });

  test("files that a sandbox writes into its workspace are data: none of Berth's metadata is there", async () => {
    const { workspace } = await workspaces.ensure("forged");
    const id = workspace.sandbox_id;
    await workspaces.addRef("forged", "trace");
    const forged = { workspace_id: "other", workspace_container_id: "sbx_forged", trace_refs: ["theirs"] };
    await service.client.output(
      id,
      `[ -z "$(ls -A .)" ] && [ ! -e /shared/.gateway ] || exit 1
mkdir .gateway && printf %s '${JSON.stringify(forged)}' | tee .gateway/meta.json > meta.json`,
    );
    const known = { workspace_id: "forged", sandbox_id: id, trace_refs: ["trace"], path: workspace.path };
    expect(await workspaces.get("forged")).toMatchObject(known);
    expect(await workspaces.ensure("forged")).toMatchObject({ reused: true, workspace: known });
    expect((await workspaces.list()).workspaces).toContainEqual(expect.objectContaining(known));
    expect((await failureOf(workspaces.lookup("theirs"))).reason).toBe("TRACE_NOT_FOUND");
    await workspaces.stop("forged");
    expect(await workspaces.get("forged")).toMatchObject({ ...known, sandbox_id: "" });
    expect((await readdir(workspace.path)).toSorted()).toEqual([".gateway", "meta.json"]);
  });

  test("stop ends the sandbox and keeps directory and references", async () => {
    const id = await workspaces.sandbox("stopped");
    await service.client.output(id, "echo kept > file");
    await workspaces.addRef("stopped", "trace");
    expect(await workspaces.stop("stopped")).toMatchObject({ sandbox_id: "", trace_refs: ["trace"] });
    expect((await service.client.getSandbox(id)).state).toBe("SANDBOX_STATE_TERMINATED");
    expect(await workspaces.stop("stopped")).toMatchObject({ sandbox_id: "" });
    const again = await workspaces.sandbox("stopped");
    expect(await service.client.output(again, "cat file")).toBe("kept\n");
  });

  describe("mounts", () => {
    test("of one workspace in several sandboxes, writable and read-only, show the same files", async () => {
      const { path: where } = await workspaces.create("several");
      const mounted = (target: string, readOnly: boolean) =>
        service.client.createSandbox({
          mounts: [{ workspace_id: "several", target, read_only: readOnly }],
        });
      const [writer, reader] = await Promise.all([mounted("/data", false), mounted("/mnt/ro", true)]);
      await service.client.output(writer.sandbox_id, "echo seen > /data/file");
      expect(await service.client.output(reader.sandbox_id, "cat /mnt/ro/file; ls -d /shared")).toBe(
        "seen\n/shared\n",
      );
      const refused = await service.client.run(reader.sandbox_id, "echo no > /mnt/ro/file");
      expect(refused.exit_status.exit_code).not.toBe(0);
      expect(refused.stderr.toString()).toMatch(/read-only/i);
      expect(await readFile(path.join(where, "file"), "utf8")).toBe("seen\n");
      // Set-user-ID files have no effect, and devices cannot be used.
      const options = await service.client.output(writer.sandbox_id, "grep ' /data ' /proc/self/mounts");
      expect(options).toMatch(/nosuid/);
      expect(options).toMatch(/nodev/);
    });

    test("of an unknown workspace are refused before anything is made", async () => {
      const spec = { mounts: [{ workspace_id: "nowhere", target: "/data" }] };
      expect(await failureOf(service.client.createSandbox(spec))).toMatchObject({
        code: "NOT_FOUND",
        reason: "WORKSPACE_NOT_FOUND",
      });
    });

    test("of host paths stay within what the operator allowed, also where workspaces are stored", async () => {
      const { path: where } = await workspaces.create("hidden");
      for (const host of [where, path.join(dataDir, "workspaces"), "/etc", "/"]) {
        const failure = await failureOf(
          service.client.createSandbox({ mounts: [{ host_path: host, target: "/m" }] }),
        );
        expect(failure).toMatchObject({ code: "PERMISSION_DENIED", reason: "NOT_ALLOWED" });
      }
    });
  });

  describe("cleanup", () => {
    test("removes every sandbox that uses it first, then the directory", async () => {
      const { workspace } = await workspaces.ensure("used");
      const mounts = [{ workspace_id: "used", target: "/data", read_only: true }];
      const other = await service.client.createSandbox({ mounts });
      await service.client.output(workspace.sandbox_id, "touch file");
      const busy = service.client.exec(workspace.sandbox_id, "sleep 1000");
      await busy.processId;
      const ended = busy.result.catch((error: unknown) => error);
      expect(await workspaces.cleanup("used", { force: true })).toMatchObject({ deleted: true });
      for (const id of [workspace.sandbox_id, other.sandbox_id]) {
        expect((await service.client.getSandbox(id)).state).toBe("SANDBOX_STATE_TERMINATED");
      }
      await ended;
      await expect(stat(workspace.path)).rejects.toThrow("ENOENT");
    });

    test("races with the creation of sandboxes, and leaves neither", async () => {
      for (let round = 0; round < 4; round++) {
        await workspaces.create("raced");
        const mounts = [{ workspace_id: "raced", target: "/data" }];
        const making = Array.from({ length: 3 }, () =>
          service.client.createSandbox({ mounts }).catch(() => undefined),
        );
        const [, ...made] = await Promise.all([workspaces.cleanup("raced", { force: true }), ...making]);
        await expect(stat(directoryOf(path.join(dataDir, "workspaces"), "raced"))).rejects.toThrow("ENOENT");
        for (const sandbox of made) {
          if (sandbox === undefined) continue;
          expect((await service.client.getSandbox(sandbox.sandbox_id)).state).toBe(
            "SANDBOX_STATE_TERMINATED",
          );
        }
      }
    });
  });
});
