import { PassThrough, Readable } from "node:stream";
import { describe, expect, test } from "vitest";
import { CopyProgress, formatProgress } from "../../../../src/cli/copy/progress.ts";

const MIB = 2 ** 20;

test.each([
  [12 * MIB, 48 * MIB, 3000, "copied 12 MiB of 48 MiB (25%), 4 MiB/s, 9s left"],
  [48 * MIB, 48 * MIB, 3000, "copied 48 MiB of 48 MiB (100%), 16 MiB/s"],
  [1, 3 * MIB, 500, "copied 1 B of 3 MiB (0%), 2 B/s, 18d 4h left"],
  [12 * MIB, undefined, 3000, "copied 12 MiB, 4 MiB/s"],
  [5 * MIB, 4 * MIB, 1000, "copied 5 MiB, 5 MiB/s"],
  [0, 4 * MIB, 1000, "copied 0 B of 4 MiB (0%), 0 B/s"],
])("%d of %s bytes in %d ms", (bytes, total, ms, text) =>
  expect(formatProgress(bytes, total, ms)).toBe(text),
);

describe("a copy", () => {
  /** The output while chunks of 1 MiB arrive, each after this many milliseconds. */
  async function drawn(isTTY: boolean, gapsMs: readonly number[]): Promise<string[]> {
    const stderr = Object.assign(new PassThrough(), { isTTY });
    let now = 1000;
    const progress = new CopyProgress(
      { stdin: Readable.from([]), stdout: new PassThrough(), stderr, env: {} },
      () => now,
    );
    async function* chunks() {
      for (const gap of gapsMs) {
        now += gap;
        yield Buffer.alloc(MIB);
      }
    }
    for await (const _ of progress.count(chunks(), gapsMs.length * MIB)) void _;
    progress.end();
    const text = stderr.read()?.toString() ?? "";
    return text === "" ? [] : text.split("\r\x1b[K").slice(1);
  }

  test("that is quick shows nothing", async () => {
    expect(await drawn(true, [100, 100, 100])).toEqual([]);
  });

  test("that takes a while is shown now and then, and leaves nothing", async () => {
    expect(await drawn(true, [400, 100, 100, 100, 300])).toEqual([
      "copied 2 MiB of 5 MiB (40%), 4 MiB/s, 1s left",
      "copied 4 MiB of 5 MiB (80%), 5.7 MiB/s, 1s left",
      "copied 5 MiB of 5 MiB (100%), 5 MiB/s",
      "",
    ]);
  });

  test("without a terminal shows nothing", async () => {
    expect(await drawn(false, [1000, 1000])).toEqual([]);
  });
});
