import { create } from "@bufbuild/protobuf";
import {
  type Duration,
  DurationSchema,
  type Timestamp,
  TimestampSchema,
  timestampFromMs,
} from "@bufbuild/protobuf/wkt";
import { invalidArgument } from "../../core/errors.ts";

/** The longest duration a request may carry: what a timer of Node holds, in whole days. */
export const MOST_DURATION_MS = 24 * 24 * 3600 * 1000;

/**
 * A request's duration in milliseconds, rounded up so that a short one does not become none; undefined where it is unset.
 * @throws `INVALID_ARGUMENT` for one that is negative, malformed or over 24 days.
 */
export function durationToMs(field: string, duration: Duration | undefined): number | undefined {
  if (duration === undefined) return undefined;
  const { seconds, nanos } = duration;
  if (seconds < 0n || nanos < 0) throw invalidArgument(field, "a duration cannot be negative.");
  if (nanos > 999_999_999) throw invalidArgument(field, `${nanos} nanoseconds are a second or more.`);
  const ms = Number(seconds) * 1000 + Math.ceil(nanos / 1e6);
  if (ms > MOST_DURATION_MS) throw invalidArgument(field, "it is longer than 24 days, the most there is.");
  return ms;
}

export function msToDuration(ms: number): Duration {
  const nanos = Math.round((ms % 1000) * 1e6);
  const whole = Math.floor(ms / 1000);
  return nanos >= 1e9
    ? create(DurationSchema, { seconds: BigInt(whole + 1), nanos: nanos - 1e9 })
    : create(DurationSchema, { seconds: BigInt(whole), nanos });
}

export function msToTimestamp(ms: number): Timestamp {
  return Number.isInteger(ms)
    ? timestampFromMs(ms)
    : create(TimestampSchema, timestampFromMs(Math.round(ms)));
}
