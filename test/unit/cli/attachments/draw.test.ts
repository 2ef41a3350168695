import { expect, test } from "vitest";
import { drawPng, pictureProtocol } from "../../../../src/cli/attachments/draw.ts";

/** The start of a PNG with this width, and some more bytes. */
function png(width: number, more = 0): Buffer {
  const head = Buffer.alloc(24 + more, 0xfe);
  Buffer.from("89504e470d0a1a0a0000000d49484452", "hex").copy(head);
  head.writeUInt32BE(width, 16);
  return head;
}

test.each([
  [{ KITTY_WINDOW_ID: "1", TERM: "xterm-kitty" }, "kitty"],
  [{ TERM: "xterm-ghostty" }, "kitty"],
  [{ TERM_PROGRAM: "ghostty", TERM: "xterm-256color" }, "kitty"],
  [{ KONSOLE_VERSION: "230804" }, "kitty"],
  [{ KONSOLE_VERSION: "210804" }, undefined],
  [{ TERM_PROGRAM: "iTerm.app" }, "iterm"],
  [{ TERM_PROGRAM: "WezTerm" }, "iterm"],
  [{ LC_TERMINAL: "iTerm2" }, "iterm"],
  [{ TERM: "xterm-256color" }, undefined],
  [{ TERM: "tmux-256color", TERM_PROGRAM: "tmux", LC_TERMINAL: "iTerm2" }, undefined],
  [{ TMUX: "/tmp/tmux", KITTY_WINDOW_ID: "1" }, undefined],
  [{}, undefined],
])("%j takes pictures as %s", (env, protocol) => {
  expect(pictureProtocol(env)).toBe(protocol);
});

test("kitty gets base64 in chunks of 4096, the last one marked, as wide as the terminal at most", () => {
  const picture = png(1920, 9000);
  const drawn = drawPng(picture, "kitty", 100) ?? "";
  const parts = [...drawn.matchAll(/\x1b_G([^;]*);([^\x1b]*)\x1b\\/g)];
  expect(parts.map(([, keys]) => keys)).toEqual(["a=T,f=100,q=2,c=100,m=1", "m=1", "m=0"]);
  expect(parts.every(([, , data = ""]) => data.length <= 4096)).toBe(true);
  expect(Buffer.from(parts.map(([, , data]) => data).join(""), "base64").equals(picture)).toBe(true);
  expect(`${parts.map(([all]) => all).join("")}\n`).toBe(drawn);
});

test("iTerm2 gets one sequence; a small picture is not enlarged", () => {
  const picture = png(80);
  expect(drawPng(picture, "iterm", 100)).toBe(
    `\x1b]1337;File=inline=1;size=${picture.length};width=10;preserveAspectRatio=1:${picture.toString("base64")}\x07\n`,
  );
});

test.each([
  ["nothing", Buffer.alloc(0)],
  ["half a head", png(80).subarray(0, 20)],
  ["text", Buffer.from(`\x1b]0;owned\x07${"x".repeat(100)}`)],
])("%s is not drawn", (_, content) => {
  expect(drawPng(content, "kitty", 80)).toBeUndefined();
});
