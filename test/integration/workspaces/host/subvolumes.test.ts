import { execFile } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { promisify } from "node:util";
import { expect, test } from "vitest";

const run = promisify(execFile);
const MIB = 1024 * 1024;

test("btrfs subvolumes, which a sandbox can make, are measured, exported and deleted; the operator's mounts are not", async () => {
  const directory = await mkdtemp(path.join(tmpdir(), "berth-btrfs-"));
  const module = new URL("../../../../src/workspaces/host/directories.ts", import.meta.url).pathname;
  const program = `
    import { execFileSync } from "node:child_process";
    import { existsSync, mkdirSync, writeFileSync } from "node:fs";
    import { WorkspaceDirectories } from ${JSON.stringify(module)};
    const root = process.argv[1];
    const logger = { debug() {}, info() {}, warn() {}, error() {} };
    const files = new WorkspaceDirectories(
      { root: root + "/workspaces", sharedRoot: root + "/shared", dataDir: root + "/data", quotaBytes: undefined }, logger);
    const place = (workspaceId, number) => ({ owner: "default", workspaceId, number });
    const exported = async (name) => {
      const chunks = [];
      for await (const chunk of files.export(name, () => false, new AbortController().signal)) chunks.push(chunk);
      return execFileSync("tar", ["-t"], { input: Buffer.concat(chunks) }).toString().split("\\n").sort();
    };
    await files.prepare();
    const [split, mounted] = [place("split", 1), place("mounted", 2)];
    for (const name of [split, mounted]) await files.make(name);
    // As a user that a sandbox could have.
    const made = "btrfs subvolume create a && mkdir a/b && btrfs subvolume create a/b/c && " +
      "head -c 3M /dev/urandom >a/b/c/file && ln -s /etc a/b/c/link";
    execFileSync("setpriv", ["--reuid=1000", "--clear-groups", "sh", "-c", made], { cwd: files.pathOf(split) });
    const bytes = await files.measure(split);
    const entries = await exported(split);
    await files.discard(split);

    mkdirSync(files.pathOf(mounted) + "/disk");
    execFileSync("mount", ["-t", "tmpfs", "tmpfs", files.pathOf(mounted) + "/disk"]);
    writeFileSync(files.pathOf(mounted) + "/disk/precious", "");
    const outside = await exported(mounted);
    await files.discard(mounted).catch(() => {});
    const [kept] = execFileSync("find", [root + "/workspaces", "-name", "precious"]).toString().split("\\n");
    console.log(JSON.stringify({ bytes, entries, left: existsSync(files.pathOf(split)), outside, kept }));`;
  // The disk is a file in this mount namespace. Both are removed with it.
  const script = `set -e
    truncate -s 256M "$1/image" && mkdir "$1/disk"
    mkfs.btrfs -q "$1/image" >/dev/null && mount -o loop "$1/image" "$1/disk"
    chmod 711 "$1" "$1/disk"
    exec "$2" --input-type=module -e "$3" "$1/disk"`;
  try {
    const { stdout } = await run(
      "unshare",
      [
        ...["--mount", "--propagation", "private", "sh", "-c", script],
        ...["sh", directory, process.execPath, program],
      ],
      { env: { ...process.env, PATH: `${process.env.PATH}:/usr/sbin:/sbin` } },
    );
    const said = JSON.parse(stdout);
    expect(said.bytes).toBeGreaterThanOrEqual(3 * MIB);
    expect(said.entries).toEqual(["", "a/", "a/b/", "a/b/c/", "a/b/c/file", "a/b/c/link"]);
    expect(said.left).toBe(false);
    expect(said.outside).toEqual(["", "disk/"]);
    expect(said.kept).toContain("/disk/precious");
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
});
