import { existsSync, readdirSync, unlinkSync } from "node:fs";
import {
  chmod,
  chown,
  lstat,
  mkdir,
  readdir,
  readFile,
  readlink,
  rm,
  symlink,
  utimes,
  writeFile,
} from "node:fs/promises";
import path from "node:path";
import { describe, expect, onTestFinished, test } from "vitest";
import { TemporaryNames } from "../../../src/files/temporary-names.ts";
import { startTestApp, useApp } from "../../support/app.ts";
import { CALM, CHANGE_TREE, SWAPPED_FILES, swapTree } from "../../support/busy-tree.ts";
import { failureOf } from "../../support/client.ts";
import { ENGINES, testsInTurn } from "../../support/engines.ts";
import { eventually } from "../../support/eventually.ts";
import { holdTarsOnce } from "../../support/host-tools.ts";
import { manyNames } from "../../support/many-names.ts";
import { scaled } from "../../support/scale.ts";
import { newDataDir } from "../../support/settings.ts";
import { makeTar } from "../../support/tar-builder.ts";
import { WorkspaceClient } from "../../support/workspaces.ts";

const TIB = 2 ** 40;
/** Takes some tenths of a second to copy. */
const MANY = 20_000;
const TIMES = scaled(100, 10);
/** A fork takes seconds while a sandbox constantly swaps directories. */
const SWAPS = scaled(100, 4);

describe.each(ENGINES)("on $name", ({ name, settings }) => {
  const it = testsInTurn(name);
  const dataDir = newDataDir();
  const service = useApp({ ...settings, dataDir });
  const workspaces = new WorkspaceClient(() => service.client);
  const staging = () => readdir(path.join(dataDir, "workspaces", ".staging"));
  const ids = async () => (await workspaces.list()).workspaces.map(({ workspace_id: id }) => id);

  /** A workspace whose copy takes a while. */
  async function slow(id: string): Promise<string> {
    const sandbox = await workspaces.sandbox(id);
    await service.client.output(sandbox, `mkdir many; cd many; ${manyNames(MANY)}`);
    await workspaces.stop(id);
    return (await workspaces.get(id)).path;
  }
  /** Waits until the first of its many files have been copied, and stops the copy there. */
  const copying = () => {
    const staged = path.join(dataDir, "workspaces", ".staging");
    const hasBegun = () =>
      readdirSync(staged).some(
        (name) => name.startsWith("fork-") && existsSync(path.join(staged, name, "tree/many")),
      );
    return holdTarsOnce(hasBegun, path.join(dataDir, "workspaces"));
  };

  test("a fork has all files of its source, and nothing else", async () => {
    const { path: from } = await workspaces.create("source");
    const at = (name: string) => path.join(from, name);
    await mkdir(at("dir"));
    await writeFile(at("dir/file"), "content");
    await chmod(at("dir/file"), 0o6751);
    await utimes(at("dir/file"), 1_000_000_000.25, 1_000_000_000.25);
    await chmod(at("dir"), 0o1510);
    await utimes(at("dir"), 1_100_000_000, 1_100_000_000);
    await symlink("/etc/passwd", at("out"));
    await symlink("../../..", at("up"));
    await symlink("nowhere", at("dangling"));
    await writeFile(Buffer.concat([Buffer.from(`${from}/`), Buffer.from([0xff, 0x0a, 0x22])]), "bytes");
    const sandbox = await workspaces.sandbox("source");
    await service.client.output(
      sandbox,
      `mkfifo pipe; echo x >hard; ln hard linked; truncate -s 1T holes; printf end >>holes
       python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("socket")'; echo hidden >'.hidden'`,
    );
    if (process.getuid?.() === 0) await chown(at("dir/file"), 4711, 4712);
    await chmod(at("dir/file"), 0o6751);
    // A write in progress.
    const temporary = new TemporaryNames(service.instance).next();
    await writeFile(at(temporary), "half");
    await workspaces.addRef("source", "trace");
    const before = await workspaces.get("source");
    const fork = await workspaces.fork("source", "fork");
    expect(fork).toMatchObject({ workspace_id: "fork", trace_refs: [], sandbox_id: "" });
    expect(fork.size_bytes).toBeGreaterThan(0);
    const names = async (directory: string) =>
      (await readdir(directory, { encoding: "buffer" })).map((name) => name.toString("hex")).sort();
    const hex = (name: string) => Buffer.from(name).toString("hex");
    expect(await names(fork.path)).toEqual(
      (await names(from)).filter((name) => ![hex("socket"), hex(temporary)].includes(name)),
    );
    for (const name of ["", "dir", "dir/file", "out", "up", "dangling", "pipe", "hard", "holes", ".hidden"]) {
      const [one, other] = [await lstat(at(name)), await lstat(path.join(fork.path, name))];
      const told = ({ mode, uid, gid, size, mtimeMs }: typeof one) =>
        one.isDirectory() ? [mode, uid, gid] : [mode, uid, gid, size, mtimeMs];
      expect([name, ...told(other)]).toEqual([name, ...told(one)]);
    }
    expect((await lstat(path.join(fork.path, "dir"))).mtimeMs).toBe(1_100_000_000_000);
    expect(await readlink(path.join(fork.path, "out"))).toBe("/etc/passwd");
    expect(await readlink(path.join(fork.path, "up"))).toBe("../../..");
    expect(await readFile(path.join(fork.path, "dir/file"), "utf8")).toBe("content");
    const [hard, linked] = [
      await lstat(path.join(fork.path, "hard")),
      await lstat(path.join(fork.path, "linked")),
    ];
    expect([hard.ino, hard.nlink]).toEqual([linked.ino, 2]);
    expect(hard.ino).not.toBe((await lstat(at("hard"))).ino);
    const holes = await lstat(path.join(fork.path, "holes"));
    expect(holes.size).toBe(TIB + 3);
    expect(holes.blocks * 512).toBeLessThan(2 ** 20);
    // Changes in one are not visible in the other.
    const other = await workspaces.sandbox("fork");
    expect(await service.client.output(other, "cat hard; echo more >>hard; rm out; echo $?")).toBe("x\n0\n");
    expect(await service.client.output(sandbox, "cat hard; readlink out")).toBe("x\n/etc/passwd\n");
    const { trace_refs, sandbox_id, update_time } = before;
    expect(await workspaces.get("source")).toMatchObject({ trace_refs, sandbox_id, update_time });
    expect(await staging()).toEqual([]);
  });

  it("of an empty workspace is empty; of a missing workspace, or to an existing one, it fails", async () => {
    await workspaces.create("empty");
    expect(await readdir((await workspaces.fork("empty", "of nothing")).path)).toEqual([]);
    expect((await lstat((await workspaces.get("of nothing")).path)).mode & 0o7777).toBe(0o777);
    expect(await failureOf(workspaces.fork("unknown", "new"))).toMatchObject({
      code: "NOT_FOUND",
      reason: "WORKSPACE_NOT_FOUND",
      metadata: { workspace_id: "unknown" },
    });
    for (const taken of ["of nothing", "empty"]) {
      expect(await failureOf(workspaces.fork("empty", taken))).toMatchObject({
        code: "ALREADY_EXISTS",
        reason: "WORKSPACE_EXISTS",
        metadata: { workspace_id: taken },
      });
    }
    for (const [source, target] of [
      ["", "new"],
      ["empty", ""],
      ["empty", "a\nb"],
    ] as const) {
      expect((await failureOf(workspaces.fork(source, target))).code).toBe("INVALID_ARGUMENT");
    }
    expect(await ids()).not.toContain("new");
  });

  it("if an unknown object is in its place, that stays", async () => {
    await workspaces.create("from");
    const { path: place } = await workspaces.create("stray");
    await workspaces.cleanup("stray", { force: true });
    await mkdir(place);
    await writeFile(path.join(place, "foreign"), "x");
    expect((await failureOf(workspaces.fork("from", "stray"))).reason).toBe("WORKSPACE_BROKEN");
    expect(await readdir(place)).toEqual(["foreign"]);
    expect((await failureOf(workspaces.get("stray"))).reason).toBe("WORKSPACE_NOT_FOUND");
    await rm(place, { recursive: true });
  });

  it("with a request id it is made once, also for concurrent callers", async () => {
    await workspaces.import("one", makeTar([{ name: "file", content: "first" }]));
    const request = { request_id: "fork-once" };
    const [first, second] = await Promise.all([1, 2].map(() => workspaces.fork("one", "once", request)));
    expect(second).toEqual(first);
    await workspaces.cleanup("once", { force: true });
    expect(await workspaces.fork("one", "once", request)).toEqual(first);
    expect(await ids()).not.toContain("once");
    expect((await failureOf(workspaces.fork("one", "twice", request))).reason).toBe("REQUEST_ID_REUSED");
    // Without a request id, one of two concurrent forks is first.
    const ends = await Promise.allSettled([1, 2].map(() => workspaces.fork("one", "raced")));
    expect(ends.map(({ status }) => status).sort()).toEqual(["fulfilled", "rejected"]);
  });

  it("a source that changes all the time is copied every time, whole where it does not change", async () => {
    const id = await workspaces.sandbox("busy");
    const change = service.client.exec(id, CHANGE_TREE);
    await change.until("ready");
    onTestFinished(async () => {
      await service.client.output(id, "touch stop");
      await change.result;
    });
    for (let time = 0; time < TIMES; time++) {
      const { path: where } = await workspaces.fork("busy", `of busy ${time}`);
      expect(await readFile(path.join(where, "tree/calm/link"), "utf8")).toBe(CALM);
      await workspaces.cleanup(`of busy ${time}`, { force: true });
    }
  });

  test("a directory that a sandbox swaps for a link never leads out of the workspace", async () => {
    const secret = newDataDir();
    await mkdir(secret, { recursive: true });
    for (let i = 0; i < SWAPPED_FILES; i++) await writeFile(path.join(secret, `file-${i}`), "secret");
    const id = await workspaces.sandbox("swapping");
    const swap = service.client.exec(
      id,
      `mkdir pad; seq 500 | sed s,^,pad/, | xargs touch
${swapTree(secret)}`,
    );
    await swap.until("ready");
    onTestFinished(async () => {
      await service.client.output(id, "touch stop");
      await swap.result;
    });
    for (let time = 0; time < SWAPS; time++) {
      const { path: where } = await workspaces.fork("swapping", `of swapping ${time}`);
      for (const name of await readdir(where)) {
        const directory = path.join(where, name);
        if (!(await lstat(directory)).isDirectory()) continue;
        for (const file of await readdir(directory))
          expect(await readFile(path.join(directory, file), "utf8")).not.toContain("secret");
      }
      await workspaces.cleanup(`of swapping ${time}`, { force: true });
    }
  });

  it("a deep tree is copied up to the longest path, and a deeper one leaves nothing", async () => {
    const id = await workspaces.sandbox("deep");
    const dig = (levels: number) =>
      service.client.output(
        id,
        `python3 -c '
import os
for _ in range(${levels}):
    os.mkdir("d" * 99); os.chdir("d" * 99)
open("bottom", "w").write("deep")'`,
      );
    await dig(40);
    const { path: where } = await workspaces.fork("deep", "as deep");
    const other = await workspaces.sandbox("as deep");
    expect(where).not.toBe("");
    expect(await service.client.output(other, "find . -name bottom | wc -c")).toBe(`${2 + 40 * 100 + 7}\n`);
    await service.client.output(id, "rm -r *");
    await dig(60);
    expect(await failureOf(workspaces.fork("deep", "too deep"))).toMatchObject({
      code: "FAILED_PRECONDITION",
      reason: "UNSUPPORTED",
    });
    expect(await ids()).not.toContain("too deep");
    expect(await staging()).toEqual([]);
    // The host's tools have no limit on depth; those that clean up after tests do.
    for (const each of ["deep", "as deep"]) await workspaces.cleanup(each, { force: true });
  });

  it("a caller that leaves stops the copy, and nothing is left; an unfinished fork is not found", async () => {
    await slow("left");
    const leaving = new AbortController();
    const forked = failureOf(
      service.client.call(
        "WorkspaceService/ForkWorkspace",
        { source_workspace_id: "left", workspace_id: "half" },
        { signal: leaving.signal },
      ),
    );
    await copying();
    expect((await failureOf(workspaces.get("half"))).reason).toBe("WORKSPACE_NOT_FOUND");
    expect(await workspaces.list()).toMatchObject({ broken: [] });
    leaving.abort();
    expect((await forked).code).toBe("CANCELLED");
    // Another call that would create it waits until everything is gone.
    expect(await readdir((await workspaces.create("half")).path)).toEqual([]);
    await eventually(async () => (await staging()).length === 0);
  });

  it("files that vanish by the thousand are left out, and the others copied", async () => {
    const from = await slow("vanishing");
    await writeFile(path.join(from, "stays"), "here");
    const forked = workspaces.fork("vanishing", "of vanishing");
    const copy = await copying();
    for (let i = 1; i <= MANY; i++) unlinkSync(path.join(from, "many", `${i}`));
    copy.release();
    const { path: where } = await forked;
    expect((await readdir(path.join(where, "many"))).length).toBeLessThan(MANY);
    expect(await readFile(path.join(where, "stays"), "utf8")).toBe("here");
  });

  it("a source that is deleted or replaced during the copy leaves no partial fork", async () => {
    await slow("replaced");
    const forked = failureOf(workspaces.fork("replaced", "of replaced"));
    const replaced = await copying();
    await workspaces.import("replaced", makeTar([{ name: "only", content: "this" }]), { replace: true });
    replaced.release();
    expect(await forked).toMatchObject({ code: "FAILED_PRECONDITION", reason: "WORKSPACE_IN_USE" });

    await slow("going");
    const gone = failureOf(workspaces.fork("going", "of going"));
    const going = await copying();
    await workspaces.cleanup("going", { force: true });
    going.release();
    expect(await gone).toMatchObject({ code: "NOT_FOUND", reason: "WORKSPACE_NOT_FOUND" });
    expect((await ids()).filter((id) => id.startsWith("of r") || id.startsWith("of g"))).toEqual([]);
    expect(await staging()).toEqual([]);
  });

  it("past the quota nothing is copied", async () => {
    const bounded = await startTestApp({ ...settings, workspaceQuotaBytes: 2 ** 20 });
    try {
      const calls = new WorkspaceClient(() => bounded.client);
      const { path: where } = await calls.create("full");
      await writeFile(path.join(where, "file"), Buffer.alloc(2 * 2 ** 20, 1));
      expect(await failureOf(calls.fork("full", "as full"))).toMatchObject({
        code: "RESOURCE_EXHAUSTED",
        reason: "NO_SPACE",
        metadata: { quota_bytes: String(2 ** 20) },
      });
      await writeFile(path.join(where, "file"), Buffer.alloc(1000, 1));
      expect((await calls.fork("full", "as full")).over_quota).toBe(false);
    } finally {
      await bounded.stop();
    }
  });
});
