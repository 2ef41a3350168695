import { describe, expect, test } from "vitest";
import { EscapeFilter } from "../../../../src/cli/terminal/keyboard.ts";

/** The result of keys that are typed together, and of the same keys typed one by one. */
function typed(text: string): { keys: string; leave: boolean } {
  const together = new EscapeFilter().push(Buffer.from(text));
  const filter = new EscapeFilter();
  let keys = "";
  for (const key of text) {
    const one = filter.push(Buffer.from(key));
    keys += one.keys.toString();
    if (!one.leave) continue;
    expect({ keys: together.keys.toString(), leave: together.leave }).toEqual({ keys, leave: true });
    return { keys, leave: true };
  }
  expect({ keys: together.keys.toString(), leave: together.leave }).toEqual({ keys, leave: false });
  return { keys, leave: false };
}

describe("~. leaves", () => {
  test.each([
    ["as the first keys", "~.", ""],
    ["after Enter", "ls\r~.", "ls\r"],
    ["after a line feed", "ls\n~.", "ls\n"],
    ["and takes what follows along", "\r~.rm *\r", "\r"],
  ])("%s", (_when, text, keys) => {
    expect(typed(text)).toEqual({ keys, leave: true });
  });
});

describe("everything else is passed on", () => {
  test.each([
    ["a tilde in a line", "cd ~.", "cd ~."],
    ["a tilde before another key", "~/bin\r", "~/bin\r"],
    ["a tilde before Enter", "~\r~.", "~\r"],
    ["two tildes, as one", "~~.", "~."],
    ["bytes of any kind", "\x00\x03\x1b[A\x7f\u00e9", "\x00\x03\x1b[A\x7f\u00e9"],
  ])("%s", (_what, text, keys) => {
    expect(typed(text).keys).toBe(keys);
  });

  test("a tilde at the beginning of a line waits for the next key", () => {
    const filter = new EscapeFilter();
    expect(filter.push(Buffer.from("~")).keys).toHaveLength(0);
    expect(filter.push(Buffer.from("x")).keys.toString()).toBe("~x");
  });
});
