import { chmod, chown, mkdir, mkdtemp, rm, truncate, utimes, writeFile } from "node:fs/promises";
import path from "node:path";
import { describe, expect, onTestFinished, test } from "vitest";
import { TemporaryNames } from "../../../src/files/temporary-names.ts";
import { useApp } from "../../support/app.ts";
import { CHANGE_TREE, SWAPPED_FILES, swapTree } from "../../support/busy-tree.ts";
import { failureOf } from "../../support/client.ts";
import { ENGINES, testsInTurn } from "../../support/engines.ts";
import { manyNames } from "../../support/many-names.ts";
import { scaled } from "../../support/scale.ts";
import { newDataDir } from "../../support/settings.ts";
import type { WorkspaceChange } from "../../support/wire-workspaces.ts";
import { WorkspaceClient } from "../../support/workspaces.ts";

const TIB = 2 ** 40;
const TIMES = scaled(100, 10);
const MANY = scaled(100_000, 20_000);

/** In the form `MODIFIED CONTENT MODE dir/file`. */
function told({ type, path: where, differences }: WorkspaceChange): string {
  const word = (name: string, prefix: string) => name.slice(prefix.length);
  return [
    word(type, "WORKSPACE_CHANGE_TYPE_"),
    ...differences.map((each) => word(each, "WORKSPACE_DIFFERENCE_")),
    where,
  ].join(" ");
}

describe.each(ENGINES)("on $name", ({ name, settings }) => {
  const it = testsInTurn(name);
  const dataDir = newDataDir();
  const service = useApp({ ...settings, dataDir });
  const workspaces = new WorkspaceClient(() => service.client);
  const lines = async (base: string, id: string) => (await workspaces.diff(base, id)).changes.map(told);

  test("a fork does not differ from its source, until either changes", async () => {
    const { path: from } = await workspaces.create("source");
    const at = (name: string) => path.join(from, name);
    await mkdir(at("dir"));
    await writeFile(at("dir/file"), "content");
    // The sandbox's user may be another one.
    await chmod(at("dir"), 0o777);
    await chmod(at("dir/file"), 0o666);
    const sandbox = await workspaces.sandbox("source");
    await service.client.output(
      sandbox,
      `ln -s /etc/passwd out; mkfifo pipe; echo x >hard; ln hard linked; truncate -s 1T holes; printf end >>holes
       python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("socket")'; chmod 1751 .`,
    );
    const { path: to } = await workspaces.fork("source", "fork");
    const nothing = { added_count: 0, removed_count: 0, modified_count: 0 };
    expect(await workspaces.diff("source", "fork")).toMatchObject({ changes: [], summary: nothing });
    // A write in progress is not a change.
    await writeFile(path.join(to, new TemporaryNames(service.instance).next()), "half");
    expect(await lines("source", "fork")).toEqual([]);

    const other = await workspaces.sandbox("fork");
    await service.client.output(
      other,
      `rm hard; printf new >dir/new; mkdir dir/sub; printf END | dd of=holes bs=1 seek=1T conv=notrunc status=none
       rm pipe; mkdir pipe; ln -sf /etc/group out; chmod 600 linked; echo more >>dir/file`,
    );
    const { changes, summary } = await workspaces.diff("source", "fork");
    expect(changes.map(told)).toEqual([
      "MODIFIED CONTENT dir/file",
      "ADDED dir/new",
      "ADDED dir/sub",
      "REMOVED hard",
      "MODIFIED CONTENT holes",
      "MODIFIED MODE linked",
      "MODIFIED LINK_TARGET out",
      "MODIFIED KIND pipe",
    ]);
    expect(summary).toEqual({
      ...{ added_count: 2, removed_count: 1, modified_count: 5 },
      ...{ added_bytes: 3, removed_bytes: 2, modified_bytes: 12 + TIB + 3 },
    });
    const [file, added, , removed, , , out] = changes;
    expect(file).toMatchObject({ base_file: { size_bytes: 7 }, file: { size_bytes: 12, mode: 0o666 } });
    expect(added).toMatchObject({ base_file: null, file: { kind: "FILE_KIND_REGULAR", size_bytes: 3 } });
    expect(removed).toMatchObject({ base_file: { size_bytes: 2 }, file: null });
    expect(out?.file).toMatchObject({ kind: "FILE_KIND_SYMLINK", link_target: "/etc/group", size_bytes: 10 });
    // The reverse comparison is mirrored.
    expect(await lines("fork", "source")).toEqual(
      changes
        .map(told)
        .map((line) => line.replace(/^(ADDED|REMOVED)/, (word) => (word === "ADDED" ? "REMOVED" : "ADDED"))),
    );
  });

  it("files of the same size and modification time are compared by content", async () => {
    const [one, other] = [await workspaces.create("first"), await workspaces.create("second")];
    const large = Buffer.alloc(3 * 2 ** 20, "x");
    const changed = Buffer.from(large);
    changed[changed.length - 1] = 0;
    for (const [directory, content] of [
      [one.path, large],
      [other.path, changed],
    ] as const) {
      await writeFile(path.join(directory, "large"), content);
      await writeFile(path.join(directory, "same"), large);
      await utimes(path.join(directory, "large"), 1_000_000_000, 1_000_000_000);
    }
    // Different times are not a change.
    await utimes(path.join(one.path, "same"), 1, 1);
    expect(await lines("first", "second")).toEqual(["MODIFIED CONTENT large"]);
  });

  it("holes count as zeros, in either file; files of 8 TiB of holes take no time", async () => {
    const [one, other] = [await workspaces.create("holed"), await workspaces.create("filled")];
    const size = 8 * 2 ** 20;
    for (const { path: directory } of [one, other]) {
      await writeFile(path.join(directory, "empty"), "");
      await truncate(path.join(directory, "empty"), 8 * TIB);
    }
    await writeFile(path.join(one.path, "zeros"), "");
    await truncate(path.join(one.path, "zeros"), size);
    await writeFile(path.join(other.path, "zeros"), Buffer.alloc(size));
    await writeFile(path.join(one.path, "one"), "");
    await truncate(path.join(one.path, "one"), size);
    const content = Buffer.alloc(size);
    content[size - 1] = 1;
    await writeFile(path.join(other.path, "one"), content);
    expect(await lines("holed", "filled")).toEqual(["MODIFIED CONTENT one"]);
    expect(await lines("filled", "holed")).toEqual(["MODIFIED CONTENT one"]);
  });

  it("owners and modes", async () => {
    const [one, other] = [await workspaces.create("ours"), await workspaces.create("theirs")];
    for (const { path: directory } of [one, other]) {
      for (const name of ["mode", "owner"]) await writeFile(path.join(directory, name), "x");
    }
    await chmod(path.join(other.path, "mode"), 0o6755);
    const expected = ["MODIFIED MODE mode"];
    if (process.getuid?.() === 0) {
      await chown(path.join(other.path, "owner"), 0, 4712);
      expected.push("MODIFIED OWNER owner");
    }
    const { changes } = await workspaces.diff("ours", "theirs");
    expect(changes.map(told)).toEqual(expected);
    expect(changes[0]?.file?.mode).toBe(0o6755);
  });

  it("names of any bytes, in byte order, a directory before its entries", async () => {
    await workspaces.create("nothing");
    const { path: directory } = await workspaces.create("names");
    const names = ["a", "a/z", "a!", "a.b", "a0", "new\nline", "é"].map((name) => Buffer.from(name));
    names.push(Buffer.from([0xff, 0xfe]));
    await mkdir(path.join(directory, "a"));
    for (const name of names.slice(1)) {
      await writeFile(Buffer.concat([Buffer.from(`${directory}/`), name]), "x");
    }
    const { changes } = await workspaces.diff("nothing", "names");
    expect(changes.map(({ raw_path: raw }) => raw.toString("latin1"))).toEqual(
      names.map((name) => name.toString("latin1")),
    );
    expect(changes.map(told)).toEqual(
      names.map((name) => `ADDED ${name[0] === 0xff ? "\ufffd\ufffd" : name.toString()}`),
    );
  });

  it("a missing workspace, or the same twice", async () => {
    await workspaces.create("there");
    for (const [base, id] of [
      ["there", "unknown"],
      ["unknown", "there"],
      ["unknown", "unknown"],
    ] as const) {
      expect(await failureOf(workspaces.diff(base, id))).toMatchObject({
        code: "NOT_FOUND",
        reason: "WORKSPACE_NOT_FOUND",
        metadata: { workspace_id: "unknown" },
      });
    }
    for (const [base, id] of [
      ["", "there"],
      ["there", ""],
      ["there", "a\nb"],
    ] as const) {
      expect((await failureOf(workspaces.diff(base, id))).code).toBe("INVALID_ARGUMENT");
    }
    expect((await workspaces.diff("there", "there")).changes).toEqual([]);
    const broken = await workspaces.create("broken");
    await rm(broken.path, { recursive: true });
    expect(await failureOf(workspaces.diff("there", "broken"))).toMatchObject({
      code: "FAILED_PRECONDITION",
      reason: "WORKSPACE_BROKEN",
      metadata: { workspace_id: "broken" },
    });
  });

  it("a tree that changes all the time is compared every time, correctly where it does not change", async () => {
    const id = await workspaces.sandbox("busy");
    const change = service.client.exec(id, CHANGE_TREE);
    await change.until("ready");
    onTestFinished(async () => {
      await service.client.output(id, "touch stop");
      await change.result;
    });
    await workspaces.fork("busy", "of busy");
    for (let time = 0; time < TIMES; time++) {
      const calm = (await lines("of busy", "busy")).filter((line) => line.includes("tree/calm"));
      expect(calm).toEqual([]);
    }
  });

  test("a directory that a sandbox swaps for a link never leads out of the workspace", async () => {
    const secret = await mkdtemp(path.join(dataDir, "secret-"));
    const files = Array.from({ length: SWAPPED_FILES }, (_, index) => `file-${index}`);
    const { path: guess } = await workspaces.create("guess");
    await mkdir(path.join(guess, "real"));
    for (const name of files) {
      await writeFile(path.join(secret, name), "secret");
      await writeFile(path.join(guess, "real", name), "secret");
    }
    const id = await workspaces.sandbox("swapping");
    const swap = service.client.exec(id, swapTree(secret));
    await swap.until("ready");
    onTestFinished(async () => {
      await service.client.output(id, "touch stop");
      await swap.result;
    });
    for (let time = 0; time < TIMES; time++) {
      const { changes } = await workspaces.diff("guess", "swapping");
      const differ = new Set(changes.map(({ path: where }) => where));
      // Equal guesses would not be among the changes.
      for (const name of files) expect(differ).toContain(`real/${name}`);
    }
  });

  it("FIFOs and deep trees block nothing", async () => {
    const id = await workspaces.sandbox("deep");
    await service.client.output(
      id,
      `mkfifo fifo; python3 -c '
import os
for _ in range(1000):
    os.mkdir("d" * 99); os.chdir("d" * 99)
open("bottom", "w").write("deep")'`,
    );
    await workspaces.create("flat");
    const { changes } = await workspaces.diff("flat", "deep");
    expect(changes.length).toBe(1002);
    expect(changes[1000]?.raw_path.length).toBe(1000 * 100 + "bottom".length);
    // The host's tools have no limit on depth; those that clean up after tests do.
    await workspaces.cleanup("deep", { force: true });
  });

  test(`${MANY} entries arrive in parts, and a caller that leaves stops the work`, async () => {
    const id = await workspaces.sandbox("many");
    await service.client.output(id, manyNames(MANY));
    await workspaces.create("few");
    const { changes, summary } = await workspaces.diff("few", "many");
    expect([changes.length, summary.added_count]).toEqual([MANY, MANY]);
    const request = { base_workspace_id: "few", workspace_id: "many" };
    const stream = service.client.stream("WorkspaceService/DiffWorkspace", request);
    const left = failureOf(
      (async () => {
        for await (const { changes: part } of stream) {
          expect(part?.changes.length).toBeLessThanOrEqual(500);
          stream.cancel();
        }
      })(),
    );
    expect((await left).code).toBe("CANCELLED");
  });
});
