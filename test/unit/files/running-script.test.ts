import { expect, test } from "vitest";
import { BerthError } from "../../../src/base/errors.ts";
import type { OpenFile, OutsideControl } from "../../../src/engine/port.ts";
import { OutputQueue, RunningScript, type ScriptHost } from "../../../src/files/running-script.ts";
import { type FakeJob, FakeRunner } from "../processes/fake-jobs.ts";

const MIB = 1024 * 1024;

class RecordedFlow {
  readonly calls: string[] = [];
  pause(): void {
    this.calls.push("pause");
  }
  resume(): void {
    this.calls.push("resume");
  }
}

async function drain(queue: OutputQueue): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for (let chunk = await queue.next(); chunk; chunk = await queue.next()) chunks.push(chunk);
  return Buffer.concat(chunks);
}

test("bytes come out in order, before and after the reader waits", async () => {
  const queue = new OutputQueue();
  queue.push(Buffer.from("ab"));
  queue.push(Buffer.alloc(0));
  expect((await queue.next())?.toString()).toBe("ab");
  const waiting = queue.next();
  queue.push(Buffer.from("c"));
  expect((await waiting)?.toString()).toBe("c");
  queue.push(Buffer.from("d"));
  queue.end();
  expect((await drain(queue)).toString()).toBe("d");
  expect(await queue.next()).toBeUndefined();
});

test("a flood of tiny pieces is read in the time of its bytes", async () => {
  const queue = new OutputQueue();
  const piece = Buffer.from("x");
  for (let count = 0; count < 1_000_000; count++) queue.push(piece);
  queue.end();
  const before = process.threadCpuUsage();
  expect(await drain(queue)).toHaveLength(1_000_000);
  const { user, system } = process.threadCpuUsage(before);
  // 10 ms on one machine. A million pieces took a second for each 256 KiB.
  expect((user + system) / 1000).toBeLessThan(500);
});

test("a source that is far ahead is paused, and resumed at half of the limit", async () => {
  const queue = new OutputQueue();
  const flow = new RecordedFlow();
  for (let count = 0; count < 20; count++) queue.push(Buffer.alloc(MIB / 4));
  queue.attach(flow);
  expect(flow.calls).toEqual(["pause"]);
  for (let read = 0; read < 2 * MIB; ) read += (await queue.next())?.length ?? 0;
  expect(flow.calls).toEqual(["pause"]);
  for (let read = 0; read < MIB; ) read += (await queue.next())?.length ?? 0;
  expect(flow.calls).toEqual(["pause", "resume"]);
});

test("an error drops the queue and resumes the source", async () => {
  const queue = new OutputQueue();
  const flow = new RecordedFlow();
  queue.attach(flow);
  queue.push(Buffer.alloc(5 * MIB));
  queue.end(new BerthError("CANCELED", "gone"));
  queue.push(Buffer.from("late"));
  expect(flow.calls).toEqual(["pause", "resume"]);
  await expect(queue.next()).rejects.toThrow("gone");
});

test("a waiting reader gets the error", async () => {
  const queue = new OutputQueue();
  const waiting = queue.next();
  queue.end(new BerthError("CANCELED", "gone"));
  await expect(waiting).rejects.toThrow("gone");
});

/** A script whose processes are visible from outside, and its job. */
async function scriptOf(outside: Partial<OutsideControl>): Promise<{
  readonly running: RunningScript;
  readonly job: FakeJob;
  readonly killed: unknown[];
}> {
  const runner = new FakeRunner();
  const killed: unknown[] = [];
  const host = {
    runner,
    control: {
      outside: async () => outside,
      killTree: async (...[, , job]: unknown[]) => void killed.push(job),
    },
    lease: { sandbox: {}, signal: new AbortController().signal },
    user: "",
  } as unknown as ScriptHost;
  const { signal } = new AbortController();
  const running = await RunningScript.start(host, "", { stdin: false, signal });
  const [job] = runner.jobs;
  if (job === undefined) throw new Error("it has no job");
  return { running, job, killed };
}

/** A file opened from outside, and how often it was closed. */
function newFile(killHolder = () => true): { readonly file: OpenFile; closed: number } {
  const made = {
    closed: 0,
    file: {
      read: async () => Buffer.alloc(0),
      killHolder: async () => killHolder(),
      close: async () => {
        made.closed++;
      },
    },
  };
  return made;
}

test("nothing is read from its pipes while its file is opened", async () => {
  const opening = Promise.withResolvers<OpenFile | undefined>();
  const { running, job } = await scriptOf({ openFile: () => opening.promise });
  const opened = running.openFile(0);
  expect(job.paused).toBe(true);
  const { file } = newFile();
  opening.resolve(file);
  expect(await opened).toBe(file);
  expect(job.paused).toBe(true);
  const leaving = running.leave(file, new BerthError("CANCELED", "gone"));
  job.exit(137);
  await leaving;
  expect(job.paused).toBe(false);
  const failing = await scriptOf({ openFile: () => Promise.reject(new Error("EMFILE")) });
  await expect(failing.running.openFile(0)).rejects.toThrow("EMFILE");
  expect(failing.job.paused).toBe(false);
});

test("a file that is opened after the script has ended is closed: it may be another script's", async () => {
  const made = newFile();
  const { running, job } = await scriptOf({
    openFile: async () => {
      job.exit(0);
      await running.ended;
      return made.file;
    },
  });
  expect(await running.openFile(0)).toBeUndefined();
  await expect.poll(() => made.closed).toBe(1);
});

test("stopping a script does not wait for its file to be opened; a file that is opened later is closed", async () => {
  const opening = Promise.withResolvers<OpenFile | undefined>();
  const { running, job } = await scriptOf({ openFile: () => opening.promise });
  const opened = running.openFile(0);
  const stopping = running.stop(new BerthError("CANCELED", "gone"));
  job.exit(137);
  await stopping;
  expect(await opened).toBeUndefined();
  const made = newFile();
  opening.resolve(made.file);
  await expect.poll(() => made.closed).toBe(1);
});

test("a script that is left ends with the process that has the file open; otherwise it is stopped", async () => {
  const gone = new BerthError("CANCELED", "gone");
  const polite = await scriptOf({});
  const { file } = newFile(() => {
    polite.job.exit(137);
    return true;
  });
  await polite.running.leave(file, gone);
  expect(polite.killed).toEqual([]);
  for (const isThere of [true, false]) {
    const stubborn = await scriptOf({});
    const left = stubborn.running.leave(newFile(() => isThere).file, gone);
    await expect.poll(() => stubborn.killed).toHaveLength(1);
    stubborn.job.exit(137);
    await left;
    expect(stubborn.killed).toEqual([stubborn.job]);
  }
});

test("what is written to a script that reads nothing any more waits for its end, and no longer than for stop", async () => {
  const closed = () => Promise.reject(new BerthError("PROCESS_STATE", "Nothing reads it."));
  const ending = await scriptOf({});
  ending.job.reading = closed;
  let isWritten = false;
  const writing = ending.running.write(Buffer.from("x")).then(() => {
    isWritten = true;
  });
  await new Promise(setImmediate);
  expect(isWritten).toBe(false);
  ending.job.exit(1);
  await writing;

  const stopped = await scriptOf({});
  stopped.job.reading = closed;
  const waiting = stopped.running.write(Buffer.from("x"));
  const stopping = stopped.running.stop(new BerthError("CANCELED", "gone"));
  await waiting;
  stopped.job.exit(1);
  await stopping;
});
