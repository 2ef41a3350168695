import { mkdir, mkdtemp, readdir, rm, stat, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { afterAll, describe, expect, test } from "vitest";
import { startTestApp, useApp } from "../../support/app.ts";
import { failureOf } from "../../support/client.ts";
import { ENGINES } from "../../support/engines.ts";
import { newDataDir, newInstance } from "../../support/settings.ts";
import { directoryOf, WorkspaceClient } from "../../support/workspaces.ts";

describe.each(ENGINES)("on $name", ({ settings }) => {
  const dataDir = newDataDir();
  const root = path.join(dataDir, "workspaces");
  const service = useApp({ ...settings, dataDir });
  const workspaces = new WorkspaceClient(() => service.client);

  describe("a workspace", () => {
    test("has a directory named by the hash of its id, and is created once", async () => {
      const request = { workspace_id: "made" };
      const first = await service.client.call("WorkspaceService/CreateWorkspace", request);
      expect(first).toMatchObject({
        created: true,
        workspace: {
          workspace_id: "made",
          path: directoryOf(root, "made"),
          trace_refs: [],
          ref_count: 0,
          sandbox_id: "",
          owner: "default",
          quota_bytes: 0,
          quota_enforcement: "QUOTA_ENFORCEMENT_NONE",
          has_shared: true,
        },
      });
      expect((await stat(first.workspace.path)).isDirectory()).toBe(true);
      expect((await stat(path.join(dataDir, "shared"))).isDirectory()).toBe(true);
      await writeFile(path.join(first.workspace.path, "kept"), "");
      const second = await service.client.call("WorkspaceService/CreateWorkspace", request);
      expect(second).toMatchObject({ created: false, workspace: { path: first.workspace.path } });
      expect(await readdir(first.workspace.path)).toEqual(["kept"]);
    });

    test("that is unknown is NOT_FOUND, and only the creating calls create it", async () => {
      const missing = {
        code: "NOT_FOUND",
        reason: "WORKSPACE_NOT_FOUND",
        metadata: { workspace_id: "absent" },
      };
      expect(await failureOf(workspaces.get("absent"))).toMatchObject(missing);
      expect(await failureOf(workspaces.removeRef("absent", "t"))).toMatchObject(missing);
      expect(await failureOf(workspaces.cleanup("absent"))).toMatchObject(missing);
      expect(await failureOf(workspaces.cleanup("absent", { force: true }))).toMatchObject(missing);
      expect(await failureOf(workspaces.stop("absent"))).toMatchObject(missing);
      expect(await failureOf(workspaces.export("absent"))).toMatchObject(missing);
      await expect(stat(directoryOf(root, "absent"))).rejects.toThrow("ENOENT");
      expect(await failureOf(workspaces.lookup("nobody"))).toMatchObject({
        code: "NOT_FOUND",
        reason: "TRACE_NOT_FOUND",
      });
    });
  });

  describe("ids", () => {
    const ids = [
      "a/b",
      "..",
      "../../etc",
      "/",
      ".",
      "A",
      "a",
      "ünïcödé 🚢",
      "é",
      "e\u0301",
      "name with spaces",
      "-rf",
      "x".repeat(256),
    ];

    test("are names, never paths: each has a directory of its own in the root", async () => {
      const made = [];
      for (const id of ids) made.push(await workspaces.create(id));
      expect(made.map(({ path: where }) => where)).toEqual(ids.map((id) => directoryOf(root, id)));
      expect(new Set(made.map(({ path: where }) => where)).size).toBe(ids.length);
      expect(made.every(({ path: where }) => path.dirname(where) === root)).toBe(true);
      for (const id of ids) expect((await workspaces.get(id)).workspace_id).toBe(id);
    });

    test.each([
      ["", "is required"],
      ["x".repeat(257), "257 bytes"],
      ["ü".repeat(129), "258 bytes"],
      ["nul\0", "control characters"],
      ["line\nbreak", "control characters"],
    ])("%j is refused: %s", async (id, problem) => {
      for (const call of [
        () => workspaces.create(id),
        () => workspaces.get(id),
        () => workspaces.addRef(id, "t"),
        () => workspaces.ensure(id),
      ]) {
        const failure = await failureOf(call());
        expect(failure).toMatchObject({ code: "INVALID_ARGUMENT", metadata: { field: "workspace_id" } });
        expect(failure.message).toContain(problem);
      }
    });

    test("of traces follow the same rules", async () => {
      const failure = await failureOf(workspaces.addRef("traces", "a\0b"));
      expect(failure).toMatchObject({ code: "INVALID_ARGUMENT", metadata: { field: "trace_id" } });
    });
  });

  describe("references", () => {
    test("are added, listed in byte order and removed, each once", async () => {
      for (const trace of ["b", "a", "é", "B", "a"]) await workspaces.addRef("refs", trace);
      expect(await workspaces.get("refs")).toMatchObject({ trace_refs: ["B", "a", "b", "é"], ref_count: 4 });
      await workspaces.removeRef("refs", "a");
      expect(await workspaces.removeRef("refs", "a")).toMatchObject({ trace_refs: ["B", "b", "é"] });
      expect((await workspaces.lookup("b")).workspace_id).toBe("refs");
    });

    test("belong to one workspace: added to another, a trace leaves the first", async () => {
      await workspaces.addRef("from", "moving");
      const request = { workspace_id: "to", trace_id: "moving" };
      const moved = await service.client.call("WorkspaceService/AddTraceRef", request);
      expect(moved).toMatchObject({ previous_workspace_id: "from", workspace: { trace_refs: ["moving"] } });
      expect(await workspaces.get("from")).toMatchObject({ trace_refs: [], ref_count: 0 });
      // It no longer belongs to the first workspace.
      await workspaces.removeRef("from", "moving");
      expect((await workspaces.lookup("moving")).workspace_id).toBe("to");
    });

    test("are not kept with the answers for retries, which get those of now", async () => {
      const answerBytes = async () =>
        (await service.client.call("SandboxService/GetStats")).answers.owner_used_bytes;
      await workspaces.create("many");
      for (let index = 0; index < 100; index++) await workspaces.addRef("many", `${index}`.padEnd(256, "x"));
      const before = await answerBytes();
      const request = (trace: string) => ({ request_id: trace, workspace_id: "many", trace_id: trace });
      const add = (trace: string) => service.client.call("WorkspaceService/AddTraceRef", request(trace));
      expect((await add("one")).workspace.ref_count).toBe(101);
      await service.client.call("WorkspaceService/RemoveTraceRef", request("two"));
      await service.client.call("WorkspaceService/EnsureWorkspaceSandbox", {
        ...{ request_id: "sandbox", workspace_id: "many" },
      });
      await workspaces.stop("many");
      expect((await answerBytes()) - before).toBeLessThan(10_000);
      await workspaces.removeRef("many", "one");
      expect((await add("one")).workspace).toMatchObject({ workspace_id: "many", ref_count: 100 });
      await workspaces.cleanup("many", { force: true });
      expect((await add("one")).workspace).toMatchObject({ workspace_id: "many", ref_count: 0 });
    });

    test("protect a workspace: cleanup is refused with their count, and force clears them", async () => {
      const made = await workspaces.create("guarded");
      await writeFile(path.join(made.path, "data"), "kept");
      await workspaces.addRef("guarded", "one");
      await workspaces.addRef("guarded", "two");
      const refused = await failureOf(workspaces.cleanup("guarded"));
      expect(refused).toMatchObject({
        code: "FAILED_PRECONDITION",
        reason: "WORKSPACE_IN_USE",
        metadata: { ref_count: "2" },
      });
      expect(refused.message).toContain("2 traces refer to it");
      expect(await workspaces.cleanup("guarded", { force: true })).toMatchObject({
        workspace: null,
        cleared_ref_count: 2,
        deleted: true,
      });
      await expect(stat(made.path)).rejects.toThrow("ENOENT");
      expect((await failureOf(workspaces.lookup("one"))).reason).toBe("TRACE_NOT_FOUND");
      expect((await failureOf(workspaces.cleanup("guarded", { force: true }))).code).toBe("NOT_FOUND");
    });

    test("do not stop a cleanup when there are none, and the directory is kept", async () => {
      const made = await workspaces.create("free");
      await writeFile(path.join(made.path, "data"), "kept");
      expect(await workspaces.cleanup("free")).toMatchObject({
        workspace: { workspace_id: "free" },
        cleared_ref_count: 0,
        deleted: false,
      });
      expect(await readdir(made.path)).toEqual(["data"]);
    });
  });

  describe("an unknown object in the root", () => {
    test("is reported, left alone and never taken for a workspace", async () => {
      const stranger = directoryOf(root, "stranger");
      await mkdir(stranger);
      await writeFile(path.join(stranger, "theirs"), "");
      await writeFile(path.join(root, "a file"), "");
      const { broken, workspaces: listed } = await workspaces.list();
      expect(broken.map((entry) => entry.path)).toEqual(
        expect.arrayContaining([stranger, path.join(root, "a file")]),
      );
      expect(listed.map(({ path: where }) => where)).not.toContain(stranger);
      expect(await failureOf(workspaces.create("stranger"))).toMatchObject({
        code: "FAILED_PRECONDITION",
        reason: "WORKSPACE_BROKEN",
      });
      expect((await failureOf(workspaces.get("stranger"))).code).toBe("NOT_FOUND");
      expect(await readdir(stranger)).toEqual(["theirs"]);
    });

    test("in place of a workspace's directory breaks only that workspace, and is not followed", async () => {
      const outside = await mkdtemp(path.join(tmpdir(), "berth-outside-"));
      await writeFile(path.join(outside, "precious"), "");
      const { path: where } = await workspaces.create("linked");
      await rm(where, { recursive: true });
      const gone = await failureOf(workspaces.get("linked"));
      expect(gone).toMatchObject({ code: "FAILED_PRECONDITION", reason: "WORKSPACE_BROKEN" });
      await symlink(outside, where);
      for (const call of [
        () => workspaces.get("linked"),
        () => workspaces.ensure("linked"),
        () => workspaces.export("linked"),
        () => workspaces.create("linked"),
        () => workspaces.addRef("linked", "t"),
      ]) {
        expect(await failureOf(call())).toMatchObject({ reason: "WORKSPACE_BROKEN" });
      }
      const mount = { workspace_id: "linked", target: "/workspace" };
      expect((await failureOf(service.client.createSandbox({ mounts: [mount] }))).reason).toBe(
        "WORKSPACE_BROKEN",
      );
      const { broken } = await workspaces.list();
      expect(broken).toContainEqual(expect.objectContaining({ workspace_id: "linked", path: where }));
      await workspaces.cleanup("linked", { force: true });
      expect(await readdir(outside)).toEqual(["precious"]);
      await expect(stat(where)).rejects.toThrow("ENOENT");
      await rm(outside, { recursive: true });
    });
  });

  test("lists page by page in byte order", async () => {
    const ids = Array.from({ length: 7 }, (_, index) => `page-${index}`);
    for (const id of ids.toReversed()) await workspaces.create(id);
    const seen: string[] = [];
    let token = "";
    do {
      const page = await workspaces.list({ page_size: 3, page_token: token });
      expect(
        page.workspaces.length + page.broken.filter((entry) => entry.workspace_id !== "").length,
      ).toBeLessThanOrEqual(3);
      seen.push(...page.workspaces.map((workspace) => workspace.workspace_id));
      token = page.next_page_token;
    } while (token !== "");
    expect(seen.filter((id) => id.startsWith("page-"))).toEqual(ids);
    expect(seen).toEqual(seen.toSorted((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b))));
    expect((await failureOf(workspaces.list({ page_token: "nonsense" }))).code).toBe("INVALID_ARGUMENT");
  });

  describe("after a restart", () => {
    const kept = newDataDir();
    const instance = newInstance();
    afterAll(() => rm(kept, { recursive: true, force: true }));

    test("references are still there, and removing one leaves the others", async () => {
      const first = await startTestApp({ ...settings, dataDir: kept, instance });
      const before = new WorkspaceClient(() => first.client);
      for (const trace of ["one", "two", "three"]) await before.addRef("kept", trace);
      await first.stop();
      const second = await startTestApp({ ...settings, dataDir: kept, instance });
      const after = new WorkspaceClient(() => second.client);
      try {
        expect(await after.get("kept")).toMatchObject({ trace_refs: ["one", "three", "two"] });
        expect((await after.create("kept")).trace_refs).toEqual(["one", "three", "two"]);
        expect(await after.removeRef("kept", "two")).toMatchObject({ trace_refs: ["one", "three"] });
        expect((await after.lookup("one")).workspace_id).toBe("kept");
      } finally {
        await second.stop();
      }
    });
  });
});
