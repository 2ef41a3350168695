import fc from "fast-check";
import { expect, test } from "vitest";
import type { OutputStream } from "../../src/core/ports/engine.ts";
import { Transcript, type TranscriptReader } from "../../src/process/transcript.ts";

type Streams = Record<OutputStream, Buffer>;

/** Reads all there is into `into`, with zeros for gaps; returns the ranges of the gaps. */
function drain(
  reader: TranscriptReader,
  into: Streams,
  most = Number.POSITIVE_INFINITY,
): [OutputStream, number, number][] {
  const gaps: [OutputStream, number, number][] = [];
  for (let i = 0; i < most; i++) {
    const item = reader.next();
    if (item === undefined) break;
    if (item.type === "gap") {
      gaps.push([item.stream, item.from, item.to]);
      into[item.stream] = Buffer.concat([into[item.stream], Buffer.alloc(item.to - item.from)]);
    } else {
      expect(item.offset).toBe(into[item.stream].length);
      expect(item.data.length).toBeGreaterThan(0);
      into[item.stream] = Buffer.concat([into[item.stream], item.data]);
    }
  }
  return gaps;
}

const empty = (): Streams => ({ stdout: Buffer.alloc(0), stderr: Buffer.alloc(0) });

const chunk = fc.record({
  stream: fc.constantFrom<OutputStream>("stdout", "stderr"),
  data: fc
    .oneof(fc.uint8Array({ maxLength: 100 }), fc.uint8Array({ minLength: 8000, maxLength: 20_000 }))
    .map((bytes) => Buffer.from(bytes)),
  /** How many items the readers take afterwards. */
  reads: fc.nat(3),
});

test("a lossless reader gets every byte, whatever the window", () => {
  fc.assert(
    fc.property(
      fc.array(chunk, { maxLength: 60 }),
      fc.integer({ min: 0, max: 50_000 }),
      (chunks, windowBytes) => {
        const transcript = new Transcript({ windowBytes, headBytes: 1000 });
        const reader = transcript.reader({ stdout: 0, stderr: 0 });
        transcript.setLossless(reader);
        const written = empty();
        const read = empty();
        for (const { stream, data, reads } of chunks) {
          written[stream] = Buffer.concat([written[stream], data]);
          transcript.append(stream, Buffer.from(data));
          expect(drain(reader, read, reads)).toEqual([]);
        }
        transcript.end();
        expect(drain(reader, read)).toEqual([]);
        expect(read.stdout.equals(written.stdout) && read.stderr.equals(written.stderr)).toBe(true);
      },
    ),
    { numRuns: 300 },
  );
});

test("a live reader gets the exact bytes or an explicit gap, from any offset, and the bound holds", () => {
  fc.assert(
    fc.property(
      fc.array(chunk, { maxLength: 60 }),
      fc.integer({ min: 0, max: 60_000 }),
      fc.nat(100_000),
      fc.nat(60),
      (chunks, windowBytes, from, attachAt) => {
        const transcript = new Transcript({ windowBytes, headBytes: 1000 });
        const written = empty();
        const read = empty();
        let reader: TranscriptReader | undefined;
        let offsets = { stdout: 0, stderr: 0 };
        const attach = (): void => {
          offsets = {
            stdout: Math.min(from, written.stdout.length),
            stderr: Math.min(from, written.stderr.length),
          };
          read.stdout = Buffer.alloc(offsets.stdout);
          read.stderr = Buffer.alloc(offsets.stderr);
          reader = transcript.reader(offsets);
        };
        chunks.forEach(({ stream, data, reads }, index) => {
          if (index === attachAt) attach();
          written[stream] = Buffer.concat([written[stream], data]);
          transcript.append(stream, Buffer.from(data));
          if (reader) drain(reader, read, reads);
          expect(transcript.heldBytes).toBeLessThanOrEqual(windowBytes + 2 * (1000 + 64 * 1024) + 64 * 1024);
        });
        transcript.end();
        if (reader === undefined) attach();
        if (reader !== undefined) drain(reader, read);
        for (const stream of ["stdout", "stderr"] as const) {
          expect(read[stream].length).toBe(written[stream].length);
          for (let i = offsets[stream]; i < written[stream].length; i++) {
            // A gap reads as zeros; everything else must be the byte itself.
            if (read[stream][i] !== 0 && read[stream][i] !== written[stream][i])
              throw new Error(`${stream} differs at ${i}`);
          }
        }
      },
    ),
    { numRuns: 300 },
  );
});

test("the head stays and the gap after it is told", () => {
  const transcript = new Transcript({ windowBytes: 100_000, headBytes: 10_000 });
  const data = Buffer.alloc(1_000_000, "0123456789");
  for (let i = 0; i < data.length; i += 10_000)
    transcript.append("stdout", Buffer.from(data.subarray(i, i + 10_000)));
  transcript.end();
  const read = empty();
  const gaps = drain(transcript.reader({ stdout: 0, stderr: 0 }), read);
  expect(gaps).toHaveLength(1);
  const [, from, to] = gaps[0] ?? ["stdout", 0, 0];
  expect(from).toBe(10_000);
  expect(to).toBeGreaterThan(data.length - 110_000);
  expect(read.stdout.subarray(0, from).equals(data.subarray(0, from))).toBe(true);
  expect(read.stdout.subarray(to).equals(data.subarray(to))).toBe(true);
});

test("tells how far the process is ahead of its lossless reader", () => {
  const transcript = new Transcript({ windowBytes: 1000, headBytes: 0 });
  const reader = transcript.reader({ stdout: 0, stderr: 0 });
  transcript.setLossless(reader);
  transcript.append("stdout", Buffer.alloc(30));
  transcript.append("stderr", Buffer.alloc(12));
  expect(transcript.ahead).toBe(42);
  drain(reader, empty());
  expect(transcript.ahead).toBe(0);
  transcript.setLossless(undefined);
  transcript.append("stdout", Buffer.alloc(30));
  expect(transcript.ahead).toBe(0);
});

test("refuses an offset beyond what was written", () => {
  const transcript = new Transcript({ windowBytes: 1000, headBytes: 0 });
  transcript.append("stdout", Buffer.alloc(3));
  expect(() => transcript.reader({ stdout: 4, stderr: 0 })).toThrow(
    expect.objectContaining({ reason: "OFFSET_OUT_OF_RANGE" }),
  );
});

test("an ended process's transcript that shrinks keeps what its lossless reader has not read", () => {
  const transcript = new Transcript({ windowBytes: 100_000, headBytes: 1_000 });
  const reader = transcript.reader({ stdout: 0, stderr: 0 });
  transcript.setLossless(reader);
  const data = Buffer.alloc(90_000, "0123456789");
  for (let i = 0; i < data.length; i += 10_000)
    transcript.append("stdout", Buffer.from(data.subarray(i, i + 10_000)));
  transcript.end();
  transcript.shrink();
  const read = empty();
  expect(drain(reader, read)).toEqual([]);
  expect(read.stdout.equals(data)).toBe(true);
  transcript.setLossless(undefined);
  expect(drain(transcript.reader({ stdout: 0, stderr: 0 }), empty())).toHaveLength(1);
});
