import { z } from "zod";
import type { BrowserUse, Outcome } from "./browser.ts";
import { DevToolsError } from "./devtools.ts";
import { bySelector, type ElementName, findElement } from "./elements.ts";
import { HTML, IS_VISIBLE, SHOWS_TEXT, TEXT } from "./page-scripts.ts";
import type { LoadState } from "./tab.ts";

/** Characters in the data of a result, which a model reads. */
const MAX_SHOWN = 200_000;
/** Characters in the attachment with a longer text. */
const MAX_TEXT = 1_000_000;
const POLL_MS = 100;

const cutText = z.object({ text: z.string().max(MAX_TEXT), length: z.number() });

/** The HTML of the page, or of an element. */
export async function readHtml(use: BrowserUse, name: ElementName): Promise<Outcome> {
  const { text, length } = await read(use, name, HTML);
  return shown("html", "text/html", text, length);
}

/** The readable text of the page and its frames, or of an element. */
export async function readText(use: BrowserUse, name: ElementName): Promise<Outcome> {
  if (name.selector !== undefined || name.ref !== undefined) {
    const { text, length } = await read(use, name, TEXT);
    return shown("text", "text/plain", text, length);
  }
  const { tab, signal } = use;
  let all = "";
  let length = 0;
  for (const frame of await tab.frames(signal)) {
    const left = MAX_TEXT - all.length;
    const asked = tab.callIn(frame, TEXT, [left], cutText, signal);
    const isPage = frame.frameId === tab.targetId;
    // A frame may go away at any time; the page itself must answer.
    const found = await (isPage ? asked : asked.catch(() => undefined));
    signal.throwIfAborted();
    if (found === undefined || found.text === "") continue;
    all += (all === "" ? "" : "\n\n") + found.text;
    length += found.length;
  }
  const { data, ...more } = shown("text", "text/plain", all, length);
  return { data: { ...data, hanging_frames: tab.hanging.length }, ...more };
}

async function read({ tab, references, signal }: BrowserUse, name: ElementName, script: string) {
  if (name.selector === undefined && name.ref === undefined) {
    return tab.callOn(await tab.document(signal), script, [MAX_TEXT], cutText, signal);
  }
  const element = await findElement(tab, references, name, signal);
  return tab.callOn(element, script, [MAX_TEXT], cutText, signal);
}

function shown(name: string, mediaType: string, text: string, length: number): Outcome {
  const wellFormed = text.toWellFormed();
  const data = {
    [name]: wellFormed.slice(0, MAX_SHOWN).toWellFormed(),
    length,
    truncated: length > MAX_SHOWN,
  };
  if (length <= MAX_SHOWN) return { data };
  return {
    data,
    attachments: [{ name, mediaType: `${mediaType}; charset=utf-8`, content: Buffer.from(wellFormed) }],
  };
}

/** What to wait for. All conditions that are set must hold. */
interface Awaited {
  readonly selector?: string | undefined;
  readonly hidden?: boolean | undefined;
  readonly text?: string | undefined;
  /** A part of the page's URL. */
  readonly url?: string | undefined;
  readonly state?: LoadState | undefined;
}

/** Waits until all conditions hold. */
export async function waitFor(use: BrowserUse, awaited: Awaited): Promise<void> {
  const { tab, signal } = use;
  // If the page changes its document meanwhile, ask again.
  const holds = (): Promise<boolean> =>
    isAsAwaited(use, awaited).catch((error: unknown) => {
      if (error instanceof DevToolsError) return false;
      throw error;
    });
  while (!(await holds())) await tab.changes(POLL_MS, signal);
}

async function isAsAwaited({ tab, signal }: BrowserUse, awaited: Awaited): Promise<boolean> {
  const { selector, hidden = false, text, url, state } = awaited;
  if (state !== undefined && !tab.has(state)) return false;
  if (url !== undefined && !(await tab.page(signal)).url.includes(url)) return false;
  if (selector !== undefined) {
    const element = await bySelector(tab, selector, signal);
    const isVisible =
      element !== undefined &&
      (await tab.callOn(element, IS_VISIBLE, [], z.boolean(), signal).catch(() => false));
    signal.throwIfAborted();
    if (isVisible === hidden) return false;
  }
  if (text === undefined) return true;
  for (const frame of await tab.frames(signal)) {
    const shows = await tab.callIn(frame, SHOWS_TEXT, [text], z.boolean(), signal).catch(() => false);
    signal.throwIfAborted();
    if (shows) return true;
  }
  return false;
}
