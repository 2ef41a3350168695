import { describe, expect, test } from "vitest";
import { CHUNK_BYTES, feeding, inMessages } from "../../../../src/cli/copy/local-file.ts";

async function* pieces(...sizes: number[]): AsyncGenerator<Uint8Array> {
  let next = 0;
  for (const size of sizes) yield Buffer.from(Array.from({ length: size }, () => next++ % 251));
}

async function gather(chunks: AsyncIterable<Uint8Array>): Promise<Uint8Array[]> {
  const all: Uint8Array[] = [];
  for await (const chunk of chunks) all.push(chunk);
  return all;
}

describe("messages", () => {
  test.each([
    ["none", [], []],
    ["empty ones", [0, 0], []],
    ["small ones, together", [1, 2, 3], [6]],
    ["a large one, apart", [2 * CHUNK_BYTES + 5], [CHUNK_BYTES, CHUNK_BYTES, 5]],
    ["what just fits", [CHUNK_BYTES - 1, 1, CHUNK_BYTES], [CHUNK_BYTES, CHUNK_BYTES]],
    ["what does not", [CHUNK_BYTES - 1, 3], [CHUNK_BYTES, 2]],
  ])("of %s", async (_what, sizes, lengths) => {
    const messages = await gather(inMessages(pieces(...sizes)));
    expect(messages.map(({ length }) => length)).toEqual(lengths);
    const whole = Buffer.concat(await gather(pieces(...sizes)));
    expect(Buffer.concat(messages).equals(whole)).toBe(true);
  });
});

describe("a call that is fed", () => {
  const own = new Error("the disk is broken");

  test("fails with the error of its source, whatever it does with it", async () => {
    async function* broken(): AsyncGenerator<Uint8Array> {
      yield Buffer.alloc(1);
      throw own;
    }
    const call = feeding(broken(), async (chunks) => {
      await gather(chunks).catch((cause) => {
        throw new Error("canceled", { cause });
      });
    });
    await expect(call).rejects.toBe(own);
  });

  test("fails by itself, and ends its source", async () => {
    let ended = false;
    async function* endless(): AsyncGenerator<Uint8Array> {
      try {
        for (;;) yield Buffer.alloc(1);
      } finally {
        ended = true;
      }
    }
    const call = feeding(endless(), async (chunks) => {
      for await (const _chunk of chunks) throw own;
    });
    await expect(call).rejects.toBe(own);
    expect(ended).toBe(true);
  });
});
