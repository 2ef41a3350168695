import { expect, test } from "vitest";
import { keyOf, parseChord } from "../../../../../src/sessions/types/browser/keys.ts";

test.each([
  ["Enter", [], "Enter", "\r"],
  ["return", [], "Enter", "\r"],
  ["a", [], "a", "a"],
  ["+", [], "+", "+"],
  ["space", [], " ", " "],
  ["Control+a", ["Control"], "a", undefined],
  ["ctrl+shift+ArrowLeft", ["Control", "Shift"], "ArrowLeft", undefined],
  ["Control++", ["Control"], "+", undefined],
  ["Shift+a", ["Shift"], "A", "A"],
  ["Shift+B", ["Shift"], "B", "B"],
  ["Shift+1", ["Shift"], "!", "!"],
  ["Shift+0", ["Shift"], ")", ")"],
  ["Shift+/", ["Shift"], "?", "?"],
  ["Shift+?", ["Shift"], "?", "?"],
  ["Shift+space", ["Shift"], " ", " "],
  ["Control+Shift+1", ["Control", "Shift"], "1", undefined],
  ["F12", [], "F12", undefined],
] as const)("%s is a key with what is held", (text, modifiers, key, typed) => {
  const chord = parseChord(text);
  expect(chord?.modifiers.map((one) => one.key)).toEqual(modifiers);
  expect(chord?.key).toMatchObject({ key });
  expect(chord?.key.text).toBe(typed);
});

test.each(["", "NoKey", "a+b", "Hyper+x", "Control+", "é+Enter", "東"])("%j names no key", (text) => {
  expect(parseChord(text)).toBeUndefined();
});

test("every printable ASCII character has a key", () => {
  for (let code = 0x20; code < 0x7f; code++) {
    const character = String.fromCharCode(code);
    expect(keyOf(character)).toMatchObject({ key: character, text: character });
  }
  expect(keyOf("😀")).toBeUndefined();
});
