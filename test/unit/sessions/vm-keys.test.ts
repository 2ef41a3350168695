import { describe, expect, test } from "vitest";
import { keyName, namedKeys, splitKeys } from "../../../src/sessions/types/vm/keys.ts";

describe("keys", () => {
  test.each([
    ["enter", "Return"],
    ["ENTER", "Return"],
    ["Esc", "Escape"],
    ["pageup", "Prior"],
    ["Page_Up", "Prior"],
    ["ctrl", "Control_L"],
    ["win", "Super_L"],
    ["cmd", "Super_L"],
    ["up", "Up"],
    ["f1", "F1"],
    ["F24", "F24"],
    ["plus", "plus"],
    ["a", "a"],
    ["A", "A"],
    ["é", "é"],
    ["你", "你"],
    ["😀", "😀"],
    [" ", " "],
    ["XF86AudioPlay", "XF86AudioPlay"],
    ["KP_Enter", "KP_Enter"],
    ["constructor", "constructor"],
  ])("%j is %j", (given, name) => {
    expect(keyName("key", given)).toBe(name);
  });

  test.each(["", "\0", "\u001b", "two words", "f25 ", "\ud800", "e\u0301", "a".repeat(41), "ключ"])(
    "%j is none",
    (given) => {
      expect(() => keyName("key", given)).toThrow(/params\.key: there is no key/);
    },
  );

  test.each([
    ["ctrl+c", ["Control_L", "c"]],
    ["ctrl+C", ["Control_L", "c"]],
    ["Ctrl + Shift + T", ["Control_L", "Shift_L", "t"]],
    ["C", ["C"]],
    ["+", ["+"]],
    ["ctrl++", ["Control_L", "plus"]],
    ["alt+f4", ["Alt_L", "F4"]],
  ])("%j is %j together", (given, names) => {
    expect(splitKeys("key", given)).toEqual(names.map((name) => ["key", name]));
  });

  test.each(["ctrl+", "+a", "ctrl+nothing at all", Array(20).fill("a").join("+")])(
    "%j is refused",
    (given) => {
      expect(() => splitKeys("keys", given)).toThrow(/params\.keys: /);
    },
  );

  test("an invalid key in a list is reported with its position", () => {
    expect(namedKeys("keys", ["ctrl", "Z"])).toEqual([
      ["keys[0]", "Control_L"],
      ["keys[1]", "z"],
    ]);
    expect(() => namedKeys("keys", ["ctrl", "no key"])).toThrow(
      /params\.keys\[1\]: there is no key "no key"/,
    );
    expect(() => namedKeys("keys", [])).toThrow(/params\.keys: must name 1 to 16 keys/);
  });
});
