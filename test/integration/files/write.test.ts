import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { codePoint } from "../../support/code-point.ts";
import { IMAGES, refusal, useFileBench } from "./file-bench.ts";

const EVERY_BYTE = Buffer.from(Array.from({ length: 256 }, (_, index) => index));

describe.each(IMAGES)("$title", ({ spec }) => {
  const bench = useFileBench(spec);
  const owner = spec.user === undefined ? { uid: 0, gid: 0 } : { uid: 1000, gid: 1000 };

  test("a new file has the content, mode 0644 and the sandbox's user", async () => {
    const info = await bench().write("new", EVERY_BYTE);
    expect(info).toMatchObject({ kind: "REGULAR", sizeBytes: 256, mode: 0o644, ...owner });
    expect(await bench().content("/workspace/new")).toEqual(EVERY_BYTE);
    expect((await bench().stat("new")).info).toEqual(info);
  });

  test.each([0, 1, 5_000, 24 * 1024, 24 * 1024 + 1, 100_000, 8 * 1024 * 1024])(
    "%i bytes of every kind are written and read exactly",
    async (size) => {
      const data = Buffer.alloc(size, EVERY_BYTE);
      expect((await bench().write("sized", data)).sizeBytes).toBe(size);
      const part = await bench().read("sized");
      expect(part.data.equals(data)).toBe(true);
      expect(part).toMatchObject({ endOfFile: true, info: { sizeBytes: size } });
    },
  );

  test("any content is read back unchanged", async () => {
    const content = fc.oneof(
      fc.uint8Array({ maxLength: 2_000 }).map((bytes) => Buffer.from(bytes)),
      fc.string({ unit: codePoint, maxLength: 500 }).map((text) => Buffer.from(text.toWellFormed())),
      fc
        .constantFrom("-n", "--", "%s", "\\c", "'", "\n\n", "\r\n", "\\0", "$(id)")
        .map((text) => Buffer.from(text)),
    );
    await fc.assert(
      fc.asyncProperty(content, async (data) => {
        await bench().write("any", data);
        expect((await bench().read("any")).data).toEqual(data);
      }),
      { numRuns: 40 },
    );
  });

  test.each([10, 50_000])("a replaced file of %i bytes keeps its mode, unless one is given", async (size) => {
    await bench().write("kept", "old", { mode: 0o4700 });
    expect((await bench().stat("kept")).info.mode).toBe(0o4700);
    expect((await bench().write("kept", Buffer.alloc(size))).mode).toBe(0o4700);
    expect((await bench().write("kept", Buffer.alloc(size), { mode: 0o604 })).mode).toBe(0o604);
  });

  test("a reader of the old content is not disturbed: it is another file", async () => {
    await bench().write("atomic", "old");
    const before = (await bench().stat("atomic")).info.inode;
    expect((await bench().write("atomic", "new")).inode).not.toBe(before);
  });

  test("content is appended at the end, and creates a missing file", async () => {
    await bench().write("log", "one\n", { append: true });
    await bench().write("log", Buffer.alloc(60_000, "x"), { append: true });
    const info = await bench().write("log", "\0three", { append: true, mode: 0o600 });
    expect(info).toMatchObject({ sizeBytes: 60_010, mode: 0o600 });
    const { data } = await bench().read("log");
    expect(
      data.equals(Buffer.concat([Buffer.from("one\n"), Buffer.alloc(60_000, "x"), Buffer.from("\0three")])),
    ).toBe(true);
  });

  test("parents are created with mode 0755 on request", async () => {
    expect(await refusal(bench().write("deep/er/file", "x"))).toMatchObject({ reason: "FILE_NOT_FOUND" });
    await bench().write("deep/er/file", "x", { createParents: true, mode: 0o600 });
    expect((await bench().stat("deep/er")).info).toMatchObject({ kind: "DIRECTORY", mode: 0o755, ...owner });
    await bench().write("deep/er/log", "x", { createParents: true, append: true });
  });

  test("through a link, its target is written, existing or not", async () => {
    await bench().sh(
      "cd /workspace; mkdir elsewhere; chmod 777 elsewhere; ln -s elsewhere/real link; ln -s missing/real lost; ln -s around around",
    );
    await bench().write("link", "first");
    expect(await bench().content("/workspace/elsewhere/real")).toEqual(Buffer.from("first"));
    await bench().write("link", Buffer.alloc(50_000, "b"));
    await bench().write("link", "end", { append: true });
    expect((await bench().stat("link")).info.kind).toBe("SYMLINK");
    expect((await bench().stat("elsewhere/real")).info.sizeBytes).toBe(50_003);
    for (const path of ["lost", "around"]) {
      expect(await refusal(bench().write(path, "x"))).toMatchObject({ reason: "FILE_NOT_FOUND" });
    }
  });

  test.each(["/etc/passwd/x", "/etc/passwd/x/y"])("below a file, %s, nothing is written", async (path) => {
    expect(await refusal(bench().write(path, "x"))).toMatchObject({ reason: "FILE_KIND" });
    expect(await refusal(bench().write(path, "x", { createParents: true }))).toMatchObject({
      reason: "FILE_KIND",
    });
  });

  test("without the user's permission, nothing is written", async () => {
    await bench().sh(
      "mkdir /closed; echo old >/closed/file; mkdir -m 777 /open; echo old >/open/file; chmod 444 /open/file",
    );
    const asUser = { user: "1000:1000" };
    for (const path of ["/closed/file", "/closed/new", "/open/file"]) {
      expect(await refusal(bench().write(path, "x", asUser))).toMatchObject({ reason: "FILE_PERMISSION" });
      const added = bench().write(path, "x", { ...asUser, append: true });
      expect(await refusal(added)).toMatchObject({ reason: "FILE_PERMISSION" });
    }
    const below = bench().write("/closed/new/file", "x", { ...asUser, createParents: true });
    expect(await refusal(below)).toMatchObject({ reason: "FILE_PERMISSION" });
    expect(await bench().sh("cat /closed/file /open/file; ls -A /closed /open | wc -l")).toEqual(
      Buffer.from("old\nold\n5\n"),
    );
    expect(await bench().write("/open/own", "x", asUser)).toMatchObject({ uid: 1000, gid: 1000 });
  });

  test("a full or read-only file system is reported as such", async () => {
    await bench().sh(
      "echo old >/dev/shm/file; chmod 666 /dev/shm/file; dd if=/dev/zero of=/dev/shm/fill bs=64k 2>/dev/null; true",
    );
    for (const data of ["x".repeat(5_000), Buffer.alloc(100_000)]) {
      expect(await refusal(bench().write("/dev/shm/file", data))).toMatchObject({ reason: "NO_SPACE" });
      expect(await refusal(bench().write("/dev/shm/new", data))).toMatchObject({ reason: "NO_SPACE" });
    }
    const added = bench().write("/dev/shm/file", Buffer.alloc(100_000), { append: true });
    expect(await refusal(added)).toMatchObject({ reason: "NO_SPACE" });
    const left = await bench().sh("ls -A /dev/shm; head -c 4 /dev/shm/file; rm -rf /dev/shm/*");
    expect(left.toString()).toBe("file\nfill\nold\n");
    expect(await refusal(bench().write("/sys/x", "x"))).toMatchObject({ reason: "FILE_PERMISSION" });
  });

  test("a mount point cannot be replaced, and keeps its content", async () => {
    const before = await bench().content("/etc/hostname");
    expect(await refusal(bench().write("/etc/hostname", "x", { user: "0" }))).toMatchObject({
      reason: "FILE_KIND",
    });
    expect(await bench().content("/etc/hostname")).toEqual(before);
  });
});

async function* only(chunk: Buffer): AsyncGenerator<Uint8Array> {
  yield chunk;
}

describe("what other users see", () => {
  const bench = useFileBench(IMAGES[0]?.spec ?? {});

  test("no process has short content in its arguments", async () => {
    const look = '#!/bin/sh\\ncat /proc/[0-9]*/cmdline >>/tmp/seen\\nexec /usr/bin/stat "$@"\\n';
    await bench().sh(`printf '${look}' >/usr/local/bin/stat; chmod +x /usr/local/bin/stat`);
    const secret = "correct horse battery staple";
    await bench().write("secret", secret, { mode: 0o600 });
    await bench().write("secret", secret, { append: true });
    await bench().upload("secret", only(Buffer.from(secret)), { mode: 0o600 });
    expect((await bench().read("secret")).data.toString()).toBe(secret);
    const seen = (await bench().sh("cat /tmp/seen")).toString();
    expect(seen).toContain("stat");
    expect(seen).not.toContain(secret);
  });
});
