import { expect, test } from "vitest";
import type { FileManager, PathRequest } from "../../../../../src/files/manager.ts";
import { readLines } from "../../../../../src/sessions/types/files/read-lines.ts";
import { keptBytes } from "../../../../support/kept-bytes.ts";

const MIB = 1024 * 1024;

test.each([64 * 1024, 100_000, 512 * 1024])(
  "a long line is cut between characters, in chunks of %s bytes",
  async (size) => {
    const file = Buffer.from("你".repeat(500_000));
    const files = {
      async *download() {
        for (let at = 0; at < file.length; at += size)
          yield { type: "chunk", data: file.subarray(at, at + size) };
      },
    };
    const range = { first: 1, limit: 10 };
    const lines = await readLines(
      files as unknown as FileManager,
      {} as PathRequest,
      range,
      AbortSignal.timeout(20_000),
    );
    expect(lines).toEqual({ text: "你".repeat(Math.floor(MIB / 3)), count: 1, more: true });
  },
);

test("what is skipped before the first line is not kept", async () => {
  const chunks = 60;
  let kept = 0;
  const files = {
    async *download() {
      const before = await keptBytes();
      for (let index = 0; index < chunks; index++) {
        yield { type: "chunk", data: Buffer.alloc(512 * 1024, index === chunks - 1 ? "\n" : "x") };
      }
      kept = (await keptBytes()) - before;
    },
  };
  const lines = await readLines(
    files as unknown as FileManager,
    {} as PathRequest,
    { first: 1_000_000, limit: 10 },
    AbortSignal.timeout(20_000),
  );
  expect(lines).toMatchObject({ text: "" });
  expect(kept).toBeLessThan(5 * MIB);
});
