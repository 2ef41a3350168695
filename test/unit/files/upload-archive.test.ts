import { setImmediate } from "node:timers/promises";
import { expect, test } from "vitest";
import { ArchiveCheck } from "../../../src/files/archive-check.ts";
import type { PlainTarEntry } from "../../../src/files/tar/tar-entry.ts";
import { END_OF_TAR, encodeEntry } from "../../../src/files/tar/tar-writer.ts";
import { rewriteArchive } from "../../../src/files/upload-archive.ts";

const NUMBERS = { uid: 0, gid: 0, size: 0, modifyTime: 0, deviceMajor: 0, deviceMinor: 0 };
const MARK = ".mark";

function directory(name: string, mode: number): Buffer {
  return encodeEntry({ name, kind: "directory", linkName: "", mode, ...NUMBERS }, "pax");
}

function emptySparse(name: string): Buffer {
  const entry: PlainTarEntry = { name, kind: "file", linkName: "", mode: 0o644, ...NUMBERS };
  return encodeEntry({ ...entry, sparse: { realSize: 1_000_000, segments: [] } }, "pax");
}

async function* tarOf(...entries: readonly Buffer[]): AsyncGenerator<Buffer> {
  yield* entries;
  yield END_OF_TAR;
}

/** What is to run once everything is unpacked. */
async function scriptOf(...entries: readonly Buffer[]): Promise<string> {
  const parts: Buffer[] = [];
  for await (const part of rewriteArchive(tarOf(...entries), new ArchiveCheck(), MARK)) parts.push(part);
  const text = Buffer.concat(parts).toString("latin1");
  return text.slice(text.lastIndexOf("ustar  \0") + 255).replace(/\0+$/, "");
}

test("the modes of directories are set from the deepest up, and of two entries the last one counts", async () => {
  expect(
    await scriptOf(
      directory("a/b", 0o500),
      directory("a", 0),
      directory("a/b/c", 0o500),
      directory("d", 0o755),
      directory("a/b", 0o755),
    ),
  ).toBe("chmod 500 './a/b/c' || return\nchmod 755 './a/b' || return\nchmod 0 './a' || return\n");
});

test("the modes of many directories do not block the event loop", async () => {
  const entries = Array.from({ length: 30_000 }, (_, index) => directory(String(index).padStart(90, "'"), 0));
  let [turns, turnsAtEnd, isOver] = [0, 0, false];
  const count = async (): Promise<void> => {
    for (; !isOver; turns++) await setImmediate();
  };
  const counting = count();
  async function* chunks(): AsyncGenerator<Buffer> {
    yield* tarOf(...entries);
    turnsAtEnd = turns;
  }
  const parts = rewriteArchive(chunks(), new ArchiveCheck(), MARK);
  for (let part = await parts.next(); turnsAtEnd === 0 && !part.done; part = await parts.next());
  await parts.next();
  // A turn contains 5 ms of it.
  expect(turns - turnsAtEnd).toBeGreaterThan(2);
  isOver = true;
  await counting;
});

test("a sparse file without data counts as a part", async () => {
  const files = Array.from({ length: 10_001 }, (_, index) => emptySparse(`f${index}`));
  await expect(scriptOf(...files)).rejects.toMatchObject({ reason: "ARCHIVE_REJECTED" });
  expect(await scriptOf(...files.slice(0, 2))).toMatch(/^f='\.\/f0'.* seek=1000000 .*\nf='\.\/f1'/s);
});
