import { type Duration, durationFromMs, type Timestamp, timestampFromMs } from "@bufbuild/protobuf/wkt";
import { invalidArgument } from "../../base/errors.ts";
import { MAX_TIMEOUT_MS } from "../../server/limits.ts";

const NANOS_PER_SECOND = 1_000_000_000;
const NANOS_PER_MS = 1_000_000;

/**
 * Reads a duration as milliseconds, rounded up so that the shortest one is not none.
 *
 * @returns undefined if it is unset
 * @throws BerthError `INVALID_ARGUMENT` if it is malformed, negative or longer than 24 days
 */
export function durationToMs(field: string, duration: Duration | undefined): number | undefined {
  if (!duration) return undefined;
  const { seconds, nanos } = duration;
  if (Math.abs(nanos) >= NANOS_PER_SECOND || (seconds > 0n && nanos < 0) || (seconds < 0n && nanos > 0)) {
    throw invalidArgument(field, "is not a valid duration");
  }
  if (seconds < 0n || nanos < 0) throw invalidArgument(field, "must not be negative");
  const ms = Number(seconds) * 1000 + Math.ceil(nanos / NANOS_PER_MS);
  if (ms > MAX_TIMEOUT_MS) throw invalidArgument(field, "must not be longer than 24 days");
  return ms;
}

/** Writes milliseconds, whole or not, as a duration, down to microseconds. */
export function msToDuration(ms: number): Duration {
  const duration = durationFromMs(Math.floor(ms));
  duration.nanos += Math.floor((ms % 1) * 1000) * 1000;
  return duration;
}

/** Writes wall time in milliseconds since the Unix epoch as a timestamp. */
export function msToTimestamp(ms: number): Timestamp {
  return timestampFromMs(Math.round(ms));
}
