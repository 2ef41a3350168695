import { expect, test } from "vitest";
import { Execution } from "../../../../src/sessions/types/execution.ts";
import { keptBytes } from "../../../support/kept-bytes.ts";

test("a payload in short parts does not keep what was read with them in memory", async () => {
  const execution = new Execution(() => {}, 1_000);
  const mark = (text: string) => `${execution.nonce}${text};`;
  execution.data("stderr", Buffer.from(mark("E0")));
  execution.data("stdout", Buffer.from(mark("E0")));
  const before = await keptBytes();
  for (let count = 0; count < 1_000; count++) {
    const chunk = Buffer.alloc(64 * 1024, " ");
    chunk.write(`${mark("D")}x${mark("G")}`);
    execution.data("stdout", chunk);
  }
  // All of the chunks have 64 MB.
  expect((await keptBytes()) - before).toBeLessThan(32 * 2 ** 20);
  execution.data("stdout", Buffer.from(mark("P")));
  expect((await execution.end).payload.toString()).toBe("x".repeat(1_000));
});
