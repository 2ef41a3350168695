import { expect, test } from "vitest";
import type { Process } from "../../../src/processes/process.ts";
import { OWNER } from "../sandboxes/support.ts";
import { ProcessBench } from "./support.ts";

test("an ended process is read from the database once it is stored completely", async () => {
  const bench = await ProcessBench.start();
  const { processId, over, events } = await bench.exec();
  bench.job.write("out");
  bench.job.write("err", "stderr");
  bench.job.exit(3);
  await over;
  const inMemory = bench.processes.get(OWNER, processId);
  await bench.clock.advance(1_000);

  const stored = bench.processes.get(OWNER, processId);
  expect(stored).not.toBe(inMemory);
  expect(factsOf(stored)).toEqual(factsOf(inMemory));
  const later = await bench.attach(processId);
  await later.over;
  expect(later.events).toEqual(events);
  expect((await bench.processes.list(bench.sandbox, true, { limit: 10 })).items).toEqual([stored]);
});

function factsOf({ id, options, user, hasTerminal, startTimeMs, startedAt, status }: Process): object {
  return { id, options, user, hasTerminal, startTimeMs, startedAt, status };
}

test("a reader of an ended process's output gets the rest of it", async () => {
  const bench = await ProcessBench.start();
  const { processId } = await bench.exec();
  bench.job.write("one ");
  bench.job.write("two", "stderr");
  bench.job.exit(0);
  const slow = bench.processes.attach(
    OWNER,
    processId,
    { stdout: 0, stderr: 0 },
    new AbortController().signal,
  );
  expect((await slow.next()).value).toMatchObject({ type: "started" });
  await bench.clock.advance(1_000);
  const rest: unknown[] = [];
  for await (const event of slow) rest.push(event);
  expect(rest).toMatchObject([
    { type: "output", stream: "stdout", data: Buffer.from("one ") },
    { type: "output", stream: "stderr", data: Buffer.from("two") },
    { type: "exited", status: { exitCode: 0 } },
  ]);
});

test("a process whose output is in files stays in memory", async () => {
  const bench = await ProcessBench.start({ spill: true });
  const { processId, over } = await bench.exec();
  bench.job.write("x".repeat(20_000));
  bench.job.exit(0);
  await over;
  const inMemory = bench.processes.get(OWNER, processId);
  await bench.clock.advance(1_000);
  expect(bench.processes.get(OWNER, processId)).toBe(inMemory);
});
