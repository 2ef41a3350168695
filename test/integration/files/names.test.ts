import { describe, expect, test } from "vitest";
import { fromBytes, toBytes } from "../../../src/base/byte-string.ts";
import { IMAGES, useFileBench } from "./file-bench.ts";

/** Every byte that a name may contain, plus some that trip up tools and shells. */
const EVERY_BYTE = Buffer.from(
  Array.from({ length: 255 }, (_, index) => index + 1).filter((byte) => byte !== 0x2f),
);
const NAMES: readonly Buffer[] = [
  "-rf",
  "--",
  "-",
  " ",
  " two  spaces ",
  "tab\tand\nnewline",
  "\n",
  "ends with newline\n",
  "'quoted' \"twice\" `and` $(more)",
  "back\\slash\\n",
  "*",
  "?[a]",
  "~",
  "#comment",
  "...",
  ".hidden",
  "..double",
  "%s%n",
  "ünïcödé — 日本語 🦊",
  "a".repeat(255),
  "é".repeat(127),
  "81a4 1 0 0 2 2026-01-01 00:00:00.0 +0000",
]
  .map((name) => Buffer.from(name))
  .concat(
    Buffer.from([0xff]),
    Buffer.from([0x0a, 0x80, 0x0a]),
    Buffer.from([0x2d, 0xfe, 0x27, 0x22]),
    EVERY_BYTE.subarray(0, 127),
    EVERY_BYTE.subarray(127),
    Buffer.from([0xed, 0xa0, 0x80]),
    Buffer.alloc(255, 0xc3),
  );

describe.each(IMAGES)("$title", ({ spec }) => {
  const bench = useFileBench(spec);

  test("every name is written, listed, read, moved and removed unchanged", async () => {
    await bench().makeDirectory("names");
    const inNames = (name: Buffer): Buffer => Buffer.concat([Buffer.from("names/"), name]);
    for (const name of NAMES) await bench().write(inNames(name), name);

    const { entries, more } = await bench().list("names");
    expect(more).toBe(false);
    const sorted = [...NAMES].sort(Buffer.compare).map(fromBytes);
    expect(entries.map(({ name }) => name)).toEqual(sorted);
    for (const { name, info } of entries) {
      expect(info).toMatchObject({ kind: "REGULAR", sizeBytes: name.length, mode: 0o644 });
    }

    for (const name of NAMES) {
      expect((await bench().read(inNames(name))).data).toEqual(name);
      const { path, info } = await bench().stat(inNames(name));
      expect(path).toBe(`/workspace/names/${fromBytes(name)}`);
      expect(info.sizeBytes).toBe(name.length);
    }

    await bench().makeDirectory("moved");
    for (const name of NAMES) await bench().move(inNames(name), Buffer.concat([Buffer.from("moved/"), name]));
    expect((await bench().list("names")).entries).toEqual([]);
    for (const name of NAMES) await bench().remove(Buffer.concat([Buffer.from("moved/"), name]));
    expect((await bench().list("moved")).entries).toEqual([]);
  });

  test("links keep the bytes of their targets", async () => {
    const target = Buffer.concat([Buffer.from(" \n'"), EVERY_BYTE.subarray(127)]);
    const format = [...target].map((byte) => `\\${byte.toString(8).padStart(3, "0")}`).join("");
    await bench().sh(`cd /workspace; t=$(printf '${format}/'); ln -s "\${t%/}" link; ln -s "ends
" newline`);
    const { info } = await bench().stat("link");
    expect(info).toMatchObject({ kind: "SYMLINK", sizeBytes: target.length });
    expect(toBytes(info.linkTarget)).toEqual(target);
    const listed = (await bench().list(".")).entries.filter(({ info }) => info.kind === "SYMLINK");
    expect(listed.map(({ info }) => info.linkTarget)).toEqual([fromBytes(target), "ends\n"]);
  });

  test("a directory of any name works as a path", async () => {
    const name = Buffer.from([0x2d, 0xff, 0x0a, 0x20, 0x27]);
    const file = Buffer.concat([name, Buffer.from("/sub/file")]);
    await bench().write(file, "x", { createParents: true });
    expect((await bench().read(file)).data.toString()).toBe("x");
    expect((await bench().list(Buffer.concat([name, Buffer.from("/sub")]))).entries).toHaveLength(1);
    await bench().remove(name, { recursive: true });
    expect(await bench().sh("ls -d /workspace/-* | wc -l").then(String)).toMatch(/^0/);
  });
});
