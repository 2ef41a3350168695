import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { setImmediate as turn } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { EndedProcess } from "../../../src/processes/ended-process.ts";
import type { Process } from "../../../src/processes/process.ts";
import { SpillDirectory } from "../../../src/processes/spill.ts";
import { Transcript } from "../../../src/processes/transcript.ts";
import { type BudgetedTranscript, TranscriptBudget } from "../../../src/processes/transcript-budget.ts";
import { eventually } from "../../support/eventually.ts";

const SANDBOX = { owner: "me", sandboxId: "box", generation: 1 };

const KIB = 1024;
const NONE = { stdout: 0, stderr: 0 };
const BLOCK_KIB = 64;

let parent = "";
let disk: SpillDirectory;

beforeAll(async () => {
  parent = await mkdtemp(path.join(tmpdir(), "berth-budget-"));
  disk = await SpillDirectory.create(parent);
});
afterAll(() => rm(parent, { recursive: true }));

function budgetOf(kib: number, ownerKib = kib, memoryKib = kib): TranscriptBudget {
  return new TranscriptBudget({ bytes: kib * KIB, ownerBytes: ownerKib * KIB, memoryBytes: memoryKib * KIB });
}

function transcriptIn(budget: TranscriptBudget, owner = "me", spill = disk.open()): Transcript {
  const limits = {
    windowBytes: 8192 * KIB,
    headBytes: BLOCK_KIB * KIB,
    memoryBytes: 8192 * KIB,
    keepRead: true,
  };
  const transcript = new Transcript(limits, spill);
  budget.watch(owner, transcript);
  // Closes its file.
  onTestFinished(() => transcript.end());
  return transcript;
}

async function write(transcript: Transcript, kib: number): Promise<void> {
  for (let left = kib; left > 0; left -= BLOCK_KIB) {
    transcript.append("stdout", Buffer.alloc(BLOCK_KIB * KIB, "x"));
    // Like between two reads of a pipe.
    await Promise.resolve();
  }
}

/** Held bytes in KiB, without the overhead of blocks. */
function held(transcript: BudgetedTranscript): number {
  return Math.floor(transcript.heldBytes / KIB / BLOCK_KIB) * BLOCK_KIB;
}

/** Reads everything: the number of bytes, and of bytes in gaps. */
async function readAll(transcript: Transcript): Promise<{ bytes: number; gaps: number }> {
  const reader = transcript.reader(NONE);
  const sum = { bytes: 0, gaps: 0 };
  for (let item = await reader.next(); item !== undefined; item = await reader.next()) {
    if (item.type === "gap") sum.gaps += item.to - item.from;
    else sum.bytes += item.data.length;
  }
  return sum;
}

test("beyond the limit, output of ended processes is dropped first, oldest first, and readers see a gap", async () => {
  const budget = budgetOf(1024);
  const ended = [transcriptIn(budget), transcriptIn(budget), transcriptIn(budget)] as const;
  for (const transcript of ended) {
    await write(transcript, 256);
    transcript.end();
  }
  const live = transcriptIn(budget);
  await write(live, 384);
  expect(budget.usage.bytes).toBeLessThanOrEqual(1024 * KIB);
  expect(held(live)).toBe(384);
  expect(ended.map(held)).toEqual([64, 256, 256]);
  expect(await readAll(ended[0])).toEqual({ bytes: 64 * KIB, gaps: 192 * KIB });

  await write(live, 512);
  expect(held(live)).toBe(896);
  expect(budget.usage.bytes).toBeLessThanOrEqual(1024 * KIB);
  expect(ended[0].heldBytes).toBe(0);
  expect(await readAll(ended[0])).toEqual({ bytes: 0, gaps: 256 * KIB });
});

test("of running processes the largest loses output, but keeps its head and its newest output", async () => {
  const budget = budgetOf(1024);
  const small = transcriptIn(budget);
  const large = transcriptIn(budget);
  await write(small, 192);
  await write(large, 2048);
  expect(held(small)).toBe(192);
  expect(budget.usage.bytes).toBeLessThanOrEqual(1024 * KIB);
  const { bytes, gaps } = await readAll(large);
  expect(bytes).toBeGreaterThan(512 * KIB);
  expect(bytes + gaps).toBe(2048 * KIB);
});

test("beyond an owner's limit its own output is dropped; beyond the total limit, that of the largest owner", async () => {
  const budget = budgetOf(2048, 1024);
  const other = transcriptIn(budget, "other");
  await write(other, 512);
  const mine = transcriptIn(budget);
  await write(mine, 4096);
  expect(held(other)).toBe(512);
  expect(budget.ownerBytes("me")).toBeLessThanOrEqual(1024 * KIB);
  for (let i = 0; i < 8; i++) await write(transcriptIn(budget, `third ${i}`), 192);
  expect(budget.usage.bytes).toBeLessThanOrEqual(2048 * KIB);
  expect(held(mine)).toBeLessThan(512);
  expect(budget.ownerBytes("third 7")).toBeGreaterThan(192 * KIB);
});

test("a process waits when its lossless reader is behind and there is no room, and no byte is lost", async () => {
  const budget = budgetOf(1024);
  const transcript = transcriptIn(budget);
  const reader = transcript.reader(NONE);
  transcript.setLossless(reader);
  let written = 0;
  for (; !transcript.full && written < 8192; written += BLOCK_KIB) await write(transcript, BLOCK_KIB);
  expect(written).toBeLessThanOrEqual(1024 + BLOCK_KIB);
  // Another process whose reader keeps up continues, within its minimum room.
  const other = transcriptIn(budget);
  other.setLossless(other.reader(NONE));
  await write(other, 192);
  expect(other.full).toBe(false);
  let read = 0;
  for (let item = await reader.next(); item !== undefined; item = await reader.next()) {
    expect(item.type).toBe("output");
    if (item.type === "output") read += item.data.length;
  }
  expect(read).toBe(written * KIB);
  expect(transcript.full).toBe(false);
});

test("after an attempt that made no room, more output triggers the next one, and not only the clock", async () => {
  const budget = budgetOf(512);
  const unread = transcriptIn(budget);
  const reader = unread.reader(NONE);
  unread.setLossless(reader);
  await write(unread, 768);
  // Output that its reader has not read must not be dropped.
  expect(held(unread)).toBe(768);
  const began = performance.now();
  await write(transcriptIn(budget), 2048);
  const busy = performance.now() - began;
  expect(budget.usage.bytes, `after ${busy} ms`).toBeLessThan((768 + 64 + 256 + 2 * BLOCK_KIB) * KIB);
});

test("output beyond the memory limit goes to disk", async () => {
  const budget = budgetOf(8192, 8192, 512);
  const transcripts = [transcriptIn(budget), transcriptIn(budget)];
  for (const transcript of transcripts) await write(transcript, 512);
  await eventually(() => budget.usage.memoryBytes <= 512 * KIB);
  for (const transcript of transcripts)
    expect(await readAll(transcript)).toEqual({ bytes: 512 * KIB, gaps: 0 });
});

test("what a full disk does not take is dropped beyond the memory limit, oldest first, and processes wait", async () => {
  const budget = budgetOf(100_000, 100_000, 512);
  // Faked, because a full disk cannot be caused here without filling the machine's.
  const full = { write: () => Promise.reject(new Error("no space")), seal: async () => {} };
  const ended = [transcriptIn(budget, "me", full), transcriptIn(budget, "you", full)] as const;
  for (const transcript of ended) {
    await write(transcript, 256);
    transcript.end();
  }
  const live = transcriptIn(budget, "me", full);
  const reader = live.reader(NONE);
  live.setLossless(reader);
  await write(live, 128);
  await turn();
  expect(budget.usage.memoryBytes).toBeLessThanOrEqual(512 * KIB);
  expect(ended.map(held)).toEqual([0, 256]);
  let written = 128;
  for (; !live.full && written < 4096; written += BLOCK_KIB) await write(live, BLOCK_KIB);
  expect(written).toBeLessThan(1024);
  await turn();
  expect(ended.map(held)).toEqual([0, 0]);
  for (let read = 0; read < written * KIB; ) {
    const item = await reader.next();
    if (item?.type !== "output") throw new Error("unread output was dropped");
    read += item.data.length;
  }
});

test("cleared transcripts no longer count", async () => {
  const budget = budgetOf(1024);
  const transcript = transcriptIn(budget);
  await write(transcript, 512);
  transcript.end();
  transcript.clear();
  expect(budget.usage).toEqual({ bytes: 0, memoryBytes: 0 });
  expect(budget.ownerBytes("me")).toBe(0);
});

test("a transcript that replaces another counts instead of it, and is dropped in its place", async () => {
  const budget = budgetOf(400);
  const first = transcriptIn(budget);
  await write(first, 192);
  first.end();
  const { usage } = budget;
  const ended = new EndedProcess(
    {
      processId: "one",
      startTimeMs: 0,
      commandBytes: 0,
      heldBytes: first.heldBytes,
      sandbox: SANDBOX,
    },
    0,
    () => {
      throw new Error("nobody asks for it");
    },
    { transcript: first } as Process,
  );
  expect(ended.transcript).toBe(first);
  ended.release();
  if (ended.transcript === undefined) throw new Error("its output counts no longer");
  budget.replace("me", first, ended.transcript);
  expect(budget.usage).toEqual({ bytes: usage.bytes, memoryBytes: 0 });
  // It counts no more, but can still be read to its end.
  first.clear();
  expect(budget.usage.bytes).toBe(usage.bytes);
  ended.transcript.clear();
  expect(budget.usage).toEqual({ bytes: 0, memoryBytes: 0 });
});

describe("unread transcripts of an earlier run of the service", () => {
  /** An ended process whose transcript is read on demand, which takes a while; its id is then added to `read`. */
  function unread(budget: TranscriptBudget, id: string, read: string[], takesMs = 0): EndedProcess {
    const summary = {
      ...{
        processId: id,
        endedAt: 0,
        startTimeMs: 0,
        commandBytes: 0,
        heldBytes: 3 * BLOCK_KIB * KIB,
      },
      sandbox: SANDBOX,
    };
    const process = new EndedProcess(summary, 0, () => {
      read.push(id);
      for (const end = performance.now() + takesMs; performance.now() < end; );
      if (id === "damaged") throw new Error("it cannot be read");
      const transcript = transcriptIn(budget);
      transcript.append("stdout", Buffer.alloc(BLOCK_KIB * KIB));
      transcript.append("stdout", Buffer.alloc(BLOCK_KIB * KIB));
      transcript.append("stdout", Buffer.alloc(BLOCK_KIB * KIB));
      transcript.end();
      return { transcript } as Process;
    });
    if (process.transcript !== undefined) budget.watch("me", process.transcript);
    return process;
  }
  const kibOf = (budget: TranscriptBudget): number =>
    Math.floor(budget.usage.bytes / KIB / BLOCK_KIB) * BLOCK_KIB;

  test("count, and count once when they are read", () => {
    const budget = budgetOf(1024);
    const read: string[] = [];
    const process = unread(budget, "one", read);
    expect(kibOf(budget)).toBe(192);
    expect(process.whole).toBe(process.whole);
    expect(read).toEqual(["one"]);
    expect(kibOf(budget)).toBe(192);
    process.transcript?.clear();
    expect(budget.usage.bytes).toBe(0);
  });

  test("are dropped, oldest first, and are read for that", async () => {
    const budget = budgetOf(400);
    const read: string[] = [];
    const processes = ["damaged", "first", "second"].map((id) => unread(budget, id, read));
    const running = transcriptIn(budget);
    await write(running, 64);
    await eventually(() => expect(kibOf(budget)).toBeLessThanOrEqual(400));
    expect(read).toEqual(["damaged", "first"]);
    expect(processes.map(({ transcript }) => transcript && held(transcript))).toEqual([0, 64, 192]);
  });

  test("are read for that in turns of the event loop, because there may be thousands", async () => {
    const budget = budgetOf(4 * 192);
    const order: string[] = [];
    const processes = ["1", "2", "3", "4"].map((id) => unread(budget, id, order, 6));
    const running = transcriptIn(budget);
    // The next turn is nobody's yet.
    await turn();
    let isOver = false;
    const endTurn = (): void => {
      order.push("turn");
      if (!isOver) setImmediate(endTurn);
    };
    setImmediate(endTurn);
    await write(running, 448);
    await eventually(() => kibOf(budget) <= 4 * 192);
    isOver = true;
    expect(processes.map(({ transcript }) => transcript && held(transcript))).toEqual([64, 64, 64, 64]);
    const reads = order.filter((what) => what !== "turn");
    expect(reads).toEqual(["1", "2", "3", "4"]);
    for (const id of reads.slice(1)) expect(order[order.indexOf(id) - 1]).toBe("turn");
  });
});
