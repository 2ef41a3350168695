import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { BadFrame, FrameReader, MAX_DEPTH } from "../../../src/sessions/types/vm/frames.ts";
import { keptBytes } from "../../support/kept-bytes.ts";

const MAX_PAYLOAD = 1 << 20;

function frame(header: string | Buffer, payload: Uint8Array = Buffer.alloc(0)): Buffer {
  const text = Buffer.from(header as string);
  const lengths = Buffer.alloc(8);
  lengths.writeUInt32BE(text.length, 0);
  lengths.writeUInt32BE(payload.length, 4);
  return Buffer.concat([lengths, text, payload]);
}

describe("frames", () => {
  test("arrive as they were sent, however the stream is split", () => {
    const frames = fc.array(fc.tuple(fc.jsonValue({ maxDepth: 4 }), fc.uint8Array({ maxLength: 50 })), {
      maxLength: 6,
    });
    fc.assert(
      fc.property(frames, fc.infiniteStream(fc.integer({ min: 1, max: 40 })), (sent, sizes) => {
        const stream = Buffer.concat(sent.map(([header, payload]) => frame(JSON.stringify(header), payload)));
        const reader = new FrameReader();
        const got: unknown[] = [];
        for (let at = 0; at < stream.length; ) {
          const { value: size } = sizes.next();
          for (const { header, payload } of reader.push(stream.subarray(at, at + size), MAX_PAYLOAD)) {
            got.push([header, Uint8Array.from(payload)]);
          }
          at += size;
        }
        expect(got).toEqual(sent.map(([header, payload]) => [JSON.parse(JSON.stringify(header)), payload]));
      }),
    );
  });

  const lengths = (header: number, payload: number): Buffer => {
    const bytes = Buffer.alloc(8);
    bytes.writeUInt32BE(header, 0);
    bytes.writeUInt32BE(payload, 4);
    return bytes;
  };

  test.each([
    ["a header that is too large", lengths((1 << 20) + 1, 0)],
    ["a payload that is too large", lengths(2, MAX_PAYLOAD + 1)],
    ["no JSON", frame("{oops")],
    ["no UTF-8", frame(Buffer.from([0x22, 0xff]))],
    ["lists in lists", frame(`${"[".repeat(MAX_DEPTH + 1)}${"]".repeat(MAX_DEPTH + 1)}`)],
    ["a million of values", frame(`[${"0,".repeat(300_000)}0]`)],
  ])("%s is refused", (_, bytes) => {
    expect(() => new FrameReader().push(bytes, MAX_PAYLOAD)).toThrow(BadFrame);
  });

  test("in tiny chunks take no more memory than their bytes", async () => {
    const payload = Buffer.alloc(100_000, "x");
    const reader = new FrameReader();
    const sent = frame("{}", payload);
    const before = await keptBytes();
    for (let at = 0; at < sent.length - 1; at++) {
      reader.push(Buffer.from(sent.subarray(at, at + 1)), MAX_PAYLOAD);
    }
    expect((await keptBytes()) - before).toBeLessThan(5 * 2 ** 20);
    expect(reader.push(sent.subarray(-1), MAX_PAYLOAD)).toEqual([{ header: {}, payload }]);
  });

  test("that are large take no more memory than they have", async () => {
    const payload = Buffer.alloc(20 * 2 ** 20);
    const reader = new FrameReader();
    const sent = frame("{}", payload);
    const before = await keptBytes();
    for (let at = 0; at < sent.length - 1; at += 65_536) {
      reader.push(sent.subarray(at, Math.min(at + 65_536, sent.length - 1)), payload.length);
    }
    expect((await keptBytes()) - before).toBeLessThan(payload.length + 2 * 2 ** 20);
    reader.clear();
    expect((await keptBytes()) - before).toBeLessThan(2 * 2 ** 20);
  });

  test("brackets in text do not count as depth", () => {
    const text = JSON.stringify({ text: `"\\${"[".repeat(1_000)}` });
    expect(new FrameReader().push(frame(text), MAX_PAYLOAD)).toMatchObject([{ header: JSON.parse(text) }]);
  });
});
