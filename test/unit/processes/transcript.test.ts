import { randomBytes } from "node:crypto";
import { readdirSync, readlinkSync } from "node:fs";
import { mkdtemp, open, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import fc from "fast-check";
import { afterAll, beforeAll, expect, onTestFinished, test } from "vitest";
import type { OutputStream } from "../../../src/engine/port.ts";
import { SpillDirectory } from "../../../src/processes/spill.ts";
import { Transcript, type TranscriptLimits } from "../../../src/processes/transcript.ts";
import type { TranscriptItem, TranscriptReader } from "../../../src/processes/transcript-reader.ts";
import { eventually } from "../../support/eventually.ts";
import { takeDescriptors } from "../../support/no-descriptors.ts";
import { scaled } from "../../support/scale.ts";

type Streams = Record<OutputStream, Buffer>;

let parent = "";
let disk: SpillDirectory;

beforeAll(async () => {
  parent = await mkdtemp(path.join(tmpdir(), "berth-transcript-"));
  disk = await SpillDirectory.create(parent);
});

afterAll(async () => {
  // A file is removed in the background once its last piece is dropped.
  await eventually(async () => (await readdir(parent)).length === 0);
  await rm(parent, { recursive: true });
});

/** A transcript, with or without a disk. */
function transcriptOf(
  limits: Pick<TranscriptLimits, "windowBytes" | "headBytes"> & Partial<TranscriptLimits>,
  onDisk = false,
): Transcript {
  return new Transcript(
    { memoryBytes: 1_000_000, keepRead: true, ...limits },
    onDisk ? disk.open() : undefined,
  );
}

/** Reads everything available into `into`, with zeros for gaps. Returns the ranges of the gaps. */
async function drain(
  reader: TranscriptReader,
  into: Streams,
  most = Number.POSITIVE_INFINITY,
): Promise<[OutputStream, number, number][]> {
  const gaps: [OutputStream, number, number][] = [];
  for (let i = 0; i < most; i++) {
    const item = await reader.next();
    if (item === undefined) break;
    if (item.type === "gap") {
      gaps.push([item.stream, item.from, item.to]);
      into[item.stream] = Buffer.concat([into[item.stream], Buffer.alloc(item.to - item.from)]);
    } else {
      expect(item.offset).toBe(into[item.stream].length);
      expect(item.data.length).toBeGreaterThan(0);
      into[item.stream] = Buffer.concat([into[item.stream], item.data]);
    }
  }
  return gaps;
}

const empty = (): Streams => ({ stdout: Buffer.alloc(0), stderr: Buffer.alloc(0) });

/** Any piece of it is unlike the others. Drawing each byte of the chunks takes longer than all else in these tests. */
const RANDOM = randomBytes(100_000);

const chunk = fc.record({
  stream: fc.constantFrom<OutputStream>("stdout", "stderr"),
  data: fc
    .tuple(fc.nat(80_000), fc.oneof(fc.integer({ min: 0, max: 100 }), fc.integer({ min: 8000, max: 20_000 })))
    .map(([at, length]) => RANDOM.subarray(at, at + length)),
  /** How many items the readers read afterwards. */
  reads: fc.nat(3),
});

test("a lossless reader gets every byte, with any window", async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(chunk, { maxLength: 60 }),
      fc.integer({ min: 0, max: 50_000 }),
      fc.integer({ min: 0, max: 30_000 }),
      fc.boolean(),
      fc.boolean(),
      async (chunks, windowBytes, memoryBytes, onDisk, keepRead) => {
        const transcript = transcriptOf({ windowBytes, headBytes: 1000, memoryBytes, keepRead }, onDisk);
        const reader = transcript.reader({ stdout: 0, stderr: 0 });
        transcript.setLossless(reader);
        const written = empty();
        const read = empty();
        for (const { stream, data, reads } of chunks) {
          written[stream] = Buffer.concat([written[stream], data]);
          transcript.append(stream, Buffer.from(data));
          expect(await drain(reader, read, reads)).toEqual([]);
        }
        transcript.end();
        expect(await drain(reader, read)).toEqual([]);
        expect(read.stdout.equals(written.stdout) && read.stderr.equals(written.stderr)).toBe(true);
        await transcript.settle();
        transcript.setLossless(undefined);
        transcript.clear();
      },
    ),
    { numRuns: scaled(3_000, 120) },
  );
});

test("output that moves to disk for several reasons at once is read byte for byte", async () => {
  const transcript = transcriptOf({ windowBytes: 1e8, headBytes: 200_000, memoryBytes: 100_000 }, true);
  const written: Buffer[] = [];
  const settled: Promise<unknown>[] = [];
  for (let i = 0; i < 300; i++) {
    const data = randomBytes(8192 + i);
    written.push(data);
    transcript.append("stdout", Buffer.from(data));
    // Like a service that saves every second, in addition to the transcript itself.
    if (i % 5 === 0) settled.push(transcript.settle());
    if (i % 20 === 0) await new Promise((resolve) => setImmediate(resolve));
  }
  transcript.append("stdout", Buffer.from("the end"));
  transcript.end();
  settled.push(transcript.settle(), transcript.settle());
  await Promise.all(settled);
  expect(transcript.memoryBytes).toBe(0);
  const read = empty();
  expect(await drain(transcript.reader({ stdout: 0, stderr: 0 }), read)).toEqual([]);
  expect(read.stdout.equals(Buffer.concat([...written, Buffer.from("the end")]))).toBe(true);
  transcript.clear();
});

test("a live reader gets the exact bytes or an explicit gap, from any offset, and the limit holds", async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(chunk, { maxLength: 60 }),
      fc.integer({ min: 0, max: 60_000 }),
      fc.nat(100_000),
      fc.nat(60),
      fc.integer({ min: 0, max: 30_000 }),
      fc.boolean(),
      async (chunks, windowBytes, from, attachAt, memoryBytes, onDisk) => {
        const transcript = transcriptOf({ windowBytes, headBytes: 1000, memoryBytes }, onDisk);
        const written = empty();
        const read = empty();
        let reader: TranscriptReader | undefined;
        let offsets = { stdout: 0, stderr: 0 };
        const attach = (): void => {
          offsets = {
            stdout: Math.min(from, written.stdout.length),
            stderr: Math.min(from, written.stderr.length),
          };
          read.stdout = Buffer.alloc(offsets.stdout);
          read.stderr = Buffer.alloc(offsets.stderr);
          reader = transcript.reader(offsets);
        };
        for (const [index, { stream, data, reads }] of chunks.entries()) {
          if (index === attachAt) attach();
          written[stream] = Buffer.concat([written[stream], data]);
          transcript.append(stream, Buffer.from(data));
          if (reader) await drain(reader, read, reads);
          expect(transcript.heldBytes).toBeLessThanOrEqual(windowBytes + 2 * (1000 + 64 * 1024) + 64 * 1024);
          // With a disk, `full` makes the process wait, but this test keeps writing anyway.
          if (!onDisk) expect(transcript.memoryBytes).toBeLessThanOrEqual(4 * memoryBytes + 4 * 64 * 1024);
        }
        transcript.end();
        // An ended transcript that has moved to disk reads as before.
        await transcript.settle();
        if (onDisk) expect(transcript.memoryBytes).toBe(0);
        if (reader === undefined) attach();
        if (reader !== undefined) await drain(reader, read);
        transcript.clear();
        for (const stream of ["stdout", "stderr"] as const) {
          expect(read[stream].length).toBe(written[stream].length);
          for (let i = offsets[stream]; i < written[stream].length; i++) {
            // A gap reads as zeros. Everything else must be the written byte.
            if (read[stream][i] !== 0 && read[stream][i] !== written[stream][i])
              throw new Error(`${stream} differs at ${i}`);
          }
        }
      },
    ),
    { numRuns: scaled(3_000, 120) },
  );
});

test("the head stays and the gap after it is reported", async () => {
  const transcript = transcriptOf({ windowBytes: 100_000, headBytes: 10_000 });
  const data = Buffer.alloc(1_000_000, "0123456789");
  for (let i = 0; i < data.length; i += 10_000)
    transcript.append("stdout", Buffer.from(data.subarray(i, i + 10_000)));
  transcript.end();
  const read = empty();
  const gaps = await drain(transcript.reader({ stdout: 0, stderr: 0 }), read);
  expect(gaps).toHaveLength(1);
  const [, from, to] = gaps[0] ?? ["stdout", 0, 0];
  expect(from).toBe(10_000);
  expect(to).toBeGreaterThan(data.length - 110_000);
  expect(read.stdout.subarray(0, from).equals(data.subarray(0, from))).toBe(true);
  expect(read.stdout.subarray(to).equals(data.subarray(to))).toBe(true);
});

test("a program that writes to both streams in turn fills the heads with some ten thousand writes", async () => {
  const transcript = transcriptOf({
    windowBytes: 512 * 1024,
    headBytes: 1024 * 1024,
    memoryBytes: 100_000_000,
  });
  const writes = 100_000;
  for (let count = 0; count < writes; count++)
    transcript.append(count % 2 === 0 ? "stdout" : "stderr", Buffer.from("x"));
  transcript.end();
  expect(transcript.heldBytes).toBeLessThan(33 * 1024 * 1024 + 512 * 1024);
  const reader = transcript.reader({ stdout: 0, stderr: 0 });
  const gaps: TranscriptItem[] = [];
  for (let item = await reader.next(); item !== undefined; item = await reader.next())
    if (item.type === "gap") gaps.push(item);
  expect(gaps).toMatchObject([
    { stream: "stderr", from: 8192 },
    { stream: "stdout", from: 8192 },
  ]);
  expect(reader.offsets).toEqual({ stdout: writes / 2, stderr: writes / 2 });
  const held = [...transcript.held()].map(({ sequence }) => sequence);
  expect(held).toEqual([...held].sort((one, other) => one - other));
});

test("a program that writes to both streams in turn has a block in the window for each two KiB of it", () => {
  const transcript = transcriptOf({ windowBytes: 1024 * 1024, headBytes: 0 });
  for (let count = 0; count < 3_000; count++)
    transcript.append(count % 2 === 0 ? "stdout" : "stderr", Buffer.from("x"));
  transcript.end();
  expect([...transcript.held()].length).toBeLessThanOrEqual(512);
});

test("reports how far the process is ahead of its lossless reader", async () => {
  const transcript = transcriptOf({ windowBytes: 1000, headBytes: 0 });
  const reader = transcript.reader({ stdout: 0, stderr: 0 });
  transcript.setLossless(reader);
  transcript.append("stdout", Buffer.alloc(30));
  transcript.append("stderr", Buffer.alloc(12));
  expect(transcript.ahead).toBe(42);
  await drain(reader, empty());
  expect(transcript.ahead).toBe(0);
  transcript.setLossless(undefined);
  transcript.append("stdout", Buffer.alloc(30));
  expect(transcript.ahead).toBe(0);
});

test("makes the process wait at its own limit, below the window's, until half of it is read", async () => {
  for (const onDisk of [false, true]) {
    const transcript = transcriptOf({ windowBytes: 1_000_000, headBytes: 0, aheadBytes: 1000 }, onDisk);
    const reader = transcript.reader({ stdout: 0, stderr: 0 });
    transcript.setLossless(reader);
    transcript.append("stdout", Buffer.alloc(1000));
    expect(transcript.full).toBe(false);
    transcript.append("stderr", Buffer.alloc(1));
    expect(transcript.full).toBe(true);
    await drain(reader, empty(), 1);
    expect(transcript.full).toBe(false);
    transcript.setLossless(undefined);
    transcript.append("stdout", Buffer.alloc(10_000));
    expect(transcript.full).toBe(false);
  }
});

test("makes the process wait as well once unread blocks fill the window, however few bytes they have", async () => {
  for (const onDisk of [false, true]) {
    const transcript = transcriptOf({ windowBytes: 64 * 1024, headBytes: 0 }, onDisk);
    const reader = transcript.reader({ stdout: 0, stderr: 0 });
    transcript.setLossless(reader);
    let writes = 0;
    for (; writes < 1_000 && !transcript.full; writes++)
      transcript.append(writes % 2 === 0 ? "stdout" : "stderr", Buffer.from("x"));
    expect(transcript.heldBytes).toBeLessThan(65 * 1024);
    const read = empty();
    await drain(reader, read, writes - 1);
    expect(transcript.full).toBe(false);
    // A single block may be larger than the window.
    transcript.append("stdout", Buffer.alloc(64 * 1024));
    expect(transcript.full).toBe(true);
    expect(await drain(reader, read)).toEqual([]);
    expect(transcript.full).toBe(false);
  }
});

test("refuses an offset beyond what was written", async () => {
  const transcript = transcriptOf({ windowBytes: 1000, headBytes: 0 });
  transcript.append("stdout", Buffer.alloc(3));
  expect(() => transcript.reader({ stdout: 4, stderr: 0 })).toThrow(
    expect.objectContaining({ reason: "OFFSET_OUT_OF_RANGE" }),
  );
});

test("an ended process's transcript that shrinks keeps what its lossless reader has not read", async () => {
  const transcript = transcriptOf({ windowBytes: 100_000, headBytes: 1_000 });
  const reader = transcript.reader({ stdout: 0, stderr: 0 });
  transcript.setLossless(reader);
  const data = Buffer.alloc(90_000, "0123456789");
  for (let i = 0; i < data.length; i += 10_000)
    transcript.append("stdout", Buffer.from(data.subarray(i, i + 10_000)));
  transcript.end();
  transcript.shrink();
  const read = empty();
  expect(await drain(reader, read)).toEqual([]);
  expect(read.stdout.equals(data)).toBe(true);
  transcript.setLossless(undefined);
  expect(await drain(transcript.reader({ stdout: 0, stderr: 0 }), empty())).toHaveLength(1);
});

test("a lossless reader loses no byte when the disk is full", async () => {
  let room = 3;
  const spill = disk.open();
  const transcript = new Transcript(
    { windowBytes: 1_000_000, headBytes: 0, memoryBytes: 20_000, keepRead: true },
    {
      // Faked, because a full disk cannot be caused here without filling the machine's.
      write: async (pieces) => {
        if (room-- <= 0) throw Object.assign(new Error("no space"), { code: "ENOSPC" });
        return spill.write(pieces);
      },
      seal: () => spill.seal(),
    },
  );
  const reader = transcript.reader({ stdout: 0, stderr: 0 });
  transcript.setLossless(reader);
  const data = Buffer.alloc(500_000, "0123456789");
  let fullOnce = false;
  const read = empty();
  for (let i = 0; i < data.length; i += 10_000) {
    transcript.append("stdout", Buffer.from(data.subarray(i, i + 10_000)));
    await new Promise((resolve) => setImmediate(resolve));
    if (transcript.full) {
      fullOnce = true;
      expect(await drain(reader, read)).toEqual([]);
    }
  }
  transcript.end();
  expect(await drain(reader, read)).toEqual([]);
  expect(read.stdout.equals(data)).toBe(true);
  expect(fullOnce).toBe(true);
  transcript.setLossless(undefined);
  await transcript.settle();
  transcript.clear();
});

test("a transcript that is cleared keeps its head until the lossless reader has read everything", async () => {
  const transcript = transcriptOf({ windowBytes: 1_000_000, headBytes: 1_000 });
  const reader = transcript.reader({ stdout: 0, stderr: 0 });
  transcript.setLossless(reader);
  const [stdout, stderr] = [randomBytes(100_000), randomBytes(500)];
  transcript.append("stdout", stdout);
  transcript.append("stderr", stderr);
  transcript.end();
  transcript.clear();
  const read = empty();
  expect(await drain(reader, read)).toEqual([]);
  expect(read.stdout.equals(stdout)).toBe(true);
  expect(read.stderr.equals(stderr)).toBe(true);
  transcript.setLossless(undefined);
  expect(transcript.heldBytes).toBeLessThan(600);
});

/** The transcript of an ended process with so many bytes of output, all of it on disk. */
async function onDisk(bytes: number): Promise<Transcript> {
  const transcript = transcriptOf({ windowBytes: 1_000_000, headBytes: 1_000 }, true);
  onTestFinished(() => transcript.clear());
  transcript.append("stdout", randomBytes(bytes));
  transcript.end();
  await transcript.settle();
  expect(transcript.memoryBytes).toBe(0);
  return transcript;
}

test("output on disk that cannot be read for lack of a descriptor is read later, and is not reported as missing", async () => {
  const transcript = await onDisk(50_000);
  const end = takeDescriptors(0);
  const reading = transcript.reader({ stdout: 0, stderr: 0 }).next();
  try {
    // The reader's open comes before these.
    for (let i = 0; i < 20; i++) await expect(open("/dev/null")).rejects.toMatchObject({ code: "EMFILE" });
  } finally {
    end();
  }
  expect(await reading).toMatchObject({ type: "output", offset: 0, data: { length: 50_000 } });
});

test("output that cannot move to disk for lack of a descriptor moves there later, and so does what follows", async () => {
  const transcript = transcriptOf({ windowBytes: 1_000_000, headBytes: 0, memoryBytes: 20_000 }, true);
  onTestFinished(() => transcript.clear());
  const end = takeDescriptors(0);
  transcript.append("stdout", randomBytes(50_000));
  try {
    // The transcript's open comes before these.
    for (let i = 0; i < 20; i++) await expect(open("/dev/null")).rejects.toMatchObject({ code: "EMFILE" });
    transcript.append("stdout", randomBytes(50_000));
    // It waits as for a slow disk.
    expect(transcript.full).toBe(true);
  } finally {
    end();
  }
  transcript.append("stdout", randomBytes(50_000));
  expect(await transcript.settle()).toBe(true);
  expect(transcript.memoryBytes).toBe(0);
  expect(await drain(transcript.reader({ stdout: 0, stderr: 0 }), empty())).toEqual([]);
  transcript.end();
});

test("any number of readers of output on disk has a few files open", async () => {
  const transcript = await onDisk(50_000);
  const isOpen = (fd: string): boolean => {
    try {
      return readlinkSync(`/proc/self/fd/${fd}`).startsWith(parent);
    } catch {
      // The one of the list itself.
      return false;
    }
  };
  let isRead = false;
  let most = 0;
  const look = (): void => {
    most = Math.max(most, readdirSync("/proc/self/fd").filter(isOpen).length);
    if (!isRead) setImmediate(look);
  };
  setImmediate(look);
  const readers = Array.from({ length: 200 }, () => transcript.reader({ stdout: 0, stderr: 0 }));
  const items = await Promise.all(readers.map((reader) => reader.next()));
  isRead = true;
  expect(new Set(items.map((item) => item?.type))).toEqual(new Set(["output"]));
  expect(most).toBeLessThan(10);
});

test("readers that wait for output are woken in turns of the event loop, because there may be thousands", async () => {
  const transcript = transcriptOf({ windowBytes: 1_000_000, headBytes: 1_000 });
  const order: string[] = [];
  const readers = Array.from({ length: 4 }, async () => {
    await transcript.changed(60_000, new AbortController().signal);
    order.push("reader");
    for (const end = performance.now() + 6; performance.now() < end; );
  });
  // The next turn is nobody's yet.
  await new Promise((resolve) => setImmediate(resolve));
  let isRead = false;
  const turn = (): void => {
    order.push("turn");
    if (!isRead) setImmediate(turn);
  };
  setImmediate(turn);
  transcript.append("stdout", Buffer.from("output"));
  await Promise.all(readers);
  isRead = true;
  expect(order.filter((what) => what === "reader")).toHaveLength(4);
  expect(order.join(" ")).not.toContain("reader reader");
});
