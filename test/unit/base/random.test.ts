import { expect, test } from "vitest";
import { newMarkerNonce, newNonce } from "../../../src/base/markers.ts";
import { takeRandom } from "../../../src/base/random.ts";

test("no random byte is returned twice, and returned bytes do not change", () => {
  const taken = Array.from({ length: 3000 }, (_, i) => takeRandom(12 + (i % 7)));
  const texts = taken.map((bytes) => bytes.toString("hex"));
  expect(taken.map(({ length }) => length)).toEqual(taken.map((_, i) => 12 + (i % 7)));
  for (let i = 0; i < 1000; i++) takeRandom(16);
  expect(taken.map((bytes) => bytes.toString("hex"))).toEqual(texts);
  // If two overlapped, they would share these eight bytes.
  const parts = texts.map((text) => text.slice(0, 16));
  expect(new Set(parts).size).toBe(parts.length);
  const everywhere = texts.join(" ");
  for (const part of parts.slice(0, 300)) expect(everywhere.split(part)).toHaveLength(2);
});

test("it returns up to the size of its pool", () => {
  takeRandom(1);
  expect(takeRandom(4096)).toHaveLength(4096);
});

test("nonces are 32 hexadecimal digits, new each time", () => {
  const nonces = Array.from({ length: 1000 }, newNonce);
  for (const nonce of nonces) expect(nonce).toMatch(/^[0-9a-f]{32}$/);
  expect(new Set(nonces).size).toBe(nonces.length);
  // Its first byte does not occur in text, so a program's output is not held back as its possible start.
  expect(newMarkerNonce()).toMatch(/^\x1e[0-9a-f]{32}$/);
});
