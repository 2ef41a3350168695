import { beforeAll, expect, test } from "vitest";
import { useApp } from "../../support/app.ts";
import type { ExecutionResult } from "../../support/execution.ts";

const MIB = 1024 * 1024;
/** How much a transcript keeps from the start of each stream. */
const HEAD_BYTES = MIB;
const WINDOW_BYTES = 2 * MIB;
const TOTAL_BYTES = 12 * MIB;

const app = useApp({ transcriptWindowBytes: WINDOW_BYTES });
let id = "";
/** The output of {@link writer}: numbered lines, so that each part shows its position. */
const whole = Buffer.from(
  Array.from({ length: TOTAL_BYTES / 16 }, (_, i) => `${String(i).padStart(15, "0")}\n`).join(""),
);
const writer = `awk 'BEGIN { for (i = 0; i < ${TOTAL_BYTES / 16}; i++) printf "%015d\\n", i }'`;

beforeAll(async () => {
  ({ sandbox_id: id } = await app.client.createSandbox());
});

/** Compares the received output and gaps with what was written. Returns how many bytes are missing. */
function missingFrom({ stdout, gaps, exit }: ExecutionResult, from = 0): number {
  expect(exit).toMatchObject({ cause: "EXIT_CAUSE_EXITED", exit_code: 0, stdout_bytes: TOTAL_BYTES });
  let at = from;
  let read = 0;
  for (const { from_offset: start, to_offset: end } of [
    ...gaps,
    { from_offset: TOTAL_BYTES, to_offset: TOTAL_BYTES },
  ]) {
    const part = stdout.subarray(read, read + start - at);
    expect(part.equals(whole.subarray(at, start))).toBe(true);
    read += start - at;
    at = end;
  }
  expect(read).toBe(stdout.length);
  return gaps.reduce((sum, gap) => sum + gap.to_offset - gap.from_offset, 0);
}

test("a reader that attaches after the end gets head and tail of a long output, and a gap between them", async () => {
  const execution = app.client.exec(id, writer, { on_disconnect: "ON_DISCONNECT_DETACH" });
  const processId = await execution.processId;
  execution.cancel();
  await app.client.attach(processId).result;

  const late = await app.client.attach(processId).result;
  const missing = missingFrom(late);
  expect(missing).toBeGreaterThan(0);
  expect(late.gaps[0]?.from_offset).toBeGreaterThanOrEqual(HEAD_BYTES);
  expect(TOTAL_BYTES - (late.gaps.at(-1)?.to_offset ?? 0)).toBeGreaterThan(0);
  // Again from inside the gap and from the tail: the same response, cut to what was requested.
  const inside = 6 * MIB + 5;
  const rest = await app.client.attach(processId, { stdout: inside }).result;
  expect(missingFrom(rest, inside)).toBe((late.gaps.at(-1)?.to_offset ?? 0) - inside);
  const tail = await app.client.attach(processId, { stdout: TOTAL_BYTES - 100 }).result;
  expect(missingFrom(tail, TOTAL_BYTES - 100)).toBe(0);
  expect(tail.stdout).toHaveLength(100);
});

test("the caller that started it misses nothing, while other readers come and go", async () => {
  const execution = app.client.exec(id, `${writer} | (head -c ${HEAD_BYTES}; sleep 0.5; cat)`);
  const processId = await execution.processId;
  await execution.until("000000000001000\n");
  const beside = Array.from({ length: 5 }, (_, i) => app.client.attach(processId, { stdout: i * 1000 }));
  const leaving = app.client.attach(processId);
  await leaving.processId;
  leaving.cancel();
  expect(missingFrom(await execution.result)).toBe(0);
  for (const [index, { result }] of beside.entries()) missingFrom(await result, index * 1000);
});

test("a caller that started it and reads slowly misses nothing either: the command waits", async () => {
  const execution = app.client.exec(id, writer);
  await execution.processId;
  execution.call.pause();
  await new Promise((resolve) => setTimeout(resolve, 1_500));
  const { process } = await app.client.call("ProcessService/GetProcess", {
    process_id: await execution.processId,
  });
  expect(process.exit_status).toBeNull();
  expect(process.stdout_bytes).toBeLessThan(TOTAL_BYTES);
  execution.call.resume();
  expect(missingFrom(await execution.result)).toBe(0);
});
