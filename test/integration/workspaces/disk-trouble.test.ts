import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { afterAll, beforeAll, expect, test } from "vitest";
import { Client, failureOf } from "../../support/client.ts";
import { ServeProcess } from "../../support/program.ts";
import { SmallDisk } from "../../support/small-disk.ts";
import { makeTar } from "../../support/tar-builder.ts";
import { directoryOf, WorkspaceClient } from "../../support/workspaces.ts";

const run = promisify(execFile);
const tar = makeTar([{ name: "file", content: Buffer.alloc(2 * 1024 * 1024, 1) }]);

// The workspaces root is on its own disk, everything else elsewhere.
let disk: SmallDisk;
let serve: ServeProcess;
let client: Client;
const workspaces = new WorkspaceClient(() => client);

beforeAll(async () => {
  disk = await SmallDisk.make(16);
  const args = ["--engine", "bubblewrap", "--workspaces-root", `${disk.path}/workspaces`];
  serve = await ServeProcess.start(args, {}, { within: disk.enter });
  client = new Client(serve.address);
});
afterAll(async () => {
  client?.close();
  await serve?.stop();
  await disk?.remove();
});

test("a full root: writes are refused, everything else works, and a cleanup frees space", async () => {
  const { workspace } = await workspaces.ensure("full");
  expect(workspace.path).toBe(directoryOf(`${disk.path}/workspaces`, "full"));
  const id = workspace.sandbox_id;
  // Uses up its inodes and its blocks.
  const fill = `echo kept > kept; python3 -c '
for i in range(100_000): open(str(i), "w").close()' 2> /dev/null || cat /dev/zero > 0 2> /dev/null || cat kept`;
  expect(await client.output(id, fill)).toBe("kept\n");
  const full = { code: "RESOURCE_EXHAUSTED", reason: "NO_SPACE" };
  for (const call of [
    () => workspaces.create("another"),
    () => workspaces.addRef("another", "trace"),
    () => workspaces.ensure("another"),
    () => workspaces.import("full", tar),
  ]) {
    const failure = await failureOf(call());
    expect(failure).toMatchObject(full);
    expect(failure.message).toContain("disk that holds the server's workspaces is full");
  }
  // The failed call left nothing behind, and calls that need no space succeed.
  expect((await failureOf(workspaces.get("another"))).reason).toBe("WORKSPACE_NOT_FOUND");
  expect((await workspaces.addRef("full", "trace")).trace_refs).toEqual(["trace"]);
  expect((await workspaces.get("full", { measure_size: true })).size_bytes).toBeGreaterThan(8 * 1024 * 1024);
  expect(await workspaces.ensure("full")).toMatchObject({ reused: true });
  expect((await workspaces.export("full")).includes("kept\n")).toBe(true);
  expect((await workspaces.list()).broken).toEqual([]);

  expect(await workspaces.cleanup("full", { force: true })).toMatchObject({ deleted: true });
  expect((await workspaces.import("another", tar)).entry_count).toBe(1);
});

test("a root that becomes read-only: files can be read, and a deletion is finished once it is writable", async () => {
  await workspaces.import("read", tar);
  const remount = (how: string) => {
    const [command = "", ...enter] = disk.enter;
    return run(command, [...enter, "mount", "-o", `remount,${how}`, disk.path]);
  };
  await remount("ro");
  try {
    for (const call of [
      () => workspaces.create("new"),
      () => workspaces.import("read", tar),
      () => workspaces.cleanup("read", { force: true }),
    ]) {
      const failure = await failureOf(call());
      expect(failure).toMatchObject({ code: "FAILED_PRECONDITION", reason: "WORKSPACE_BROKEN" });
      expect(failure.message).toContain("read-only");
    }
    expect((await failureOf(workspaces.get("new"))).reason).toBe("WORKSPACE_NOT_FOUND");
    expect((await workspaces.export("another")).length).toBeGreaterThan(2 * 1024 * 1024);
    const { broken } = await workspaces.list();
    expect(broken).toMatchObject([{ workspace_id: "read", message: expect.stringContaining("read-only") }]);
  } finally {
    await remount("rw");
  }
  expect(await workspaces.cleanup("read", { force: true })).toMatchObject({ deleted: true });
  expect((await workspaces.create("new")).trace_refs).toEqual([]);
});
