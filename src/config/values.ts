import { ownValue } from "../base/own-value.ts";

/** A text cannot be parsed. The message says what is wrong and what to write instead. */
export class ValueError extends Error {}

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

const DURATION_UNITS: Readonly<Record<string, number>> = { ms: 1, s: SECOND, m: MINUTE, h: HOUR, d: DAY };

/** The longest duration that timers and the wire support. */
export const MAX_DURATION_MS = 24 * DAY;

const SIZE_UNITS: Readonly<Record<string, number>> = {
  B: 1,
  KB: 1e3,
  MB: 1e6,
  GB: 1e9,
  TB: 1e12,
  KIB: 2 ** 10,
  MIB: 2 ** 20,
  GIB: 2 ** 30,
  TIB: 2 ** 40,
};

/**
 * Parses a duration, such as `250ms`, `300s`, `5m`, `1h` or `7d`, to whole milliseconds.
 * @throws ValueError also above the maximum, by default 24 days, or below the minimum
 */
export function parseDuration(
  text: string,
  { minMs = 1, maxMs = MAX_DURATION_MS }: { readonly minMs?: number; readonly maxMs?: number } = {},
): number {
  const forms = "write 250ms, 300s, 5m, 1h or 7d";
  const { amount, unit } = splitUnit(text);
  if (amount === undefined) throw new ValueError(`${quoted(text)} is not a duration; ${forms}`);
  if (unit === "") throw new ValueError(`${quoted(text)} has no unit; for seconds write ${amount}s`);
  const factor = ownValue(DURATION_UNITS, unit);
  if (factor === undefined) throw new ValueError(`${quoted(unit)} is not a unit of time; ${forms}`);
  const ms = Math.round(amount * factor);
  if (ms > maxMs) throw new ValueError(`${quoted(text)} is too long; the maximum is ${maxMs / DAY}d`);
  if (ms < minMs) throw new ValueError(`${quoted(text)} is too short; the minimum is ${minMs}ms`);
  return ms;
}

/**
 * Parses a size, such as `512MiB`, `1GiB` (powers of 1024) or `64MB` (powers of 1000), to bytes.
 * @throws ValueError also below the minimum
 */
export function parseSize(text: string, { min = "1B" }: { readonly min?: string } = {}): number {
  const { amount, unit } = splitUnit(text);
  if (amount === undefined) throw new ValueError(`${quoted(text)} is not a size; write 512MiB, 1GiB or 64MB`);
  if (unit === "") {
    throw new ValueError(
      `${quoted(text)} has no unit; write ${amount}MiB for mebibytes, ${amount}B for bytes`,
    );
  }
  const factor = SIZE_UNITS[unit.toUpperCase()];
  if (factor === undefined)
    throw new ValueError(`${quoted(unit)} is not a unit of size; write 512MiB, 1GiB or 64MB`);
  const bytes = Math.round(amount * factor);
  if (!Number.isSafeInteger(bytes)) throw new ValueError(`${quoted(text)} is too much`);
  if (min !== text && bytes < parseSize(min)) {
    throw new ValueError(`${quoted(text)} is too little; the minimum is ${min}`);
  }
  return bytes;
}

/** Parses a whole number within a range. */
export function parseCount(
  text: string,
  { min, max }: { readonly min: number; readonly max: number },
): number {
  const count = Number(text);
  if (!/^\d{1,15}$/.test(text) || count < min || count > max) {
    throw new ValueError(`${quoted(text)} is not a whole number from ${min} to ${max}`);
  }
  return count;
}

/** Parses a number of CPUs, such as `1.5`, to thousandths of a CPU. */
export function parseCpus(text: string): number {
  const millis = Math.round(Number(text) * 1000);
  if (!/^\d{1,6}(\.\d+)?$/.test(text) || millis < 10) {
    throw new ValueError(`${quoted(text)} is not a number of CPUs of 0.01 or more; write 1, 0.5 or 2.0`);
  }
  return millis;
}

/** Parses `KEY=VALUE`, for which users may know another `form`. The value may be empty and may contain further `=`. */
export function parseKeyValue(text: string, form = "KEY=VALUE"): readonly [key: string, value: string] {
  const at = text.indexOf("=");
  if (at < 1) throw new ValueError(`${quoted(text)} is not of the form ${form}`);
  return [text.slice(0, at), text.slice(at + 1)];
}

/** Parses one of the given words. */
export function parseWord<W extends string>(text: string, words: readonly W[]): W {
  const word = words.find((candidate) => candidate === text);
  if (word === undefined) throw new ValueError(`${quoted(text)} is not one of ${words.join(", ")}`);
  return word;
}

/** Names of Linux's signals, starting with 1. Sandboxes run Linux, even if the client does not. */
const SIGNAL_NAMES =
  "HUP INT QUIT ILL TRAP ABRT BUS FPE KILL USR1 SEGV USR2 PIPE ALRM TERM STKFLT CHLD CONT STOP TSTP TTIN TTOU " +
  "URG XCPU XFSZ VTALRM PROF WINCH IO PWR SYS";
const LAST_SIGNAL = 64;

/** Parses a Linux signal, such as `TERM`, `SIGTERM` or `15`, to its number. */
export function parseSignal(text: string): number {
  const name = text.toUpperCase().replace(/^SIG/, "");
  const number = /^\d{1,3}$/.test(text) ? Number(text) : SIGNAL_NAMES.split(" ").indexOf(name) + 1;
  if (number < 1 || number > LAST_SIGNAL) {
    throw new ValueError(
      `${quoted(text)} is not a signal; write TERM, SIGTERM or a number from 1 to ${LAST_SIGNAL}`,
    );
  }
  return number;
}

/** Parses the value of a switch in an environment variable or a file. */
export function parseSwitch(text: string): boolean {
  if (/^(true|1|yes|on)$/i.test(text)) return true;
  if (/^(false|0|no|off)$/i.test(text)) return false;
  throw new ValueError(`${quoted(text)} is neither true nor false`);
}

function splitUnit(text: string): { amount: number | undefined; unit: string } {
  const match = /^(\d{1,15}(?:\.\d{1,9})?)([A-Za-z]*)$/.exec(text.trim());
  return { amount: match ? Number(match[1]) : undefined, unit: match?.[2] ?? "" };
}

function quoted(text: string): string {
  return JSON.stringify(text);
}
