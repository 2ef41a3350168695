import { mkdir, mkdtemp, rename, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { DataDisk } from "../../src/data-disk.ts";
import { MemoryLog } from "../support/memory-log.ts";

beforeEach(() => {
  vi.useFakeTimers({ toFake: ["setInterval", "clearInterval"] });
});
afterEach(() => {
  vi.useRealTimers();
});

test("a disk that does not answer has no free space that is known, until it answers again", async () => {
  const directory = await mkdtemp(path.join(tmpdir(), "berth-disk-"));
  const disk = await DataDisk.watch(directory, directory, new MemoryLog());
  const sizes = () => [disk.freeBytes, disk.totalBytes];
  try {
    const known = [expect.any(Number), disk.totalBytes];
    expect(disk.totalBytes).toBeGreaterThan(0);
    await rm(directory, { recursive: true });
    vi.advanceTimersByTime(5_000);
    await expect.poll(sizes).toEqual([Number.NaN, Number.NaN]);
    await mkdir(directory);
    vi.advanceTimersByTime(5_000);
    await expect.poll(() => disk.freeBytes).toBeGreaterThan(0);
    expect(sizes()).toEqual(known);
  } finally {
    disk.stop();
    await rm(directory, { recursive: true, force: true });
  }
});

test("a directory that is moved, removed or replaced is reported until it is back", async () => {
  const parent = await mkdtemp(path.join(tmpdir(), "berth-disk-"));
  const [directory, away] = [path.join(parent, "data"), path.join(parent, "away")];
  const file = path.join(directory, "berth.db");
  await mkdir(directory);
  await writeFile(file, "");
  const log = new MemoryLog();
  const disk = await DataDisk.watch(directory, file, log);
  /** What it has seen once a check is over. */
  const seen = () => {
    vi.advanceTimersByTime(5_000);
    return { isReplaced: disk.isReplaced, answers: !Number.isNaN(disk.freeBytes) };
  };
  try {
    expect(seen().isReplaced).toBe(false);
    await rename(directory, away);
    await expect.poll(seen).toEqual({ isReplaced: true, answers: false });
    await mkdir(directory);
    await writeFile(file, "");
    await expect.poll(seen).toEqual({ isReplaced: true, answers: true });
    expect(log.errors).toMatchObject([{ fields: { directory } }]);
    await rm(directory, { recursive: true });
    await rename(away, directory);
    await expect.poll(seen).toEqual({ isReplaced: false, answers: true });
  } finally {
    disk.stop();
    await rm(parent, { recursive: true });
  }
});
