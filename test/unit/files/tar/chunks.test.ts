import { setImmediate } from "node:timers/promises";
import { expect, test } from "vitest";
import { restateTar } from "../../../../src/files/tar/restate.ts";
import type { PlainTarEntry, Segment } from "../../../../src/files/tar/tar-entry.ts";
import { END_OF_TAR, encodeEntry, gather, padding } from "../../../../src/files/tar/tar-writer.ts";

const MIB = 1024 * 1024;
const CHUNK = 256 * 1024;

async function all(chunks: AsyncIterable<Buffer>): Promise<Buffer[]> {
  const gathered: Buffer[] = [];
  for await (const chunk of chunks) gathered.push(chunk);
  return gathered;
}

async function* pieces(...sizes: number[]): AsyncGenerator<Buffer> {
  for (const [at, size] of sizes.entries()) yield Buffer.alloc(size, at);
}

/** A tar of one file. */
async function* tar(size: number, sparse?: PlainTarEntry["sparse"]): AsyncGenerator<Buffer> {
  const numbers = { mode: 0o644, uid: 0, gid: 0, modifyTime: 0, deviceMajor: 0, deviceMinor: 0 };
  yield encodeEntry({ name: "./file", kind: "file", linkName: "", size, sparse, ...numbers }, "pax");
  const content = Buffer.alloc(size, 1);
  for (let at = 0; at < size; at += 64 * 1024) yield content.subarray(at, at + 64 * 1024);
  yield padding(size);
  yield END_OF_TAR;
}

/** A file of which every sixteenth kilobyte begins with a byte, and the rest is a hole. */
function holes(count: number): Parameters<typeof tar> {
  const segments = Array.from({ length: count }, (_, i): Segment => ({ offset: i * 16 * 1024, length: 1 }));
  return [count, { realSize: count * 16 * 1024, segments }];
}

test.each([
  [[1, 2, 3]],
  [[CHUNK]],
  [[CHUNK, 0]],
  [[CHUNK - 1, MIB]],
  [[0, MIB + 1, 1]],
  [[3 * MIB, 0, CHUNK - 1, 2 * MIB + 5]],
])("parts of %j bytes are joined and cut into chunks of 1 byte to 1 MiB", async (sizes) => {
  const chunks = await all(gather(pieces(...sizes), CHUNK));
  for (const { length } of chunks) expect(length > 0 && length <= MIB, String(length)).toBe(true);
  expect(Buffer.concat(chunks).equals(Buffer.concat(await all(pieces(...sizes))))).toBe(true);
});

test.each<[what: string, ...Parameters<typeof tar>]>([
  ["a file that fills whole chunks", 3 * CHUNK - 1024],
  [
    "a hole that is filled",
    200_512,
    {
      realSize: 1_200_512,
      segments: [
        { offset: 0, length: 200_000 },
        { offset: 1_200_000, length: 512 },
      ],
    },
  ],
  ["very many holes", ...holes(99_000)],
])("the tar of %s has chunks of 1 byte to 1 MiB", async (_, size, sparse) => {
  const chunks = await all(restateTar(tar(size, sparse), { whose: "the test", isHidden: () => false }));
  for (const { length } of chunks) expect(length > 0 && length <= MIB, String(length)).toBe(true);
});

test("a file with many small holes does not block the event loop", async () => {
  const segments = Array.from({ length: 90_000 }, (_, at): Segment => ({ offset: at * 11, length: 1 }));
  const source = tar(segments.length, { realSize: segments.length * 11, segments });
  let [turns, turnsBefore, isOver] = [0, 0, false];
  const count = async (): Promise<void> => {
    for (; !isOver; turns++) await setImmediate();
  };
  const counting = count();
  async function* chunks(): AsyncGenerator<Buffer> {
    const parts: Buffer[] = [];
    for await (const part of source) parts.push(part);
    const [header = Buffer.alloc(0), ...rest] = parts;
    yield header;
    turnsBefore = turns;
    yield Buffer.concat(rest);
  }
  const restated = restateTar(chunks(), { whose: "the image", isHidden: () => false });
  const { length } = Buffer.concat(await all(restated));
  isOver = true;
  await counting;
  expect(length).toBeGreaterThan(segments.length * 11);
  // A turn contains 5 ms of it.
  expect(turns - turnsBefore).toBeGreaterThan(4);
});
