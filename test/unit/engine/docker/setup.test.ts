import { PassThrough } from "node:stream";
import { expect, test } from "vitest";
import { Demux } from "../../../../src/engine/docker/daemon.ts";
import { setupDone } from "../../../../src/engine/docker/setup.ts";
import { processorNowMs } from "../../../support/measure.ts";

const HOUR_MS = 3_600_000;

/** Docker's frames of what a container prints, `size` bytes in each. */
function frames(printed: string, size: number): Buffer {
  const parts: Buffer[] = [];
  for (let at = 0; at < printed.length; at += size) {
    const payload = Buffer.from(printed.slice(at, at + size));
    const header = Buffer.from([1, 0, 0, 0, 0, 0, 0, 0]);
    header.writeUInt32BE(payload.length, 4);
    parts.push(header, payload);
  }
  return Buffer.concat(parts);
}

test.each([1, 7, 4096])("a report is found in frames of %i bytes", async (size) => {
  const output = new PassThrough();
  const done = setupDone(output, HOUR_MS);
  output.write(frames("noise\nberth-owner 12:34\nberth-ready\n", size));
  await expect(done).resolves.toMatchObject({ owner: "12:34" });
});

test("a shell that prints single bytes costs little more than to take them out of their frames", async () => {
  const chunk = frames("\n".repeat(7000), 1);
  const cost = (take: (chunk: Buffer) => void): number => {
    const before = processorNowMs();
    for (let i = 0; i < 8; i++) take(chunk);
    return processorNowMs() - before;
  };
  const bare = (): number => {
    const texts: string[] = [];
    const demux = new Demux((_, payload) => texts.push(payload.toString()));
    return cost((bytes) => demux.push(bytes));
  };
  const output = new PassThrough();
  setupDone(output, HOUR_MS).catch(() => {});
  bare();
  expect(cost((bytes) => output.emit("data", bytes))).toBeLessThan(10 * bare());
  output.destroy();
});

test("a shell that prints without end is not waited for", async () => {
  const output = new PassThrough();
  const done = setupDone(output, HOUR_MS);
  output.end(frames("x".repeat(1 << 20), 1 << 16));
  await expect(done).rejects.toMatchObject({
    reason: "SANDBOX_START_FAILED",
    message: expect.stringMatching(/printed too much.*needs a working \/bin\/sh/),
  });
});
