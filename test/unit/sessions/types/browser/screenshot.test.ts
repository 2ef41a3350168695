import { expect, test } from "vitest";
import { DevToolsError } from "../../../../../src/sessions/types/browser/devtools.ts";
import { capture } from "../../../../../src/sessions/types/browser/screenshot.ts";

const NEVER = new AbortController().signal;

/** A tab whose pictures are too large from so many pixels on. Notes the heights that it is asked for. */
function tabUpTo(pixels: number) {
  const heights: number[] = [];
  const fetch = async (method: string, params: object): Promise<Buffer> => {
    const { clip = { width: 800, height: 600 } } = params as { clip?: { width: number; height: number } };
    heights.push(clip.height);
    if (clip.width * clip.height > pixels) throw new DevToolsError(method, "the answer is too large", true);
    return Buffer.from("picture");
  };
  return { tab: { fetch }, heights };
}

test("of a page whose picture takes too many bytes, as much is captured as fits", async () => {
  const { tab, heights } = tabUpTo(1_000_000);
  const whole = { clip: { x: 0, y: 0, width: 1_000, height: 3_001 }, truncated: false };
  await expect(capture(tab, whole, NEVER)).resolves.toMatchObject({ truncated: true });
  expect(heights).toEqual([3_001, 1_501, 751]);
  const small = { clip: { ...whole.clip, height: 500 }, truncated: false };
  await expect(capture(tab, small, NEVER)).resolves.toMatchObject({ truncated: false });
});

test.each([
  ["the viewport", undefined],
  ["a part", { clip: { x: 0, y: 0, width: 16_384, height: 16_384 }, truncated: false }],
])("a browser that always answers too much about %s fails the capture", async (_, part) => {
  await expect(capture(tabUpTo(0).tab, part, NEVER)).rejects.toThrow("too large");
});
