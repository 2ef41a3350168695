import { z } from "zod";
import type { BrowserUse, Outcome } from "./browser.ts";
import { DevToolsError } from "./devtools.ts";
import { type Box, type ElementName, findElement, placeOf } from "./elements.ts";
import { ToolFailure } from "./failure.ts";
import type { Tab } from "./tab.ts";

/** Chromium draws nothing larger. A taller page is cut off. */
const MAX_SIDE = 16_384;
const MAX_PIXELS = 40_000_000;
const SIGNATURE = Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]);
const HEADER_BYTES = 24;

const metrics = z.object({
  cssVisualViewport: z.object({ pageX: z.number(), pageY: z.number() }),
  cssContentSize: z.object({ width: z.number(), height: z.number() }),
});

/** Takes a screenshot of the viewport, the whole page, or an element. */
export async function screenshot(use: BrowserUse, name: ElementName, fullPage: boolean): Promise<Outcome> {
  const { tab, signal } = use;
  const part = await partOf(use, name, fullPage);
  const [{ content, truncated }, { url, title }] = await Promise.all([
    capture(tab, part, signal),
    tab.shown(signal),
  ]);
  const isPng = content.length > HEADER_BYTES && content.subarray(0, SIGNATURE.length).equals(SIGNATURE);
  if (!isPng) throw new ToolFailure("The browser gave no picture.");
  const data = {
    width: content.readUInt32BE(16),
    height: content.readUInt32BE(20),
    url,
    title,
    truncated,
  };
  return { data, attachments: [{ name: "screenshot", mediaType: "image/png", content }] };
}

/** A part of a page, and whether more was asked for. */
interface Part {
  readonly clip: Box;
  readonly truncated: boolean;
}

/**
 * Captures a part of the page, or less of it: how many bytes a picture takes is known only once the browser has made it.
 * @param part undefined: the viewport.
 */
export async function capture(
  tab: Pick<Tab, "fetch">,
  part: Part | undefined,
  signal: AbortSignal,
): Promise<{ readonly content: Buffer; readonly truncated: boolean }> {
  const params = {
    format: "png",
    // A fifth larger, in half the time.
    optimizeForSpeed: true,
    ...(part && { clip: { ...part.clip, scale: 1 }, captureBeyondViewport: true }),
  };
  try {
    const content = await tab.fetch("Page.captureScreenshot", params, signal);
    return { content, truncated: part?.truncated ?? false };
  } catch (error) {
    const isTooLarge = error instanceof DevToolsError && error.tooLarge;
    if (!isTooLarge || part === undefined || part.clip.height <= 1) throw error;
    const clip = { ...part.clip, height: Math.ceil(part.clip.height / 2) };
    return capture(tab, { clip, truncated: true }, signal);
  }
}

/** The part of the page to capture. Undefined: the viewport. */
async function partOf(
  { tab, references, signal }: BrowserUse,
  name: ElementName,
  fullPage: boolean,
): Promise<Part | undefined> {
  const isNamed = name.selector !== undefined || name.ref !== undefined;
  if (!isNamed && !fullPage) return undefined;
  const box = isNamed
    ? (await placeOf(tab, await findElement(tab, references, name, signal), signal)).whole
    : undefined;
  const { cssVisualViewport: viewport, cssContentSize: page } = await tab.send(
    "Page.getLayoutMetrics",
    {},
    metrics,
    signal,
  );
  const whole =
    box === undefined
      ? { x: 0, y: 0, ...page }
      : { ...box, x: box.x + viewport.pageX, y: box.y + viewport.pageY };
  const width = Math.min(Math.ceil(whole.width), MAX_SIDE);
  const height = Math.min(Math.ceil(whole.height), MAX_SIDE, Math.floor(MAX_PIXELS / width));
  const truncated = height < Math.floor(whole.height) || width < Math.floor(whole.width);
  return { clip: { x: whole.x, y: whole.y, width, height }, truncated };
}
