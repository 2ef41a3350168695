import { randomBytes } from "node:crypto";
import { describe, expect, test } from "vitest";
import { TEST_IMAGE } from "../../support/images.ts";
import { scaled, shared } from "../../support/scale.ts";
import { gnuLong, makeTar, pax, type RawEntry } from "../../support/tar-builder.ts";
import { type FileBench, IMAGES, refusal, useFileBench } from "./file-bench.ts";

async function* chunked(bytes: Buffer, size = 10_000): AsyncGenerator<Buffer> {
  for (let at = 0; at < bytes.length; at += size) yield bytes.subarray(at, at + size);
}

async function bytesOf(chunks: AsyncIterable<Uint8Array>): Promise<Buffer> {
  const all: Uint8Array[] = [];
  for await (const chunk of chunks) all.push(chunk);
  return Buffer.concat(all);
}

function unpack(
  bench: FileBench,
  path: string,
  entries: readonly RawEntry[],
  more: { createParents?: boolean } = {},
) {
  return bench.uploadArchive(path, chunked(makeTar(entries)), more);
}

/** Everything below a directory: mode, kind and path. */
async function tree(bench: FileBench, path: string): Promise<string[]> {
  const text = (await bench.sh(`cd ${path} && find . -mindepth 1 -exec stat -c '%a %F %n' {} +`)).toString();
  return text.trim() === "" ? [] : text.trim().split("\n").sort();
}

/** Has Python, which reads archives. */
const judge = useFileBench({ image: TEST_IMAGE });

describe.each(IMAGES.map((image, index) => ({ ...image, index })))("$title", ({ spec, index }) => {
  const bench = useFileBench(spec);
  const owner = spec.user === undefined ? "0:0" : "1000:1000";

  describe("an upload", () => {
    test("unpacks files, directories and links, with modes and times, for the user", async () => {
      const content = randomBytes(100_000);
      const entries: RawEntry[] = [
        { name: "./", type: "5", mode: 0o700 },
        { name: "dir/", type: "5", mode: 0o750 },
        { name: "dir/file", content, mode: 0o640, mtime: 1_234_567_890 },
        pax({ mtime: "-86400.5" }),
        { name: "dir/suid", content: "s", mode: 0o6755 },
        { name: "dir/link", type: "2", linkName: "../dir/file" },
        { name: "absolute", type: "2", linkName: "/etc/passwd" },
        { name: "hard", type: "1", linkName: "dir/file" },
        { name: "listed/nowhere/x", content: "x" },
        { name: "-rf", content: "dash" },
        { name: Buffer.from([0xff, 0x0a, 0x27]), content: "bytes" },
        pax({ path: `${"long/".repeat(60)}pax` }),
        { name: "short", content: "pax" },
        gnuLong("L", `${"long/".repeat(60)}gnu`),
        { name: "short", content: "gnu" },
      ];
      await bench().makeDirectory("up");
      const done = await unpack(bench(), "up", entries);
      expect(done).toEqual({ entryCount: 12, sizeBytes: content.length + 1 + 1 + 4 + 5 + 3 + 3 });
      expect((await bench().read("up/dir/file")).data.equals(content)).toBe(true);
      expect((await bench().stat("up/dir/file")).info).toMatchObject({
        mode: 0o640,
        modifyTime: { seconds: 1_234_567_890 },
      });
      expect((await bench().stat("up/dir")).info.mode).toBe(0o750);
      expect((await bench().stat("up/dir/suid")).info).toMatchObject({
        mode: 0o755,
        modifyTime: { seconds: -86_401, nanos: 0 },
      });
      expect((await bench().stat("up/dir/link")).info.linkTarget).toBe("../dir/file");
      expect((await bench().stat("up/absolute")).info).toMatchObject({
        kind: "SYMLINK",
        linkTarget: "/etc/passwd",
      });
      expect((await bench().stat("up/hard")).info.inode).toBe((await bench().stat("up/dir/file")).info.inode);
      expect((await bench().read(Buffer.from([0x75, 0x70, 0x2f, 0xff, 0x0a, 0x27]))).data.toString()).toBe(
        "bytes",
      );
      expect((await bench().read(`up/${"long/".repeat(60)}pax`)).data.toString()).toBe("pax");
      expect((await bench().read(`up/${"long/".repeat(60)}gnu`)).data.toString()).toBe("gnu");
      expect((await bench().stat("up/listed/nowhere")).info.mode).toBe(0o755);
      const owners = await bench().sh("cd /workspace/up; find . -exec stat -c %u:%g {} + | sort -u");
      expect(owners.toString()).toBe(`${owner}\n`);
      expect((await bench().stat("up")).info.mode).toBe(0o755);
      expect((await bench().sh("ls -A /workspace/up")).toString()).not.toContain(".berth");
    });

    test("closed directories are filled, with their modes", async () => {
      await unpack(
        bench(),
        "closed",
        [
          { name: "ro/", type: "5", mode: 0o555 },
          { name: "ro/file", content: "x", mode: 0o444 },
          { name: "ro/sub/", type: "5", mode: 0o500 },
          { name: "ro/sub/deep", content: "y" },
          { name: "none/", type: "5", mode: 0o111 },
          { name: "none/file", content: "z" },
          { name: "late/file", content: "z", mode: 0o666 },
          { name: "late/", type: "5", mode: 0o1777 },
        ],
        { createParents: true },
      );
      expect(await tree(bench(), "/workspace/closed")).toEqual([
        "111 directory ./none",
        "1777 directory ./late",
        "444 regular file ./ro/file",
        "500 directory ./ro/sub",
        "555 directory ./ro",
        "644 regular file ./none/file",
        "644 regular file ./ro/sub/deep",
        "666 regular file ./late/file",
      ]);
    });

    test("replaces files of the same name and leaves other files and directories as they are", async () => {
      await bench().sh(
        "mkdir -p /workspace/merge/a/b; cd /workspace/merge; echo old >a/replaced; echo kept >a/kept; echo deep >a/b/kept; ln -s old a/link; ln -s /etc a/dirlink; chmod 700 a/b; chown -R 1000:1000 . 2>/dev/null; chmod 711 a",
      );
      if (spec.user === undefined) await bench().sh("chown -R 0:0 /workspace/merge");
      await unpack(bench(), "merge", [
        { name: "a/", type: "5", mode: 0o755 },
        { name: "a/replaced", content: "new" },
        { name: "a/b/added", content: "x" },
        { name: "a/link", type: "2", linkName: "new" },
        { name: "a/dirlink", type: "2", linkName: "/usr" },
        { name: "a/c/d/e", content: "tree" },
        { name: "top", content: "x" },
      ]);
      const text = (
        await bench().sh(
          "cd /workspace/merge; cat a/replaced a/kept a/b/kept a/b/added a/c/d/e; readlink a/link; readlink a/dirlink; stat -c %a a a/b; ls -A /etc/.berth* /usr/.berth* 2>/dev/null | wc -l",
        )
      ).toString();
      expect(text).toBe("newkept\ndeep\nxtreenew\n/usr\n711\n700\n0\n");
    });

    const clashes: readonly [string, readonly RawEntry[]][] = [
      ["a file over a directory", [{ name: "a/dir", content: "x" }]],
      ["a directory over a file", [{ name: "a/file/", type: "5" }]],
      ["something below a file", [{ name: "a/file/x", content: "x" }]],
      ["a file over a link", [{ name: "a/link", content: "x" }]],
      ["a file through a link", [{ name: "a/link/x", content: "x" }]],
      ["a link over a file", [{ name: "a/file", type: "2", linkName: "x" }]],
      ["a link over a directory", [{ name: "a/dir", type: "2", linkName: "x" }]],
      ["a file over a FIFO", [{ name: "a/fifo", content: "x" }]],
    ];
    test.each(shared(clashes, index, IMAGES.length))(
      "that would put %s is refused, and nothing is unpacked",
      async (_, entries) => {
        await bench().sh(
          "rm -rf /workspace/clash /outside; mkdir -p /workspace/clash/a/dir /outside; cd /workspace/clash; echo old >a/file; ln -s /outside a/link; mkfifo a/fifo; chmod -R 777 /outside .",
        );
        if (spec.user !== undefined) await bench().sh("chown -R 1000:1000 /workspace/clash");
        const before = await tree(bench(), "/workspace/clash");
        const error = await refusal(
          unpack(bench(), "clash", [
            { name: "a/first", content: "x" },
            ...entries,
            { name: "z", content: "x" },
          ]),
        );
        expect(error).toMatchObject({ reason: "FILE_KIND", message: expect.stringContaining("its entry") });
        expect(await tree(bench(), "/workspace/clash")).toEqual(before);
        expect(await tree(bench(), "/outside")).toEqual([]);
      },
    );

    const strays: readonly [string, readonly RawEntry[]][] = [
      ["an absolute name", [{ name: "/tmp/evil", content: "x" }]],
      ["an absolute name in a pax header", [pax({ path: "/tmp/evil" }), { name: "fine", content: "x" }]],
      ["..", [{ name: "../evil", content: "x" }]],
      [".. in a long name", [gnuLong("L", "a/../../evil"), { name: "fine", content: "x" }]],
      [
        "a link, then a file below it",
        [
          { name: "l", type: "2", linkName: "/tmp" },
          { name: "l/evil", content: "x" },
        ],
      ],
      [
        "a link, then a file of its name",
        [
          { name: "l", type: "2", linkName: "/tmp/evil" },
          { name: "l", content: "x" },
        ],
      ],
      ["a hard link to a file outside", [{ name: "h", type: "1", linkName: "/etc/passwd" }]],
      ["a hard link to what is not in the archive", [{ name: "h", type: "1", linkName: "victim" }]],
      ["a device", [{ name: "null", type: "3" }]],
      ["a FIFO", [{ name: "fifo", type: "6" }]],
      ["a kind that few tars know", [{ name: "sparse", type: "S" }]],
    ];
    test.each(shared(strays, index, IMAGES.length))("with %s is refused as a whole", async (_, entries) => {
      await bench().sh(
        "rm -rf /workspace/refused /tmp/evil; mkdir /workspace/refused; chmod 777 /workspace/refused; echo old >/workspace/refused/victim",
      );
      const error = await refusal(
        unpack(bench(), "refused", [
          { name: "first", content: "x" },
          ...entries,
          { name: "last", content: "x" },
        ]),
      );
      expect(error).toMatchObject({ reason: "ARCHIVE_REJECTED", metadata: { entry: expect.any(String) } });
      expect((await bench().list("refused")).entries.map(({ name }) => name)).toEqual(["victim"]);
      await bench().sh("[ ! -e /tmp/evil ] && [ ! -e /workspace/evil ]");
    });

    test.each([
      ["text", Buffer.from("this is not a tar".repeat(100))],
      ["gzip", Buffer.concat([Buffer.from([0x1f, 0x8b]), randomBytes(2000)])],
      ["nothing", Buffer.alloc(0)],
      ["half a tar", makeTar([{ name: "a", content: "x".repeat(5000) }]).subarray(0, 3000)],
    ])("of %s is refused", async (_, bytes) => {
      await bench().makeDirectory("notar", { createParents: true });
      expect(await refusal(bench().uploadArchive("notar", chunked(bytes)))).toMatchObject({
        reason: "ARCHIVE_REJECTED",
      });
      expect((await bench().list("notar")).entries).toEqual([]);
    });

    test("creates its directory only on request", async () => {
      const entries = [{ name: "x", content: "x" }];
      expect(await refusal(unpack(bench(), "new/dir", entries))).toMatchObject({ reason: "FILE_NOT_FOUND" });
      await unpack(bench(), "new/dir", entries, { createParents: true });
      expect((await bench().stat("new/dir")).info.mode).toBe(0o755);
      expect(await refusal(unpack(bench(), "/etc/passwd", entries, { createParents: true }))).toMatchObject({
        reason: "FILE_KIND",
      });
      const closed = bench().uploadArchive("/etc", chunked(makeTar(entries)), { user: "1000:1000" });
      expect(await refusal(closed)).toMatchObject({ reason: "FILE_PERMISSION" });
    });

    test("that the caller breaks off leaves nothing", async () => {
      await bench().makeDirectory("broken");
      const bytes = makeTar([
        { name: "d/", type: "5", mode: 0o555 },
        { name: "d/a", content: "x".repeat(50_000) },
        { name: "b" },
      ]);
      const call = new AbortController();
      async function* stuck(): AsyncGenerator<Buffer> {
        yield bytes.subarray(0, 40_000);
        call.abort();
        await new Promise(() => {});
      }
      expect(await refusal(bench().uploadArchive("broken", stuck(), { signal: call.signal }))).toMatchObject({
        reason: "CANCELED",
      });
      expect((await bench().list("broken")).entries).toEqual([]);
    });

    test("that runs out of space leaves nothing", async () => {
      await bench().sh(
        "mkdir -m 777 /dev/shm/full; dd if=/dev/zero of=/dev/shm/fill bs=1M count=60 2>/dev/null",
      );
      const entries = Array.from({ length: 8 }, (_, index) => ({
        name: `f${index}`,
        content: Buffer.alloc(1_000_000),
      }));
      expect(
        await refusal(bench().uploadArchive("/dev/shm/full", chunked(makeTar(entries), 500_000))),
      ).toMatchObject({ reason: "NO_SPACE" });
      expect((await bench().sh("ls -A /dev/shm/full; rm -rf /dev/shm/*")).toString()).toBe("");
    });
  });

  describe("a download", () => {
    const report = `
import tarfile, sys
with tarfile.open(sys.argv[1], errors="surrogateescape") as tar:
  for m in sorted(tar.getmembers(), key=lambda m: m.name):
    data = tar.extractfile(m).read() if m.isreg() else b""
    print(repr(m.name.encode("utf-8", "surrogateescape")), m.type.decode(), oct(m.mode), repr(m.linkname.encode("utf-8", "surrogateescape")), len(data), sum(data))
`;
    const listed = async (archive: Buffer): Promise<string[]> => {
      await judge().upload("/tmp/archive.tar", chunked(archive, 500_000));
      await judge().write("/tmp/report.py", report);
      return (await judge().sh("python3 /tmp/report.py /tmp/archive.tar")).toString().trim().split("\n");
    };

    test("holds everything below the directory, with names relative to it", async () => {
      const long = "n".repeat(120);
      await bench().sh(
        `mkdir -p /workspace/down/sub/${long}; cd /workspace/down; printf hello >file; chmod 4751 file; ln file hard; ln -s ../../etc link; mkfifo fifo; : >-dash; printf x >sub/${long}/${long}; ln -s ${long}/${long}${long} sub/longlink; chmod 711 sub; printf z >"$(printf '\\377\\n.')"`,
      );
      if (spec.user !== undefined)
        await bench().sh("chown -hR 1000:1000 /workspace/down; chmod 4751 /workspace/down/file");
      const found = await listed(await bytesOf(bench().downloadArchive("down")));
      const first = found.find((line) => line.startsWith("b'file'"))?.includes(" 1 ") ? "hard" : "file";
      const second = first === "hard" ? "file" : "hard";
      expect(found).toEqual(
        [
          `b'-dash' 0 0o644 b'' 0 0`,
          `b'fifo' 6 0o644 b'' 0 0`,
          `b'${first}' 0 0o4751 b'' 5 532`,
          `b'${second}' 1 0o4751 b'${first}' 0 0`,
          `b'link' 2 0o777 b'../../etc' 0 0`,
          `b'sub' 5 0o711 b'' 0 0`,
          `b'sub/longlink' 2 0o777 b'${long}/${long}${long}' 0 0`,
          `b'sub/${long}' 5 0o755 b'' 0 0`,
          `b'sub/${long}/${long}' 0 0o644 b'' 1 120`,
          `b'\\xff\\n.' 0 0o644 b'' 1 122`,
        ].sort((a, b) => (nameOf(a) < nameOf(b) ? -1 : 1)),
      );
    });

    test("of one file holds it under its own name, links followed", async () => {
      await bench().write("single", "content");
      await bench().sh("ln -s single /workspace/alias");
      expect(await listed(await bytesOf(bench().downloadArchive("single")))).toEqual([
        `b'single' 0 0o644 b'' 7 763`,
      ]);
      expect(await listed(await bytesOf(bench().downloadArchive("alias")))).toEqual([
        `b'alias' 0 0o644 b'' 7 763`,
      ]);
    });

    test("of an empty directory is an empty archive", async () => {
      await bench().makeDirectory("void");
      expect(await bytesOf(bench().downloadArchive("void"))).toEqual(Buffer.alloc(1024));
    });

    test("can be uploaded again, and gives the same tree", async () => {
      await bench().sh(
        "mkdir -p /workspace/origin/a/b; cd /workspace/origin; head -c 300000 /dev/urandom >a/data; ln -s a/data link; ln a/data a/b/hard; chmod 750 a; touch -d '2020-01-02 03:04:05' a/data",
      );
      if (spec.user !== undefined) await bench().sh("chown -hR 1000:1000 /workspace/origin");
      await bench().uploadArchive("copy", bench().downloadArchive("origin"), { createParents: true });
      const sums = async (path: string) =>
        (
          await bench().sh(
            `cd /workspace/${path}; find . -type f -exec sha256sum {} + | sort; find . -mindepth 1 -exec stat -c '%a %F %n' {} + | sort; stat -c %Y a/data; readlink link`,
          )
        ).toString();
      expect(await sums("copy")).toBe(await sums("origin"));
    });

    test.each([
      ["missing", "FILE_NOT_FOUND"],
      ["/dev/null", "FILE_KIND"],
      ["/etc/passwd/x", "FILE_KIND"],
    ])("of %s ends in %s", async (path, reason) => {
      expect(await refusal(bench().downloadArchive(path))).toMatchObject({ reason });
    });

    test("that may not read all of it fails", async () => {
      await bench().sh(
        "mkdir -p /partly/dir; echo x >/partly/dir/open; echo x >/partly/dir/closed; chmod 600 /partly/dir/closed",
      );
      const asUser = { user: "1000:1000" };
      expect(await refusal(bench().downloadArchive("/partly", asUser))).toMatchObject({
        reason: "FILE_PERMISSION",
      });
      await bench().sh("chmod 700 /partly");
      expect(await refusal(bench().downloadArchive("/partly", asUser))).toMatchObject({
        reason: "FILE_PERMISSION",
      });
    });
  });
});

describe("a flood of tiny entries", () => {
  const bench = useFileBench({ image: TEST_IMAGE });

  test("is refused at its first bad entry, or at the limit of entries, and leaves nothing", async () => {
    const block = makeTar([{ name: "tiny" }], Buffer.alloc(0));
    const blocks = Buffer.concat(Array.from({ length: 1000 }, () => block));
    const blockCount = scaled(1000, 10);
    let sent = 0;
    async function* flood(): AsyncGenerator<Buffer> {
      for (; sent < blockCount; sent++) yield blocks;
      yield makeTar([{ name: "../bad" }], Buffer.alloc(0));
    }
    const refused = await refusal(bench().uploadArchive(".", flood()));
    expect(refused.reason).toBe("ARCHIVE_REJECTED");
    expect(refused.message).toContain(blockCount === 1000 ? "500000 entries" : "bad");
    expect(sent).toBeLessThan(510);
    expect((await bench().list(".")).entries).toEqual([]);
  });
});

describe("in an image without tar", () => {
  const bench = useFileBench({ image: TEST_IMAGE });

  test("archives are refused with the tool's name", async () => {
    await bench().sh("rm $(command -v tar)");
    const missing = { reason: "UNSUPPORTED", metadata: { tool: "tar" } };
    expect(await refusal(bench().downloadArchive("."))).toMatchObject(missing);
    expect(await refusal(unpack(bench(), ".", [{ name: "x" }]))).toMatchObject(missing);
  });
});

function nameOf(line: string): string {
  return /^b'(.*?)' \d/.exec(line)?.[1]?.replace("\\xff", "\uffff") ?? "";
}
