import { execFile } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { promisify } from "node:util";
import { expect, test } from "vitest";

const run = promisify(execFile);

/**
 * Runs a script on workspace directories on a separate file system, in its own mount namespace, so that the machine's
 * mounts stay as they are.
 */
async function onDisk(options: string, script: string): Promise<unknown> {
  const directory = await mkdtemp(path.join(tmpdir(), "berth-disk-"));
  const module = new URL("../../../../src/workspaces/host/directories.ts", import.meta.url).pathname;
  const program = `
    import { WorkspaceDirectories } from ${JSON.stringify(module)};
    import { execFileSync } from "node:child_process";
    const root = process.argv[1];
    const logger = { debug() {}, info() {}, warn() {}, error() {} };
    const files = new WorkspaceDirectories(
      { root: root + "/workspaces", sharedRoot: root + "/shared", dataDir: root + "/data", quotaBytes: undefined }, logger);
    const place = (workspaceId) => ({ owner: "default", workspaceId, number: 1 });
    const reasonOf = (work) => work.then(() => "none", (error) => error.reason + ": " + error.message);
    ${script}`;
  try {
    const { stdout } = await run("unshare", [
      ...["--mount", "--propagation", "private", "sh", "-c"],
      `mount -t tmpfs -o size=1m,${options} tmpfs "$1" && exec "$2" --input-type=module -e "$3" "$1"`,
      ...["sh", directory, process.execPath, program],
    ]);
    return JSON.parse(stdout);
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
}

test("a read-only root is reported as such", async () => {
  const said = await onDisk(
    "rw",
    `await files.prepare();
     await files.make(place("before"));
     execFileSync("mount", ["-o", "remount,ro", root]);
     console.log(JSON.stringify([
       await reasonOf(files.make(place("w"))),
       await reasonOf(files.discard(place("before"))),
       await reasonOf(files.problemOf(place("before"))),
     ]));`,
  );
  const readOnly = expect.stringMatching(/^WORKSPACE_BROKEN: .*read-only/);
  expect(said).toEqual([readOnly, readOnly, "none"]);
});

test("a full root accepts no import, and keeps its files", async () => {
  const said = await onDisk(
    "rw",
    `import { readdirSync, readFileSync, writeFileSync } from "node:fs";
     import { END_OF_TAR, encodeEntry } from ${JSON.stringify(new URL("../../../../src/files/tar/tar-writer.ts", import.meta.url).pathname)};
     await files.prepare();
     await files.make(place("w"));
     writeFileSync(files.pathOf(place("w")) + "/kept", "kept");
     const size = 2 * 1024 * 1024;
     const entry = { name: "large", kind: "file", linkName: "", mode: 0o644, uid: 0, gid: 0, modifyTime: 0, size,
       deviceMajor: 0, deviceMinor: 0 };
     async function* tar() { yield encodeEntry(entry, "pax"); yield Buffer.alloc(size, 1); yield END_OF_TAR; }
     const options = { admit: async () => {}, take: () => true, signal: new AbortController().signal };
     const reason = await reasonOf(files.stage(place("w"), tar(), options));
     console.log(JSON.stringify([reason, readdirSync(root + "/workspaces/.staging"),
       readFileSync(files.pathOf(place("w")) + "/kept", "utf8")]));`,
  );
  expect(said).toEqual([expect.stringMatching(/^NO_SPACE: .*full/), [], "kept"]);
});
