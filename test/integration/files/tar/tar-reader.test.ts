import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import fc from "fast-check";
import { describe, expect, onTestFinished, test } from "vitest";
import type { PlainTarEntry, TarEntry } from "../../../../src/files/tar/tar-entry.ts";
import { readTar } from "../../../../src/files/tar/tar-reader.ts";
import { END_OF_TAR, encodeEntry, padding, type TarDialect } from "../../../../src/files/tar/tar-writer.ts";
import { gnuLong, makeTar, pax, type RawEntry } from "../../../support/tar-builder.ts";

async function* cut(bytes: Buffer, size: number): AsyncGenerator<Buffer> {
  for (let at = 0; at < bytes.length; at += size) yield bytes.subarray(at, at + size);
}

async function read(bytes: Buffer, size = 1000): Promise<{ entry: TarEntry; content: Buffer }[]> {
  const files: { entry: TarEntry; content: Buffer }[] = [];
  for await (const item of readTar(cut(bytes, size))) {
    const last = files.at(-1);
    if (item.type === "entry") files.push({ entry: item.entry, content: Buffer.alloc(0) });
    else if (last) last.content = Buffer.concat([last.content, item.data]);
  }
  return files;
}

async function names(...entries: RawEntry[]): Promise<string[]> {
  return (await read(makeTar(entries))).map(({ entry }) => entry.name);
}

const LONG = `${"d".repeat(150)}/${"f".repeat(150)}`;

describe("reads", () => {
  test("files, links, directories and devices with their metadata", async () => {
    const files = await read(
      makeTar([
        { name: "dir/", type: "5", mode: 0o755 },
        { name: "dir/file", content: "hello", mode: 0o4644, mtime: 1_234_567_890 },
        { name: "link", type: "2", linkName: "dir/file" },
        { name: "hard", type: "1", linkName: "dir/file", size: 5 },
        { name: "fifo", type: "6" },
        { name: "null", type: "3" },
        { name: "old-file", type: "\0", content: "x" },
        { name: "old-dir/", type: "\0" },
        { name: "contiguous", type: "7", content: "y" },
        { name: "strange", type: "S", content: "z" },
      ]),
    );
    expect(
      files.map(({ entry, content }) => [entry.name, entry.kind, entry.linkName, content.toString()]),
    ).toEqual([
      ["dir/", "directory", "", ""],
      ["dir/file", "file", "", "hello"],
      ["link", "symlink", "dir/file", ""],
      ["hard", "hard-link", "dir/file", ""],
      ["fifo", "fifo", "", ""],
      ["null", "character-device", "", ""],
      ["old-file", "file", "", "x"],
      ["old-dir/", "directory", "", ""],
      ["contiguous", "file", "", "y"],
      ["strange", "other", "", "z"],
    ]);
    expect(files[1]?.entry).toMatchObject({ mode: 0o4644, modifyTime: 1_234_567_890, uid: 1000, size: 5 });
  });

  test("long names of every dialect", async () => {
    expect(await names({ name: "file", prefix: "some/prefix" })).toEqual(["some/prefix/file"]);
    expect(await names(gnuLong("L", LONG), { name: "short" }, { name: "next" })).toEqual([LONG, "next"]);
    expect(await names(pax({ path: LONG }), { name: "short" }, { name: "next" })).toEqual([LONG, "next"]);
    expect(await names(pax({ path: Buffer.from([0xff, 0x0a, 0x3d]) }), { name: "short" })).toEqual([
      "\xff\n=",
    ]);
    const [link] = await read(makeTar([gnuLong("K", LONG), { name: "l", type: "2", linkName: "x" }]));
    expect(link?.entry.linkName).toBe(LONG);
  });

  test("a pax header's size before the header's own", async () => {
    const [file] = await read(makeTar([pax({ size: "3" }), { name: "f", content: "abc", size: 0 }]));
    expect(file?.content.toString()).toBe("abc");
  });

  test("global headers, whose comments are ignored and whose paths are refused", async () => {
    expect(await names(pax({ comment: "x" }, "g"), { name: "a" })).toEqual(["a"]);
    await expect(names(pax({ path: "x" }, "g"), { name: "a" })).rejects.toThrow("global header");
  });

  test("an archive without an end mark, and nothing after an end mark", async () => {
    expect(await read(makeTar([{ name: "a" }], Buffer.alloc(0)))).toHaveLength(1);
    expect(await read(makeTar([{ name: "a" }], Buffer.alloc(512)))).toHaveLength(1);
    expect(await read(Buffer.concat([makeTar([]), makeTar([{ name: "a" }])]))).toEqual([]);
  });
});

describe("refuses", () => {
  test.each([
    ["nothing", Buffer.alloc(0)],
    ["text", Buffer.from("hello".repeat(200))],
    ["a piece of a header", makeTar([{ name: "a" }]).subarray(0, 300)],
    ["a file that breaks off", makeTar([{ name: "a", content: "x".repeat(600) }]).subarray(0, 1100)],
    ["padding that breaks off", makeTar([{ name: "a", content: "x" }]).subarray(0, 600)],
    ["a name for nothing", makeTar([gnuLong("L", "x")])],
    ["far too much after its end", Buffer.concat([makeTar([{ name: "a" }]), Buffer.alloc(17 << 20, "x")])],
    ["a wrong checksum", Buffer.from(makeTar([{ name: "a" }]).fill("b", 0, 1))],
    ["a broken pax header", makeTar([{ name: "p", type: "x", content: "99 path=x\n" }, { name: "a" }])],
    ["a pax header without end", makeTar([{ name: "p", type: "x", content: "9 path=xy" }, { name: "a" }])],
    ["a huge pax header", makeTar([{ name: "p", type: "x", size: 8_000_000_000 }])],
    [
      "much before an entry, also with global headers between",
      makeTar([
        ...Array.from({ length: 3 }, (_, index) => [
          pax({ [`key${index}`]: "x".repeat(500_000) }),
          pax({}, "g"),
        ]).flat(),
        { name: "a" },
      ]),
    ],
    ["a size that is not a number", makeTar([pax({ size: "many" }), { name: "a" }])],
    ["a negative size", makeTar([pax({ size: "-5" }), { name: "a" }])],
  ])("%s", async (_, bytes) => {
    await expect(read(bytes)).rejects.toMatchObject({ reason: "ARCHIVE_REJECTED" });
  });
});

describe("the output of the writer", () => {
  const name = fc
    .oneof(
      fc.uint8Array({ minLength: 1, maxLength: 300 }).map((bytes) => Buffer.from(bytes).toString("latin1")),
      fc.integer({ min: 95, max: 105 }).map((length) => "n".repeat(length)),
    )
    .filter((text) => !/\0|\/$/.test(text));
  const number = (most: number) => fc.oneof(fc.nat(), fc.integer({ min: 0, max: most }));
  const entry: fc.Arbitrary<PlainTarEntry> = fc.record({
    name,
    kind: fc.constantFrom(
      "file",
      "hard-link",
      "symlink",
      "directory",
      "fifo",
      "character-device",
      "block-device",
    ),
    linkName: name,
    mode: fc.integer({ min: 0, max: 0o7777 }),
    uid: number(2 ** 31),
    gid: number(2 ** 31),
    modifyTime: fc.integer({ min: -(2 ** 40), max: 2 ** 40 }),
    size: fc.integer({ min: 0, max: 1500 }),
    deviceMajor: fc.integer({ min: 0, max: 4095 }),
    deviceMinor: number(2 ** 20),
  });

  test.each<TarDialect>(["pax", "gnu"])("in the %s dialect, the reader reads", async (dialect) => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(entry, { minLength: 1, maxLength: 5 }),
        fc.integer({ min: 1, max: 2000 }),
        async (given, size) => {
          const entries = given.map((each) => {
            const isLink = each.kind === "symlink" || each.kind === "hard-link";
            const isDevice = each.kind.endsWith("device");
            return {
              ...each,
              linkName: isLink ? each.linkName : "",
              size: each.kind === "file" ? each.size : 0,
              ...(!isDevice && { deviceMajor: 0, deviceMinor: 0 }),
            };
          });
          const bytes = Buffer.concat([
            ...entries.flatMap((each, index) => [
              encodeEntry(each, dialect),
              Buffer.alloc(each.size, index + 1),
              padding(each.size),
            ]),
            END_OF_TAR,
          ]);
          expect(bytes.length % 512).toBe(0);
          const files = await read(bytes, size);
          expect(files.map(({ entry: found }) => found)).toMatchObject(entries);
          files.forEach(({ content }, index) => {
            expect(content).toEqual(Buffer.alloc(entries[index]?.size ?? -1, index + 1));
          });
        },
      ),
    );
  });

  test("also of files larger than eight gigabytes", async () => {
    const large = {
      name: "l",
      kind: "file",
      linkName: "",
      mode: 0,
      uid: 0,
      gid: 0,
      modifyTime: 0,
      size: 2 ** 40,
      deviceMajor: 0,
      deviceMinor: 0,
    } as const;
    for (const dialect of ["pax", "gnu"] as const) {
      const first = await readTar(cut(encodeEntry(large, dialect), 512)).next();
      expect(first.value).toMatchObject({ entry: { size: 2 ** 40 } });
    }
  });
});

describe("files with holes", () => {
  const sh = (directory: string, line: string, input?: Buffer) =>
    execFileSync("/bin/sh", ["-c", line], { cwd: directory, ...(input && { input }) });
  /** A sparse file with 30 parts, more than fit into the first header blocks, and one that ends with a hole. */
  function holes(): string {
    const directory = mkdtempSync(path.join(tmpdir(), "berth-holes-"));
    onTestFinished(() => rmSync(directory, { recursive: true }));
    sh(
      directory,
      "for n in $(seq 1 30); do truncate -s ${n}M parts; printf 'part %s' $n >>parts; done; printf x >open; truncate -s 1T open; truncate -s 3M hole",
    );
    return directory;
  }

  test.each(["gnu", "posix"])("are read as GNU's tar writes them in its %s format", async (format) => {
    const directory = holes();
    const files = await read(sh(directory, `tar -cS --format=${format} -f - parts open hole`));
    expect(files.map(({ entry }) => [entry.name, entry.kind, entry.sparse?.realSize])).toEqual([
      ["parts", "file", statSync(path.join(directory, "parts")).size],
      ["open", "file", 2 ** 40],
      ["hole", "file", 3 * 2 ** 20],
    ]);
    const [parts, open, hole] = files;
    expect(parts?.entry.sparse?.segments.length).toBe(30);
    expect(parts?.content.includes("part 29")).toBe(true);
    expect(open?.entry.sparse?.segments).toMatchObject([{ offset: 0 }]);
    expect([hole?.entry.size, hole?.entry.sparse?.segments]).toEqual([0, []]);
  });

  test("are written so that GNU's tar unpacks them", async () => {
    const directory = holes();
    const long = "n".repeat(120);
    const restated = Buffer.concat(
      (await read(sh(directory, "tar -cSf - parts open hole"))).flatMap(({ entry, content }) => {
        const name = `out/${long}/${entry.name}`;
        return [encodeEntry({ ...entry, name } as PlainTarEntry, "pax"), content, padding(content.length)];
      }),
    );
    const check = `tar -xf - && cd out/* && cmp parts ../../parts && stat -c '%s' open hole && du -k open | cut -f1`;
    expect(sh(directory, check, Buffer.concat([restated, END_OF_TAR])).toString()).toMatch(
      /^1099511627776\n3145728\n\d{1,2}\n$/,
    );
  });

  const map = (text: string, records: Record<string, string> = {}): RawEntry[] => [
    pax({
      "GNU.sparse.major": "1",
      "GNU.sparse.minor": "0",
      "GNU.sparse.name": "file",
      "GNU.sparse.realsize": "1000",
      ...records,
    }),
    {
      name: "GNUSparseFile.0/file",
      content: Buffer.concat([Buffer.from(text.padEnd(512, "\0")), Buffer.from("data")]),
    },
  ];
  test.each([
    ["parts that are more than the data", "1\n0\n5\n"],
    ["parts that are less than the data", "1\n0\n3\n"],
    ["parts that lap over", "2\n0\n2\n1\n2\n"],
    ["a part beyond the end", "1\n999\n4\n"],
    ["no numbers", "1\nx\n4\n"],
    ["a negative number", "1\n-4\n4\n"],
    ["an endless number", "9".repeat(512)],
    ["too many parts", "100000000\n0\n4\n"],
    ["no end", "9\n0\n4\n"],
  ])("with a map of %s are refused", async (_, text) => {
    await expect(read(makeTar(map(text)))).rejects.toMatchObject({ reason: "ARCHIVE_REJECTED" });
  });

  test("of another version are of another kind", async () => {
    const [file] = await read(makeTar(map("1\n0\n4\n", { "GNU.sparse.minor": "9" })));
    expect(file?.entry.kind).toBe("other");
    const [known] = await read(makeTar(map("1\n0\n4\n")));
    expect(known?.entry).toMatchObject({ name: "file", kind: "file", size: 4, sparse: { realSize: 1000 } });
  });
});

test("a tar that is already all there yields to the event loop", async () => {
  const header = makeTar([{ name: "f" }]).subarray(0, 512);
  const tar = Buffer.alloc(100_000 * header.length, header);
  let turns = 0;
  let isOver = false;
  const look = (): void => {
    turns++;
    if (!isOver) setImmediate(look);
  };
  setImmediate(look);
  const entries = await read(tar, tar.length).finally(() => (isOver = true));
  expect(entries).toHaveLength(100_000);
  // The event loop gets a turn after 5 ms of such work, and this takes some hundred milliseconds.
  expect(turns).toBeGreaterThan(5);
});

test("an extended header has a limited number of records", async () => {
  const records = (count: number, from = 0): Record<string, string> =>
    Object.fromEntries(Array.from({ length: count }, (_, index) => [`k${from + index}`, ""]));
  expect(await names(pax(records(10_000)), { name: "a" })).toEqual(["a"]);
  await expect(names(pax(records(10_001)), { name: "a" })).rejects.toThrow("too many records");
  await expect(names(pax(records(6_000)), pax(records(6_000, 6_000)), { name: "a" })).rejects.toThrow(
    "too many records",
  );
});

test("a map of many holes yields to the event loop", async () => {
  const count = 100_000;
  const map = `${count}\n${"0\n0\n".repeat(count)}`;
  const header = pax({
    "GNU.sparse.major": "1",
    "GNU.sparse.minor": "0",
    "GNU.sparse.name": "holes",
    "GNU.sparse.realsize": "0",
  });
  const content = map.padEnd(Math.ceil(map.length / 512) * 512, "\0");
  const tar = makeTar(Array.from({ length: 3 }, () => [header, { name: "a", content }]).flat());
  let turns = 0;
  const counter = setInterval(() => turns++, 0);
  try {
    expect((await read(tar, 1 << 20)).map(({ entry }) => entry.name)).toEqual(["holes", "holes", "holes"]);
  } finally {
    clearInterval(counter);
  }
  expect(turns).toBeGreaterThan(5);
});
