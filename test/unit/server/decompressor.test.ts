import { randomBytes } from "node:crypto";
import { gzipSync } from "node:zlib";
import { expect, test } from "vitest";
import { BerthError } from "../../../src/base/errors.ts";
import { Decompressor } from "../../../src/server/decompressor.ts";

const MIB = 1 << 20;
const { signal } = new AbortController();

test.each([0, 1, 64 * 1024 - 1, 64 * 1024, 64 * 1024 + 1, MIB])(
  "%i bytes come back as they were",
  async (size) => {
    const bytes = randomBytes(size);
    const plain = await new Decompressor().gunzip(gzipSync(bytes), size, signal);
    expect(bytes.equals(plain)).toBe(true);
  },
);

test("an empty message needs no gzip", async () => {
  expect(await new Decompressor().gunzip(Buffer.alloc(0), 10, signal)).toHaveLength(0);
});

test("one byte too many is refused, also if the gzip arrives in parts", async () => {
  const decompressor = new Decompressor();
  const parts = Buffer.concat([gzipSync(Buffer.alloc(MIB)), gzipSync(Buffer.alloc(1))]);
  expect(await decompressor.gunzip(parts, MIB + 1, signal)).toHaveLength(MIB + 1);
  await expect(decompressor.gunzip(parts, MIB, signal)).rejects.toMatchObject({
    reason: "MESSAGE_TOO_LARGE",
  });
});

test.each([
  ["no gzip", Buffer.from("no gzip")],
  ["a gzip that breaks off", gzipSync(randomBytes(1000)).subarray(0, 500)],
  ["a gzip with a wrong checksum", Buffer.concat([gzipSync("x").subarray(0, -8), Buffer.alloc(8)])],
])("%s is refused", async (_name, bytes) => {
  await expect(new Decompressor().gunzip(bytes, MIB, signal)).rejects.toMatchObject({
    reason: "INVALID_ARGUMENT",
  });
});

test("a call that ended while it waited is skipped, and the next one is served", async () => {
  const decompressor = new Decompressor();
  const call = new AbortController();
  const bytes = gzipSync(Buffer.alloc(MIB));
  const first = [1, 2, 3].map(() => decompressor.gunzip(bytes, MIB, signal));
  const left = decompressor.gunzip(bytes, MIB, call.signal);
  const last = decompressor.gunzip(bytes, MIB, signal);
  call.abort(new BerthError("CANCELED", "The caller left."));
  await expect(left).rejects.toThrow("The caller left.");
  expect((await Promise.all([...first, last])).map(({ length }) => length)).toEqual([MIB, MIB, MIB, MIB]);
});
