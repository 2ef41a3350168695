import { chown, lstat, mkdir, mkdtemp, readdir, readFile, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { Readable } from "node:stream";
import { afterAll, beforeAll, expect, test } from "vitest";
import { readTar } from "../../../src/files/tar/tar-reader.ts";
import { Client, failureOf } from "../../support/client.ts";
import { ORDINARY_ID, OrdinaryService } from "../../support/ordinary-user.ts";
import { makeTar } from "../../support/tar-builder.ts";
import { WorkspaceClient } from "../../support/workspaces.ts";

// A service that is not root: its workspaces belong to its user, and bubblewrap's sandboxes run as that user.
const DEPTH = 2_000;
let service: OrdinaryService;
let client: Client;
let outside = "";
const workspaces = new WorkspaceClient(() => client);

beforeAll(async () => {
  outside = await mkdtemp(path.join(tmpdir(), "berth-outside-"));
  // Only its owner's own permissions protect it.
  await chown(outside, ORDINARY_ID, ORDINARY_ID);
  await writeFile(path.join(outside, "precious"), "precious");
  await chown(path.join(outside, "precious"), ORDINARY_ID, ORDINARY_ID);
  service = await OrdinaryService.start();
  client = new Client(service.address);
});
afterAll(async () => {
  client?.close();
  await service?.stop();
  await rm(outside, { recursive: true, force: true });
});

async function kindsOf(tar: Buffer): Promise<Record<string, string>> {
  const kinds: Record<string, string> = {};
  for await (const item of readTar(Readable.from([tar]))) {
    if (item.type === "entry") kinds[item.entry.name] = item.entry.kind;
  }
  return kinds;
}

test("is created, written from a sandbox, measured, exported, imported and cleaned up", async () => {
  const { workspace, sandbox } = await workspaces.ensure("life");
  expect(sandbox?.state).toBe("SANDBOX_STATE_RUNNING");
  const id = workspace.sandbox_id;
  expect(await client.output(id, "mkdir dir; echo in > dir/file; echo all > /shared/note; id -u")).toBe(
    "1000\n",
  );
  expect(await readFile(path.join(workspace.path, "dir/file"), "utf8")).toBe("in\n");
  expect((await stat(path.join(workspace.path, "dir/file"))).uid).toBe(ORDINARY_ID);
  expect((await stat(path.dirname(workspace.path))).mode & 0o777).toBe(0o700);
  expect((await workspaces.get("life", { measure_size: true })).size_bytes).toBeGreaterThan(0);

  const tar = await workspaces.export("life");
  await workspaces.import("copy", tar);
  const other = await workspaces.sandbox("copy");
  expect(await client.output(other, "echo more >> dir/file; cat dir/file /shared/note")).toBe(
    "in\nmore\nall\n",
  );
  await workspaces.import("life", makeTar([{ name: "dir/new", content: "new" }]));
  expect(await client.output(id, "cat dir/file dir/new; echo mine >> dir/new")).toBe("in\nnew");
  await workspaces.stop("life");
  await workspaces.import("life", makeTar([{ name: "only", content: "this" }]), { replace: true });
  expect(await client.output(await workspaces.sandbox("life"), "ls; touch more")).toBe("only\n");
  expect(await workspaces.cleanup("life", { force: true })).toMatchObject({ deleted: true });
  await expect(stat(workspace.path)).rejects.toThrow("ENOENT");
});

test("is forked and compared, with files that a sandbox closed to its own user, and a closed top directory", async () => {
  const { workspace } = await workspaces.ensure("source");
  await client.output(
    workspace.sandbox_id,
    `mkdir closed; echo secret >closed/file; ln -s ${outside}/precious link; chmod 4711 closed/file; chmod 0 closed .`,
  );
  const fork = await workspaces.fork("source", "fork");
  const other = await workspaces.sandbox("fork");
  expect(
    await client.output(
      other,
      "chmod 700 /workspace; cd /workspace && chmod 700 closed; cat closed/file; stat -c '%a %u' closed/file; readlink link",
      { working_dir: "/" },
    ),
  ).toBe(`secret\n4711 1000\n${outside}/precious\n`);
  expect((await stat(fork.path)).uid).toBe(ORDINARY_ID);
  await client.output(other, "echo secreT >closed/file; chmod 0 closed/file closed .");
  const { changes } = await workspaces.diff("source", "fork");
  expect(changes.map(({ path: name, differences }) => [name, ...differences])).toEqual([
    ["closed/file", "WORKSPACE_DIFFERENCE_CONTENT", "WORKSPACE_DIFFERENCE_MODE"],
  ]);
  for (const id of ["fork", "source"]) await workspaces.cleanup(id, { force: true });
});

test("whatever a sandbox plants or closes to its own user is measured, exported and deleted", async () => {
  const { workspace } = await workspaces.ensure("hostile");
  await client.output(
    workspace.sandbox_id,
    `set -e
ln -s ${outside} link-to-directory; ln -s ${outside}/precious link-to-file; mkfifo fifo
cp /bin/sh set-user-id; chmod 6755 set-user-id
mkdir closed closed/below; echo secret > closed/below/file; chmod 0 closed/below/file closed/below closed
mkdir kept; touch kept/file; chmod 555 kept
mkdir deep
python3 -c '
import os
os.chdir("deep")
for i in range(${DEPTH}):
    os.mkdir("d"); os.chdir("d")'
chmod 0 .`,
  );
  const sized = workspaces.get("hostile", { measure_size: true }).then(({ size_bytes: size = 0 }) => size);
  await expect(sized).resolves.toBeGreaterThan(DEPTH * 4096);
  const kinds = await kindsOf(await workspaces.export("hostile"));
  expect(kinds).toMatchObject({
    "link-to-directory": "symlink",
    "closed/below/file": "file",
    "kept/file": "file",
  });
  expect((await lstat(path.join(workspace.path, "set-user-id"))).uid).toBe(ORDINARY_ID);
  // The next sandbox finds it unchanged.
  await workspaces.stop("hostile");
  const next = await workspaces.sandbox("hostile");
  const opened = "chmod 700 /workspace && ls -d /workspace/closed && chmod 0 /workspace";
  expect(await client.output(next, opened, { working_dir: "/" })).toBe("/workspace/closed\n");
  expect(await workspaces.cleanup("hostile", { force: true })).toMatchObject({ deleted: true });
  await expect(stat(workspace.path)).rejects.toThrow("ENOENT");
  expect(await readdir(path.join(path.dirname(workspace.path), ".trash"))).toEqual([]);
  expect(await readdir(outside)).toEqual(["precious"]);
});

test("an import into a directory that a sandbox closed says so, and one that replaces it succeeds", async () => {
  const id = await workspaces.sandbox("closed");
  await client.output(id, "mkdir dir; chmod 555 dir");
  const tar = makeTar([{ name: "dir/file", content: "x" }]);
  expect(await failureOf(workspaces.import("closed", tar))).toMatchObject({
    code: "PERMISSION_DENIED",
    reason: "FILE_PERMISSION",
  });
  await client.output(id, "chmod 0 .");
  expect((await failureOf(workspaces.import("closed", tar))).message).toContain("chmod u+rwx");
  await workspaces.stop("closed");
  await workspaces.import("closed", tar, { replace: true });
  expect(await client.output(await workspaces.sandbox("closed"), "cat dir/file")).toBe("x");
});

test("files of another user, which it may neither read nor delete, are reported, and hide nothing", async () => {
  const { path: where } = await workspaces.create("foreign");
  const theirs = path.join(where, "theirs");
  await mkdir(theirs, { mode: 0o700 });
  await writeFile(path.join(theirs, "file"), "");
  const broken = { code: "FAILED_PRECONDITION", reason: "WORKSPACE_BROKEN" };
  for (const call of [
    () => workspaces.get("foreign", { measure_size: true }),
    () => workspaces.export("foreign"),
    () => workspaces.cleanup("foreign", { force: true }),
  ]) {
    const failure = await failureOf(call());
    expect(failure).toMatchObject(broken);
    expect(failure.message).toMatch(/theirs.*Permission denied.*run the server as root/);
  }
  // It is being deleted, and listed until it is gone.
  expect((await failureOf(workspaces.get("foreign"))).reason).toBe("WORKSPACE_NOT_FOUND");
  expect((await workspaces.list()).broken).toEqual([
    { workspace_id: "foreign", path: where, message: expect.stringContaining("its deletion failed") },
  ]);
  const trash = path.join(path.dirname(where), ".trash");
  const [left = ""] = await readdir(trash);
  await rm(path.join(trash, left, "theirs"), { recursive: true });
  expect(await workspaces.cleanup("foreign", { force: true })).toMatchObject({ deleted: true });
  expect((await workspaces.list()).broken).toEqual([]);
  expect((await workspaces.create("foreign")).trace_refs).toEqual([]);
});
