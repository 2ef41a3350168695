import { expect, test } from "vitest";
import { ScreenModes } from "../../../../src/cli/terminal/local-terminal.ts";

/** The text that undoes the modes of another, written at once and byte by byte. */
function undoOf(text: string): string {
  const together = new ScreenModes();
  together.watch(Buffer.from(text));
  const apart = new ScreenModes();
  for (const byte of Buffer.from(text)) apart.watch(Buffer.of(byte));
  const undo = together.undo();
  expect(apart.undo()).toBe(undo);
  return undo;
}

test.each([
  ["nothing but text", "hello \x1b[31mred\x1b[m [?1049h", ""],
  ["what was undone already", "\x1b[?1049h\x1b[?25l a file \x1b[?25h\x1b[?1049l", ""],
  ["modes of no concern", "\x1b[?12h\x1b[?69l", ""],
  ["the other screen", "\x1b[?1049h", "\x1b[m\x1b[?1049l"],
  ["a hidden cursor", "\x1b[?25h\x1b[?25l", "\x1b[m\x1b[?25h"],
  ["no line wrap", "\x1b[?7l", "\x1b[m\x1b[?7h"],
  ["several in one", "\x1b[?1000;1006;2004h", "\x1b[m\x1b[?1000l\x1b[?1006l\x1b[?2004l"],
  ["the keypad", "\x1b[?1h\x1b=", "\x1b[m\x1b>\x1b[?1l"],
  ["the screen after all else", "\x1b[?1049h\x1b[?2004h\x1b[?25l", "\x1b[m\x1b[?25h\x1b[?2004l\x1b[?1049l"],
])("%s", (_what, text, undo) => {
  expect(undoOf(text)).toBe(undo);
});

test("each mode is undone once", () => {
  const modes = new ScreenModes();
  modes.watch(Buffer.from("\x1b[?25l"));
  expect(modes.undo()).not.toBe("");
  expect(modes.undo()).toBe("");
});

test("a sequence that never ends holds nothing back", () => {
  const modes = new ScreenModes();
  modes.watch(Buffer.from(`\x1b[?${"1;".repeat(100_000)}`));
  modes.watch(Buffer.from("\x1b[?25l"));
  expect(modes.undo()).toBe("\x1b[m\x1b[?25h");
});
