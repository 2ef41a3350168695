import { create } from "@bufbuild/protobuf";
import { DurationSchema, timestampMs } from "@bufbuild/protobuf/wkt";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { durationToMs, msToDuration, msToTimestamp } from "../../../../src/rpc/validate/fields.ts";
import { MAX_TIMEOUT_MS } from "../../../../src/server/limits.ts";
import { refusal } from "./refusal.ts";

const duration = (seconds: bigint, nanos: number) => create(DurationSchema, { seconds, nanos });

describe("durationToMs", () => {
  test("keeps an unset field unset, and zero as zero", () => {
    expect(durationToMs("timeout", undefined)).toBeUndefined();
    expect(durationToMs("timeout", duration(0n, 0))).toBe(0);
  });

  test("rounds up, so that the shortest duration is not zero", () => {
    expect(durationToMs("timeout", duration(0n, 1))).toBe(1);
    expect(durationToMs("timeout", duration(1n, 500_000_001))).toBe(1501);
  });

  test("accepts 24 days and no more", () => {
    expect(durationToMs("timeout", duration(24n * 86_400n, 0))).toBe(MAX_TIMEOUT_MS);
    expect(refusal(() => durationToMs("timeout", duration(24n * 86_400n, 1)))).toBe(
      "timeout: must not be longer than 24 days",
    );
    expect(refusal(() => durationToMs("timeout", duration(2n ** 63n - 1n, 0)))).toMatch(/24 days/);
  });

  test.each([
    [-1n, 0],
    [0n, -1],
    [-5n, -3],
  ])("refuses the negative %d s %d ns", (seconds, nanos) => {
    expect(refusal(() => durationToMs("spec.idle_timeout", duration(seconds, nanos)))).toBe(
      "spec.idle_timeout: must not be negative",
    );
  });

  test.each([
    [1n, -1],
    [-1n, 1],
    [0n, 1_000_000_000],
    [0n, -2_000_000_000],
  ])("refuses the malformed %d s %d ns", (seconds, nanos) => {
    expect(refusal(() => durationToMs("timeout", duration(seconds, nanos)))).toBe(
      "timeout: is not a valid duration",
    );
  });

  test("converts any duration of any message to a number within range, or refuses it", () => {
    fc.assert(
      fc.property(
        fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n }),
        fc.integer({ min: -(2 ** 31), max: 2 ** 31 - 1 }),
        (seconds, nanos) => {
          let ms: number | undefined;
          const refused = refusal(() => {
            ms = durationToMs("timeout", duration(seconds, nanos));
          });
          if (refused === undefined) {
            expect(Number.isSafeInteger(ms)).toBe(true);
            expect(ms).toBeGreaterThanOrEqual(0);
            expect(ms).toBeLessThanOrEqual(MAX_TIMEOUT_MS);
          }
        },
      ),
    );
  });

  test("reads back what msToDuration wrote", () => {
    fc.assert(
      fc.property(fc.integer({ min: 0, max: MAX_TIMEOUT_MS }), (ms) => {
        expect(durationToMs("timeout", msToDuration(ms))).toBe(ms);
      }),
    );
  });
});

test("msToDuration keeps fractions of a millisecond", () => {
  expect(msToDuration(1.6)).toMatchObject({ seconds: 0n, nanos: 1_600_000 });
});

test("msToTimestamp keeps wall time to the millisecond", () => {
  fc.assert(
    fc.property(fc.integer({ min: 0, max: 4_102_444_800_000 }), (ms) => {
      expect(timestampMs(msToTimestamp(ms))).toBe(ms);
    }),
  );
});
