import { expect, test } from "vitest";
import { BerthError } from "../../../src/base/errors.ts";
import { OutputQueue } from "../../../src/files/running-script.ts";

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

test("a source that is far ahead is paused, and resumed at half of that", async () => {
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
