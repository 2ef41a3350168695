import { describe, expect, test } from "vitest";
import {
  parseCount,
  parseCpus,
  parseDuration,
  parseKeyValue,
  parseSignal,
  parseSize,
  parseSwitch,
  ValueError,
} from "../../../src/config/values.ts";

describe("durations", () => {
  test.each([
    ["250ms", 250],
    ["300s", 300_000],
    ["1.5s", 1500],
    ["5m", 300_000],
    ["1h", 3_600_000],
    ["24h", 86_400_000],
    ["7d", 604_800_000],
    ["24d", 24 * 86_400_000],
  ])("%s is %d ms", (text, ms) => expect(parseDuration(text)).toBe(ms));

  test.each([
    ["300", "for seconds write 300s"],
    ["", "write 250ms, 300s, 5m, 1h or 7d"],
    ["-5s", "is not a duration"],
    ["5 minutes", "is not a duration"],
    ["1h30m", "is not a duration"],
    ["5w", '"w" is not a unit of time'],
    ["5M", '"M" is not a unit of time'],
    ["5constructor", '"constructor" is not a unit of time'],
    ["25d", "the maximum is 24d"],
    ["999999999999999d", "the maximum is 24d"],
    ["0s", "the minimum is 1ms"],
    ["Infinity", "is not a duration"],
    ["1e3s", "is not a duration"],
  ])("%j is refused", (text, problem) => {
    expect(() => parseDuration(text)).toThrow(ValueError);
    expect(() => parseDuration(text)).toThrow(problem);
  });

  test("zero is allowed if an option says so", () => expect(parseDuration("0s", { minMs: 0 })).toBe(0));
});

describe("sizes", () => {
  test.each([
    ["512MiB", 512 * 2 ** 20],
    ["512mib", 512 * 2 ** 20],
    ["1GiB", 2 ** 30],
    ["0.5GiB", 2 ** 29],
    ["64MB", 64_000_000],
    ["100B", 100],
  ])("%s is %d bytes", (text, bytes) => expect(parseSize(text)).toBe(bytes));

  test.each([
    ["512", "write 512MiB for mebibytes, 512B for bytes"],
    ["512m", '"m" is not a unit of size'],
    ["much", "is not a size"],
    ["0MiB", "the minimum is 1B"],
    ["-1MiB", "is not a size"],
    ["999999999999TiB", "is too much"],
  ])("%j is refused", (text, problem) => expect(() => parseSize(text)).toThrow(problem));

  test("the error shows the minimum as it was set", () => {
    expect(() => parseSize("5MiB", { min: "6MiB" })).toThrow('"5MiB" is too little; the minimum is 6MiB');
    expect(parseSize("6MiB", { min: "6MiB" })).toBe(6 * 2 ** 20);
  });
});

describe("other values", () => {
  test("counts must be within their range", () => {
    expect(parseCount("7", { min: 1, max: 10 })).toBe(7);
    for (const text of ["0", "11", "1.5", "-1", "", " 7", "0x7", "7e0"]) {
      expect(() => parseCount(text, { min: 1, max: 10 })).toThrow("is not a whole number from 1 to 10");
    }
  });

  test("CPUs become thousandths", () => {
    expect(parseCpus("1.0")).toBe(1000);
    expect(parseCpus("0.25")).toBe(250);
    for (const text of ["0", "0.001", "-1", "many", ""])
      expect(() => parseCpus(text)).toThrow("number of CPUs");
  });

  test("a value may be empty and may contain further =", () => {
    expect(parseKeyValue("A=b=c")).toEqual(["A", "b=c"]);
    expect(parseKeyValue("A=")).toEqual(["A", ""]);
    for (const text of ["A", "=b", ""]) expect(() => parseKeyValue(text)).toThrow("KEY=VALUE");
  });

  test("switches take the usual words", () => {
    for (const text of ["true", "1", "yes", "ON"]) expect(parseSwitch(text)).toBe(true);
    for (const text of ["false", "0", "no", "off"]) expect(parseSwitch(text)).toBe(false);
    expect(() => parseSwitch("maybe")).toThrow("neither true nor false");
  });
});

describe("signals", () => {
  test.each([
    ["HUP", 1],
    ["KILL", 9],
    ["SIGKILL", 9],
    ["sigusr1", 10],
    ["term", 15],
    ["CHLD", 17],
    ["SYS", 31],
    ["64", 64],
  ])("%s is %d", (text, number) => expect(parseSignal(text)).toBe(number));

  test.each(["", "SIG", "0", "65", "-9", "9.5", "LOUD", " TERM"])("%j is refused", (text) => {
    expect(() => parseSignal(text)).toThrow("is not a signal; write TERM, SIGTERM or a number from 1 to 64");
  });
});
