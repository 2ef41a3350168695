import fc from "fast-check";
import { expect, test } from "vitest";
import { type Found, MarkerScanner } from "../../../src/base/markers.ts";

const NONCE = "0123456789abcdef0123456789abcdef";

/** Feeds `bytes` cut at the given places; returns the data before the marker and the marker. */
function scan(bytes: Buffer, cuts: readonly number[]): { data: Buffer; found: Found | undefined } {
  const data: Buffer[] = [];
  const scanner = new MarkerScanner(NONCE, (chunk) => data.push(Buffer.from(chunk)));
  const places = [...new Set([0, ...cuts.map((cut) => cut % (bytes.length + 1)), bytes.length])].sort(
    (a, b) => a - b,
  );
  let found: Found | undefined;
  for (let i = 0; i + 1 < places.length && found === undefined; i++) {
    found = scanner.push(Buffer.from(bytes.subarray(places[i], places[i + 1])));
  }
  if (found === undefined) scanner.flush();
  return { data: Buffer.concat(data), found };
}

/** Bytes that often look like the start of the nonce. */
const treacherous = fc
  .array(
    fc.oneof(
      fc.uint8Array({ maxLength: 20 }).map((bytes) => Buffer.from(bytes)),
      fc.nat(NONCE.length - 1).map((length) => Buffer.from(NONCE.slice(0, length))),
      fc.nat(NONCE.length - 2).map((length) => Buffer.from(NONCE.slice(1, 1 + length))),
    ),
    { maxLength: 20 },
  )
  .map((parts) => Buffer.concat(parts))
  .filter((bytes) => Buffer.concat([bytes, Buffer.from(NONCE)]).indexOf(NONCE) === bytes.length);

test("passes on every byte before the marker and finds it, however the stream is split", () => {
  fc.assert(
    fc.property(
      treacherous,
      fc.integer({ min: 0, max: 255 }),
      fc.array(fc.nat(), { maxLength: 40 }),
      (data, code, cuts) => {
        const result = scan(Buffer.concat([data, Buffer.from(`${NONCE}E${code};`)]), cuts);
        expect(result.found?.text).toBe(`E${code}`);
        expect(result.data.equals(data)).toBe(true);
      },
    ),
    { numRuns: 2000 },
  );
});

test("passes on everything if there is no marker", () => {
  fc.assert(
    fc.property(treacherous, fc.array(fc.nat(), { maxLength: 40 }), (data, cuts) => {
      const result = scan(data, cuts);
      expect(result.found).toBeUndefined();
      expect(result.data.equals(data)).toBe(true);
    }),
  );
});

test("holds back no more than could start the marker", () => {
  const data: Buffer[] = [];
  const scanner = new MarkerScanner(NONCE, (chunk) => data.push(Buffer.from(chunk)));
  scanner.push(Buffer.from(`hello ${NONCE.slice(0, 5)}`));
  expect(Buffer.concat(data).toString()).toBe("hello ");
  scanner.push(Buffer.from("x"));
  expect(Buffer.concat(data).toString()).toBe(`hello ${NONCE.slice(0, 5)}x`);
});
