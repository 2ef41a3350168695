import { PassThrough } from "node:stream";
import { setImmediate } from "node:timers/promises";
import { expect, test } from "vitest";
import { SlowDrain } from "../../../src/engine/orphaned-pipes.ts";

test("a drain that is stopped by another listener of the same data does not pause the stream again", async () => {
  const stream = new PassThrough();
  const seen: string[] = [];
  stream.on("data", (chunk: Buffer) => {
    seen.push(String(chunk));
    stop();
    stream.resume();
  });
  const stop = new SlowDrain(600_000).start(stream);
  for (const text of ["a", "b"]) {
    stream.write(text);
    await setImmediate();
  }
  expect(seen).toEqual(["a", "b"]);
});
