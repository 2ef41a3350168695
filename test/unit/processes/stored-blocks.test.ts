import { serialize } from "node:v8";
import fc from "fast-check";
import { expect, test } from "vitest";
import type { OutputStream } from "../../../src/engine/port.ts";
import type { StoredBytes, StoredPlace } from "../../../src/processes/spill.ts";
import { readBlocks, type StoredBlock, storeBlocks } from "../../../src/processes/stored-blocks.ts";
import type { Block } from "../../../src/processes/transcript-reader.ts";
import { processorMs } from "../../support/measure.ts";

function onDisk(place: StoredPlace): StoredBytes {
  return { ...place, read: () => Promise.reject(new Error("not read here")), drop: () => {} };
}

/** What a block looks like when it is read again. */
function stored({ content, length, ...block }: Block): StoredBlock {
  if (!Buffer.isBuffer(content))
    return { ...block, length, content: { file: content.file, position: content.position } };
  return { ...block, length, content: new Uint8Array(content.subarray(0, length)) };
}

const stream = fc.constantFrom<OutputStream>("stdout", "stderr");
const anyBlock = fc
  .record({
    sequence: fc.integer({ min: 1, max: 2 ** 45 }),
    stream,
    offset: fc.integer({ min: 0, max: 2 ** 50 }),
    bytes: fc.uint8Array({ minLength: 1, maxLength: 300 }),
    place: fc.option(fc.record({ file: fc.constantFrom("a.0", "a.1", "ä"), position: fc.nat(2 ** 40) })),
  })
  .map(({ bytes, place, ...block }): Block => {
    const spare = Buffer.concat([bytes, Buffer.alloc(7)]);
    return { ...block, length: bytes.length, content: place === null ? spare : onDisk(place) };
  });
/** Blocks that follow each other, as most do. */
const consecutive = fc
  .array(fc.tuple(stream, fc.integer({ min: 1, max: 70_000 })), { maxLength: 50 })
  .map((all) => {
    const offsets = { stdout: 0, stderr: 0 };
    let position = 0;
    return all.map(([stream, length], index): Block => {
      const offset = offsets[stream];
      offsets[stream] += length;
      const content = onDisk({ file: "b.0", position });
      position += length;
      return { sequence: index + 1, stream, offset, length, content };
    });
  });

test("any blocks are read as they were stored", () => {
  fc.assert(
    fc.property(
      fc.array(
        fc.oneof(
          anyBlock.map((block) => [block]),
          consecutive,
        ),
        { maxLength: 10 },
      ),
      (parts) => {
        const blocks = parts.flat();
        const { bytes, files, heldBytes, inlineBytes } = storeBlocks(blocks, 1_000_000);
        const read = readBlocks(bytes).map((block) =>
          block.content instanceof Uint8Array ? { ...block, content: new Uint8Array(block.content) } : block,
        );
        expect(read).toEqual(blocks.map(stored));
        const inMemory = blocks.filter(({ content }) => Buffer.isBuffer(content));
        expect(inlineBytes).toBe(inMemory.reduce((sum, { length }) => sum + length, 0));
        expect(heldBytes).toBeGreaterThanOrEqual(blocks.reduce((sum, { length }) => sum + length, 0));
        const places = blocks.flatMap(({ content }) => (Buffer.isBuffer(content) ? [] : content.file));
        expect([...files].sort()).toEqual([...new Set(places)].sort());
      },
    ),
    { numRuns: 500 },
  );
});

test("blocks in memory beyond the limit are left out, and the others are read", () => {
  const blockOf = (sequence: number, offset: number, text: string): Block => {
    return { sequence, stream: "stdout", offset, length: text.length, content: Buffer.from(text) };
  };
  const { bytes, inlineBytes } = storeBlocks(
    [blockOf(1, 0, "abc"), blockOf(2, 3, "defgh"), blockOf(3, 8, "i")],
    5,
  );
  expect(inlineBytes).toBe(4);
  expect(readBlocks(bytes)).toMatchObject([
    { sequence: 1, offset: 0, length: 3 },
    { sequence: 3, offset: 8, length: 1 },
  ]);
});

test("what an earlier version stored is read", () => {
  const blocks: StoredBlock[] = [
    { sequence: 1, stream: "stdout", offset: 0, length: 2, content: new Uint8Array([1, 2]) },
    { sequence: 2, stream: "stderr", offset: 0, length: 9, content: { file: "a.0", position: 5 } },
  ];
  expect(readBlocks(serialize(blocks))).toEqual(blocks);
  expect(readBlocks(serialize([]))).toEqual([]);
  expect(() => readBlocks(new Uint8Array([7]))).toThrow("unknown format, 7");
});

test("the blocks of a program that writes to both streams in turn take little room and time", () => {
  const blocks = Array.from({ length: 100_000 }, (_, index): Block => {
    const place = { file: "a.0", position: index };
    const stream = index % 2 === 0 ? "stdout" : "stderr";
    return { sequence: index + 1, stream, offset: index >> 1, length: 1, content: onDisk(place) };
  });
  let bytes = new Uint8Array();
  const store = (): void => {
    ({ bytes } = storeBlocks(blocks, 0) as { bytes: Uint8Array<ArrayBuffer> });
  };
  const tries = Array.from({ length: 3 }, () => ({
    ms: processorMs(store),
    serializedMs: processorMs(() => void serialize(blocks.map(stored))),
  }));
  expect(bytes.length).toBeLessThan(110_000);
  // A sixth of it on one machine. Other work makes single measurements longer.
  expect(Math.min(...tries.map(({ ms }) => ms))).toBeLessThan(
    Math.min(...tries.map(({ serializedMs }) => serializedMs)) / 2,
  );
  expect(readBlocks(bytes)).toHaveLength(blocks.length);
});
