import {
  chmod,
  mkdir,
  mkdtemp,
  readdir,
  readFile,
  readlink,
  rm,
  stat,
  symlink,
  writeFile,
} from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { Readable } from "node:stream";
import { describe, expect, test } from "vitest";
import { readTar } from "../../../src/files/tar/tar-reader.ts";
import { useApp } from "../../support/app.ts";
import { failureOf } from "../../support/client.ts";
import { ENGINES } from "../../support/engines.ts";
import { newDataDir } from "../../support/settings.ts";
import { makeTar, pax } from "../../support/tar-builder.ts";
import { WorkspaceClient } from "../../support/workspaces.ts";

describe.each(ENGINES)("on $name", ({ settings }) => {
  const dataDir = newDataDir();
  const service = useApp({ ...settings, dataDir });
  const workspaces = new WorkspaceClient(() => service.client);

  async function entriesOf(tar: Buffer): Promise<Record<string, string>> {
    const found: Record<string, string> = {};
    let name = "";
    for await (const item of readTar(Readable.from([tar]))) {
      if (item.type === "content") found[name] += item.data.toString();
      else {
        name = item.entry.name;
        found[name] = item.entry.kind === "file" ? "" : `${item.entry.kind} ${item.entry.linkName}`.trim();
      }
    }
    return found;
  }

  const staging = () => readdir(path.join(dataDir, "workspaces", ".staging"));

  describe("an import", () => {
    test("keeps modes, whatever the service's umask", async () => {
      const modes = { "open/": 0o777, "shared/": 0o1777, "closed/": 0o100, file: 0o666, run: 0o775, dark: 0 };
      const tar = makeTar(
        Object.entries(modes).map(([name, mode]) => ({ name, mode, type: name.endsWith("/") ? "5" : "0" })),
      );
      const { workspace } = await workspaces.import("modes", tar);
      const kept = Object.keys(modes).map(async (name) => {
        const { mode } = await stat(path.join(workspace.path, name));
        return [name, mode & 0o7777];
      });
      expect(Object.fromEntries(await Promise.all(kept))).toEqual(modes);
    });

    test("keeps times before 1970", async () => {
      const old = pax({ mtime: "-86400" });
      const tar = makeTar([old, { name: "dir/", type: "5" }, old, { name: "dir/file", content: "x" }]);
      const { workspace } = await workspaces.import("old", tar);
      for (const name of ["dir", "dir/file"])
        expect((await stat(path.join(workspace.path, name))).mtimeMs).toBe(-86_400_000);
    });

    test("creates the workspace, and its export returns the same files", async () => {
      const tar = makeTar([
        { name: "dir/", type: "5", mode: 0o750 },
        { name: "dir/file", content: "content", mode: 0o640 },
        { name: "untold/below", content: "deep" },
        { name: "link", type: "2", linkName: "/etc/passwd" },
        { name: "hard", type: "1", linkName: "dir/file" },
        { name: "suid", content: "x", mode: 0o6755 },
      ]);
      const { workspace, entry_count: entries, size_bytes: bytes } = await workspaces.import("imported", tar);
      expect([entries, bytes]).toEqual([6, 12]);
      expect(workspace.size_bytes).toBeGreaterThan(0);
      expect(await readFile(path.join(workspace.path, "hard"), "utf8")).toBe("content");
      expect((await stat(path.join(workspace.path, "suid"))).mode & 0o7777).toBe(0o755);
      expect(await readlink(path.join(workspace.path, "link"))).toBe("/etc/passwd");
      expect(await entriesOf(await workspaces.export("imported"))).toMatchObject({
        "dir/": "directory",
        "untold/": "directory",
        "untold/below": "deep",
        link: "symlink /etc/passwd",
      });
      expect(await staging()).toEqual([]);
      const copy = await workspaces.import("copied", await workspaces.export("imported"));
      expect(await readFile(path.join(copy.workspace.path, "dir/file"), "utf8")).toBe("content");
    });

    test("adds to the existing files, and with replace takes their place in one step", async () => {
      const { path: where } = await workspaces.create("filled");
      await mkdir(path.join(where, "dir"));
      await writeFile(path.join(where, "dir/old"), "old");
      await writeFile(path.join(where, "file"), "old");
      const tar = makeTar([
        { name: "dir/new", content: "new" },
        { name: "file", content: "new" },
      ]);
      await workspaces.import("filled", tar);
      expect((await readdir(path.join(where, "dir"))).toSorted()).toEqual(["new", "old"]);
      expect(await readFile(path.join(where, "file"), "utf8")).toBe("new");
      await workspaces.import("filled", makeTar([{ name: "only", content: "this" }]), { replace: true });
      expect(await readdir(where)).toEqual(["only"]);
      expect((await stat(where)).mode & 0o777).toBe(0o777);
      expect(await staging()).toEqual([]);
    });

    test("belongs to the user of the workspace's sandbox", async () => {
      const id = await workspaces.sandbox("used");
      await workspaces.import("used", makeTar([{ name: "dir/file", content: "x" }]));
      const said = await service.client.output(
        id,
        "echo more >> dir/file; touch dir/new; id -u; stat -c %u dir dir/file",
      );
      expect(new Set(said.trim().split("\n")).size).toBe(1);
      const failure = await failureOf(
        workspaces.import("used", makeTar([{ name: "x", content: "x" }]), { replace: true }),
      );
      expect(failure).toMatchObject({ code: "FAILED_PRECONDITION", reason: "WORKSPACE_IN_USE" });
      expect(failure.metadata.sandbox_count).toBe("1");
    });

    test("through a planted link is refused whole, and nothing outside is touched", async () => {
      const outside = await mkdtemp(path.join(tmpdir(), "berth-outside-"));
      const { path: where } = await workspaces.create("planted");
      await symlink(outside, path.join(where, "dir"));
      await mkdir(path.join(where, "is-directory"));
      for (const entries of [
        [{ name: "dir/file", content: "x" }],
        [{ name: "dir", content: "x" }],
        [{ name: "is-directory", content: "x" }],
        [{ name: "is-directory", type: "2", linkName: outside }],
      ]) {
        const failure = await failureOf(
          workspaces.import("planted", makeTar([{ name: "a-first", content: "" }, ...entries])),
        );
        expect(failure).toMatchObject({ code: "FAILED_PRECONDITION", reason: "FILE_KIND" });
      }
      expect(await readdir(outside)).toEqual([]);
      expect((await readdir(where)).toSorted()).toEqual(["dir", "is-directory"]);
      await rm(outside, { recursive: true });
    });

    test.each([
      ["a way out", [{ name: "../escaped", content: "x" }]],
      ["an absolute name", [{ name: "/tmp/escaped", content: "x" }]],
      [
        "a file below a link",
        [
          { name: "l", type: "2", linkName: "/tmp" },
          { name: "l/escaped", content: "x" },
        ],
      ],
      ["a hard link out", [{ name: "h", type: "1", linkName: "/etc/passwd" }]],
      ["a device", [{ name: "d", type: "3" }]],
      ["a FIFO", [{ name: "f", type: "6" }]],
    ])("with %s is refused, and leaves nothing", async (_, bad) => {
      const { path: where } = await workspaces.create("refused");
      const tar = makeTar([{ name: "good", content: "x" }, ...bad]);
      const failure = await failureOf(workspaces.import("refused", tar));
      expect(failure).toMatchObject({ code: "INVALID_ARGUMENT", reason: "ARCHIVE_REJECTED" });
      expect(await readdir(where)).toEqual([]);
      expect(await staging()).toEqual([]);
    });

    test("that is not a tar, breaks off or has no header is refused", async () => {
      for (const tar of [
        Buffer.from("no tar at all"),
        makeTar([{ name: "f", content: "x".repeat(2000) }]).subarray(0, 900),
      ]) {
        expect((await failureOf(workspaces.import("broken", tar))).reason).toBe("ARCHIVE_REJECTED");
      }
      const headless = service.client.upload("WorkspaceService/ImportWorkspace", [
        { chunk: Buffer.from("x") },
      ]);
      expect((await failureOf(headless)).code).toBe("INVALID_ARGUMENT");
      expect(await staging()).toEqual([]);
    });
  });

  test("an export leaves FIFOs out, and an import takes it", async () => {
    const id = await workspaces.sandbox("fifos");
    await service.client.output(id, "echo kept > file; ln file hard; mkfifo fifo; ln fifo linked");
    const tar = await workspaces.export("fifos");
    expect(await entriesOf(tar)).toMatchObject({ file: expect.any(String), hard: expect.any(String) });
    expect(Object.keys(await entriesOf(tar)).toSorted()).toEqual(["file", "hard"]);
    const { workspace } = await workspaces.import("fifos-again", tar);
    expect((await readdir(workspace.path)).toSorted()).toEqual(["file", "hard"]);
  });

  test("an export reads files that only their owner may read, and leaves sockets out", async () => {
    const id = await workspaces.sandbox("closed");
    await service.client.output(
      id,
      "umask 077; mkdir dir; echo secret > dir/file; chmod 0 dir/file dir; python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"s\")'",
    );
    expect(await entriesOf(await workspaces.export("closed"))).toEqual({
      "dir/": "directory",
      "dir/file": "secret\n",
    });
  });

  test("an export whose reader leaves ends", async () => {
    const { path: where } = await workspaces.create("large");
    await writeFile(path.join(where, "file"), Buffer.alloc(64 * 1024 * 1024));
    await chmod(path.join(where, "file"), 0o644);
    const call = service.client.stream("WorkspaceService/ExportWorkspace", { workspace_id: "large" });
    call.on("error", () => {});
    await new Promise((resolve) => call.once("data", resolve));
    call.cancel();
    // Nothing holds the directory any more.
    await workspaces.cleanup("large", { force: true });
    await expect(stat(where)).rejects.toThrow("ENOENT");
  });
});
