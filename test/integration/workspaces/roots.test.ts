import { mkdir, readFile, rename, rm, stat, symlink, writeFile } from "node:fs/promises";
import path from "node:path";
import { expect, test } from "vitest";
import { startTestApp } from "../../support/app.ts";
import { failureOf } from "../../support/client.ts";
import { newDataDir } from "../../support/settings.ts";
import { WorkspaceClient } from "../../support/workspaces.ts";

test("a root that goes missing or becomes a file fails calls with what to do, and nothing is created elsewhere", async () => {
  const dataDir = newDataDir();
  const root = path.join(dataDir, "workspaces");
  const app = await startTestApp({ dataDir, engine: "bubblewrap" });
  const workspaces = new WorkspaceClient(() => app.client);
  try {
    await workspaces.create("before");
    await rename(root, `${root}-elsewhere`);
    const broken = { code: "FAILED_PRECONDITION", reason: "WORKSPACE_BROKEN" };
    for (const call of [
      () => workspaces.create("a"),
      () => workspaces.addRef("a", "t"),
      () => workspaces.ensure("a"),
      () => workspaces.list(),
    ]) {
      const failure = await failureOf(call());
      expect(failure).toMatchObject(broken);
      expect(failure.message).toContain("--workspaces-root");
    }
    // Its disk may be missing, so nothing is created in its place.
    await expect(stat(root)).rejects.toThrow("ENOENT");
    expect(await failureOf(workspaces.get("before"))).toMatchObject(broken);
    await writeFile(root, "");
    expect(await failureOf(workspaces.create("a"))).toMatchObject(broken);
    await rm(root);
    await rename(`${root}-elsewhere`, root);
    // The failed call left nothing behind.
    expect((await failureOf(workspaces.get("a"))).code).toBe("NOT_FOUND");
    expect((await workspaces.get("before")).workspace_id).toBe("before");
    expect((await workspaces.create("a")).trace_refs).toEqual([]);
  } finally {
    await app.stop();
  }
});

test("a shared root that is a file fails the calls that need it", async () => {
  const dataDir = newDataDir();
  await mkdir(dataDir, { recursive: true });
  await writeFile(path.join(dataDir, "shared"), "");
  const app = await startTestApp({ dataDir, engine: "bubblewrap" });
  const workspaces = new WorkspaceClient(() => app.client);
  try {
    const failure = await failureOf(workspaces.create("a"));
    expect(failure).toMatchObject({ code: "FAILED_PRECONDITION", reason: "WORKSPACE_BROKEN" });
    expect(failure.message).toContain("--shared-root");
    await rm(path.join(dataDir, "shared"));
    expect((await workspaces.create("a")).trace_refs).toEqual([]);
  } finally {
    await app.stop();
  }
});

test("sandboxes mount workspaces of a data directory that is a symbolic link", async () => {
  const real = newDataDir();
  await mkdir(real, { recursive: true, mode: 0o700 });
  const link = `${real}-link`;
  await symlink(real, link);
  const app = await startTestApp({ dataDir: link, engine: "bubblewrap" });
  const workspaces = new WorkspaceClient(() => app.client);
  try {
    const { path: directory } = await workspaces.create("linked");
    expect(directory).toMatch(`${real}/`);
    await expect(workspaces.ensure("linked")).resolves.toMatchObject({ reused: false });
    const { sandbox_id } = await workspaces.get("linked");
    await app.client.output(sandbox_id, "echo out >file; echo both >/shared/note");
    expect(await readFile(path.join(directory, "file"), "utf8")).toBe("out\n");
    expect(await readFile(path.join(real, "shared/note"), "utf8")).toBe("both\n");
  } finally {
    await app.stop();
    await rm(link);
  }
});
