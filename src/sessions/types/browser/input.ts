import { z } from "zod";
import { rest } from "../../../base/async.ts";
import { listOf } from "../common.ts";
import type { BrowserUse } from "./browser.ts";
import { type ElementName, findElement, type Point, pointOf } from "./elements.ts";
import { ToolFailure } from "./failure.ts";
import { type Chord, type Key, keyOf, MODIFIER_BITS } from "./keys.ts";
import { PREPARE_TYPING, REST, SELECT, SET_VALUE } from "./page-scripts.ts";
import type { Tab } from "./tab.ts";

type MouseButton = "left" | "right" | "middle";

/** Longer text is inserted at once; shorter text is typed key by key. */
const MAX_KEYS = 1_000;
/** How many key presses may wait for their answers at the same time. */
const KEYS_AT_ONCE = 50;
/** How long an action waits for a page that it caused to load. */
const SETTLE_MS = 5_000;
/** A page reacts to an action at once, or by a timer of at most this time. */
const REACT_MS = 30;
const done = z.unknown();

/** Clicks on an element. @param offset from its top left corner. Undefined: its middle. */
export async function click(
  { tab, references, signal }: BrowserUse,
  name: ElementName,
  how: { readonly button: MouseButton; readonly count: number; readonly offset: Point | undefined },
): Promise<Point> {
  const point = await pointOf(tab, await findElement(tab, references, name, signal), how.offset, signal);
  const buttons = { left: 1, right: 2, middle: 4 }[how.button];
  await mouse(tab, "mouseMoved", point, {}, signal);
  for (let clickCount = 1; clickCount <= how.count; clickCount++) {
    const pressed = { button: how.button, clickCount };
    await mouse(tab, "mousePressed", point, { ...pressed, buttons }, signal);
    await mouse(tab, "mouseReleased", point, pressed, signal);
  }
  await settle(tab, signal);
  return point;
}

/** Turns the mouse wheel. */
export async function wheel(tab: Tab, at: Point, by: Point, signal: AbortSignal): Promise<void> {
  await mouse(tab, "mouseWheel", at, { deltaX: by.x, deltaY: by.y }, signal);
}

function mouse(tab: Tab, type: string, { x, y }: Point, more: object, signal: AbortSignal): Promise<unknown> {
  return tab.send("Input.dispatchMouseEvent", { type, x, y, ...more }, done, signal);
}

/** Types into an element, or, if none is named, into the focused one. */
export async function type(
  { tab, references, signal }: BrowserUse,
  name: ElementName,
  text: string,
  how: { readonly clear: boolean; readonly submit: boolean },
): Promise<void> {
  if (name.selector !== undefined || name.ref !== undefined) {
    const element = await findElement(tab, references, name, signal);
    const kind = z.enum(["text", "value", "none", "disabled"]);
    await tab
      .send("DOM.scrollIntoViewIfNeeded", { objectId: element.objectId }, done, signal, element.session)
      .catch(() => {
        throw new ToolFailure("The element is not visible.");
      });
    const takes = await tab.callOn(element, PREPARE_TYPING, [how.clear], kind, signal);
    if (takes === "disabled") throw new ToolFailure("The element is disabled or read-only.");
    if (takes === "none") throw new ToolFailure("The element takes no text. Use click, select or upload.");
    if (takes === "value") {
      const taken = await tab.callOn(element, SET_VALUE, [text], z.string(), signal);
      if (taken === "" && text !== "") {
        throw new ToolFailure(
          `The element does not take ${JSON.stringify(text)}. A date is written 2026-01-31, a time 13:45, a month 2026-01, a week 2026-W05, date and time 2026-01-31T13:45, a color #336699.`,
        );
      }
    }
    if (takes === "text") await insert(tab, text, how.clear, signal);
  } else {
    await insert(tab, text, false, signal);
  }
  if (how.submit) await press(tab, { modifiers: [], key: keyOf("\n") as Key }, signal);
  else await settle(tab, signal);
}

async function insert(tab: Tab, text: string, clear: boolean, signal: AbortSignal): Promise<void> {
  // The text to replace is selected at this point.
  if (clear && text === "")
    return keystroke(tab, { key: "Delete", code: "Delete", windowsVirtualKeyCode: 46 }, 0, signal);
  // The line ends of Windows would be typed as two.
  const characters = [...text.replaceAll("\r\n", "\n")];
  if (characters.length > MAX_KEYS) {
    await tab.send("Input.insertText", { text }, done, signal);
    return;
  }
  for (let from = 0; from < characters.length; from += KEYS_AT_ONCE) {
    await Promise.all(
      characters.slice(from, from + KEYS_AT_ONCE).map((character) => {
        const key = keyOf(character);
        if (key !== undefined) return keystroke(tab, key, 0, signal);
        return tab.send("Input.insertText", { text: character }, done, signal);
      }),
    );
  }
}

/** Presses a key while others are held down. */
export async function press(tab: Tab, { modifiers, key }: Chord, signal: AbortSignal): Promise<void> {
  let held = 0;
  for (const modifier of modifiers) {
    held |= MODIFIER_BITS[modifier.key] ?? 0;
    await tab.send(
      "Input.dispatchKeyEvent",
      { type: "rawKeyDown", modifiers: held, ...modifier },
      done,
      signal,
    );
  }
  await keystroke(tab, key, held, signal);
  for (const modifier of modifiers.toReversed()) {
    held &= ~(MODIFIER_BITS[modifier.key] ?? 0);
    await tab.send("Input.dispatchKeyEvent", { type: "keyUp", modifiers: held, ...modifier }, done, signal);
  }
  await settle(tab, signal);
}

async function keystroke(tab: Tab, key: Key, modifiers: number, signal: AbortSignal): Promise<void> {
  const { text, ...up } = key;
  const isPaste = modifiers === MODIFIER_BITS.Control && COMMANDS[key.key] !== undefined;
  const down = {
    type: text === undefined ? "rawKeyDown" : "keyDown",
    modifiers,
    ...key,
    // Without a window, nothing else translates these keys into editing commands.
    ...(isPaste && { commands: [COMMANDS[key.key]] }),
  };
  await Promise.all([
    tab.send("Input.dispatchKeyEvent", down, done, signal),
    tab.send("Input.dispatchKeyEvent", { type: "keyUp", modifiers, ...up }, done, signal),
  ]);
}

const COMMANDS: Readonly<Record<string, string>> = {
  a: "selectAll",
  c: "copy",
  v: "paste",
  x: "cut",
  z: "undo",
  y: "redo",
};

/** Selects options of a select element. Returns the selected values. */
export async function select(
  { tab, references, signal }: BrowserUse,
  name: ElementName,
  values: readonly string[],
): Promise<readonly string[]> {
  const element = await findElement(tab, references, name, signal);
  const answer = z.union([z.object({ problem: z.string() }), z.object({ values: listOf(z.string()) })]);
  const chosen = await tab.callOn(element, SELECT, [values], answer, signal);
  if ("problem" in chosen) throw new ToolFailure(`The element ${chosen.problem.slice(0, 5_000)}.`);
  await settle(tab, signal);
  return chosen.values;
}

/** Waits for a page to react to an action, and for a page that it loads. */
export async function settle(tab: Tab, signal: AbortSignal): Promise<void> {
  const over = new AbortController();
  const until = AbortSignal.any([signal, over.signal]);
  let hadTime = false;
  void Promise.allSettled([rest(REACT_MS, until), pageRests(tab, until)]).then(() => {
    hadTime = true;
    tab.changed();
  });
  try {
    await tab.untilOr(SETTLE_MS, () => hadTime || tab.isLoading, signal);
  } finally {
    over.abort();
  }
  await tab.untilOr(SETTLE_MS, () => !tab.isLoading, signal);
}

/**
 * Waits by timers of the page's own, which fire only after what the page has already scheduled, however busy it and the
 * machine are. What that causes to load is announced before the answers. A frame with its own process may navigate the
 * page, which only then hears of it.
 */
async function pageRests(tab: Tab, signal: AbortSignal): Promise<void> {
  const [page, ...frames] = tab.roots.map(({ session, frameId }) => ({
    session,
    rests: (until: AbortSignal) => tab.callIn({ session, frameId }, REST, [REACT_MS], done, until),
  }));
  await Promise.all(frames.map(({ session, rests }) => tab.askFrame(session, rests, signal)));
  await page?.rests(signal);
}
