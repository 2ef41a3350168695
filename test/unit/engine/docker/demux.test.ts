import fc from "fast-check";
import { expect, test } from "vitest";
import { Demux } from "../../../../src/engine/docker/daemon.ts";

function frame(stream: number, payload: Uint8Array): Buffer {
  const header = Buffer.alloc(8);
  header[0] = stream;
  header.writeUInt32BE(payload.length, 4);
  return Buffer.concat([header, payload]);
}

test("frames are separated wherever the connection splits them", () => {
  const frames = fc.array(fc.tuple(fc.constantFrom(1, 2), fc.uint8Array({ maxLength: 40 })), {
    maxLength: 20,
  });
  fc.assert(
    fc.property(frames, fc.array(fc.integer({ min: 1, max: 30 }), { minLength: 1 }), (list, cuts) => {
      const wire = Buffer.concat(list.map(([stream, payload]) => frame(stream, payload)));
      const seen = { stdout: [] as Buffer[], stderr: [] as Buffer[] };
      const demux = new Demux((stream, chunk) => seen[stream].push(chunk));
      for (let at = 0, i = 0; at < wire.length; i++) {
        const next = Math.min(wire.length, at + (cuts[i % cuts.length] ?? 1));
        demux.push(wire.subarray(at, next));
        at = next;
      }
      const expected = (wanted: number) =>
        Buffer.concat(list.filter(([stream]) => stream === wanted).map(([, payload]) => payload));
      expect(Buffer.concat(seen.stdout)).toEqual(expected(1));
      expect(Buffer.concat(seen.stderr)).toEqual(expected(2));
      expect(demux.insideFrame).toBe(false);
    }),
  );
});

test("an end inside a frame or its header is detected", () => {
  const wire = frame(1, Buffer.from("abc"));
  for (const [length, inside] of [
    [0, false],
    [1, true],
    [7, true],
    [8, true],
    [10, true],
    [11, false],
  ] as const) {
    const demux = new Demux(() => {});
    demux.push(wire.subarray(0, length));
    expect(demux.insideFrame, `${length} bytes`).toBe(inside);
  }
});

test("payloads are views of the chunks, not copies", () => {
  const wire = frame(1, Buffer.alloc(1000));
  const demux = new Demux((_, chunk) => expect(chunk.buffer).toBe(wire.buffer));
  demux.push(wire);
});
