import { mkdir, mkdtemp, rm } from "node:fs/promises";
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
  const disk = await DataDisk.watch(directory, new MemoryLog());
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
