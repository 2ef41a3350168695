import { posix } from "node:path";
import { z } from "zod";
import { fromText } from "../../../base/byte-string.ts";
import { invalidArgument } from "../../../base/errors.ts";
import type { FileManager } from "../../../files/manager.ts";
import type { Tool } from "../../backend.ts";
import { oneElement, oneElementAtMost, pageTool, ref, selector, withArrival } from "./define.ts";
import { findElement, pointOf, scrolledAround, scrollState } from "./elements.ts";
import { ToolFailure } from "./failure.ts";
import { click, press, select, settle, type, wheel } from "./input.ts";
import { parseChord } from "./keys.ts";
import { CLEAR_FILES, FILE_NAMES, FILES_PROBLEM, SCROLL_STATE } from "./page-scripts.ts";

const MAX_TEXT = 1_000_000;
const MAX_UPLOADS = 100;

const clickTool = pageTool(
  "click",
  "Scrolls an element into view and clicks on its middle, or at x and y from its top left corner (a place in a canvas). " +
    "Waits for the page that it may open, and fails if that cannot be loaded. Returns url and title. A download that it starts is refused: use download.",
  z.strictObject({
    selector,
    ref,
    button: z.enum(["left", "right", "middle"]).default("left"),
    count: z.number().int().min(1).max(3).default(1).describe("2 for a double click."),
    x: z.number().min(0).max(100_000).describe("Pixels from the element's left edge; with y.").optional(),
    y: z.number().min(0).max(100_000).describe("Pixels from the element's top edge; with x.").optional(),
  }),
  async (use, { selector: css, ref: reference, button, count, x, y }) => {
    const offset = x === undefined || y === undefined ? undefined : { x, y };
    await click(use, { selector: css, ref: reference }, { button, count, offset });
    return withArrival(use);
  },
  (params) => {
    oneElement(params);
    if ((params.x === undefined) !== (params.y === undefined)) {
      throw invalidArgument(params.x === undefined ? "params.x" : "params.y", "give x and y, or neither.");
    }
  },
);

const hover = pageTool(
  "hover",
  "Scrolls an element into view and moves the pointer to its middle. Returns url and title.",
  z.strictObject({ selector, ref }),
  async (use, params) => {
    await click(use, params, { button: "left", count: 0, offset: undefined });
    return withArrival(use);
  },
  oneElement,
);

const typeTool = pageTool(
  "type",
  "Types text at the end of an element, or into whatever has the focus if no element is named. Inputs of " +
    "dates, times, colors and ranges get it as their value: 2026-01-31, 13:45, #336699. Returns url and title.",
  z.strictObject({
    selector,
    ref,
    text: z.string().max(MAX_TEXT).describe("The text, in any script."),
    clear: z.boolean().default(false).describe("Whether to replace what is there."),
    submit: z.boolean().default(false).describe("Whether to press Enter afterwards."),
  }),
  async (use, params) => {
    await type(use, params, params.text, params);
    return withArrival(use);
  },
  oneElementAtMost,
);

const key = pageTool(
  "key",
  "Presses a key, or several together: Enter, Tab, Escape, ArrowDown, F5, a, Control+a, Shift+Tab. Returns url and title.",
  z.strictObject({ key: z.string().min(1).max(100).describe("The key, such as Control+Shift+ArrowLeft.") }),
  async (use, params) => {
    await press(use.tab, chordOf(params.key), use.signal);
    return withArrival(use);
  },
  (params) => void chordOf(params.key),
);

function chordOf(text: string) {
  const chord = parseChord(text);
  if (chord !== undefined) return chord;
  throw invalidArgument(
    "params.key",
    `${JSON.stringify(text)} names no key. There are the characters of a US keyboard (type takes any), Enter, Tab, Escape, Backspace, Delete, Insert, Home, End, PageUp, PageDown, ArrowLeft, ArrowUp, ArrowRight, ArrowDown, F1 to F12 and space, with Control+, Alt+, Shift+ or Meta+ before them.`,
  );
}

const selectTool = pageTool(
  "select",
  "Chooses options of a select element by value or by text. Returns values (those selected now).",
  z.strictObject({
    selector,
    ref,
    values: z
      .array(z.string().max(10_000))
      .max(1_000)
      .describe("Values or texts of the options; all others are deselected."),
  }),
  async (use, params) => {
    const values = [...(await select(use, params, params.values))].map(wellFormed);
    await withArrival(use);
    return { data: { values } };
  },
  oneElement,
);

const scroll = pageTool(
  "scroll",
  "Turns the mouse wheel over an element, or over the middle of the page. Returns how far the page is scrolled: x, y, and " +
    "its width and height, in pixels. If the element is in a box or a frame that scrolls by itself, scrolled has the " +
    "same for that; otherwise it is null.",
  z.strictObject({
    selector,
    ref,
    direction: z.enum(["up", "down", "left", "right"]).default("down"),
    pixels: z.number().int().min(1).max(1_000_000).default(600).describe("How far."),
  }),
  async (use, params) => {
    const { tab, signal, references } = use;
    const by = { up: [0, -1], down: [0, 1], left: [-1, 0], right: [1, 0] }[params.direction];
    const metrics = z.object({
      cssLayoutViewport: z.object({ clientWidth: z.number(), clientHeight: z.number() }),
    });
    const { cssLayoutViewport: view } = await tab.send("Page.getLayoutMetrics", {}, metrics, signal);
    const isNamed = (params.selector ?? params.ref) !== undefined;
    const element = isNamed ? await findElement(tab, references, params, signal) : undefined;
    const middle = element
      ? await pointOf(tab, element, undefined, signal)
      : { x: view.clientWidth / 2, y: view.clientHeight / 2 };
    const [x = 0, y = 0] = by.map((sign) => sign * params.pixels);
    await wheel(tab, middle, { x, y }, signal);
    await settle(tab, signal);
    const page = await tab.callIn(await tab.page(signal), SCROLL_STATE, [], scrollState, signal);
    // The element may go away as the page scrolls.
    const scrolled = element && (await scrolledAround(tab, element, signal).catch(() => null));
    signal.throwIfAborted();
    return { data: { ...page, scrolled: scrolled ?? null } };
  },
  oneElementAtMost,
);

/** The tools for elements. @param files checks the files to upload. */
export function elementTools(files: FileManager): readonly Tool[] {
  const upload = pageTool(
    "upload",
    "Chooses files of the sandbox in a file input. Returns files (the names that the input has now).",
    z.strictObject({
      selector,
      ref,
      paths: z
        .array(z.string().min(1).max(4096))
        .max(MAX_UPLOADS)
        .describe("Files: absolute, or relative to the sandbox's directory. None clears the input."),
    }),
    async ({ tab, references, signal }, params, browser) => {
      const paths = params.paths.map((path) => posix.resolve(browser.place.sandbox.spec.workingDir, path));
      for (const [index, path] of paths.entries()) {
        const named = { field: `params.paths.${index}`, bytes: fromText(path) };
        const request = { sandbox: browser.place.name, user: undefined, path: named, followLink: true };
        const { info } = await files.stat(request, signal);
        if (info.kind !== "REGULAR") throw new ToolFailure(`${JSON.stringify(path)} is not a file.`);
      }
      const element = await findElement(tab, references, params, signal);
      const { objectId, session } = element;
      const names = await tab.callOn(element, FILES_PROBLEM, [paths.length], z.string(), signal);
      if (names !== "") throw new ToolFailure(`The element ${names.slice(0, 200)}.`);
      // The browser ignores an empty list.
      if (paths.length === 0) await tab.callOn(element, CLEAR_FILES, [], z.unknown(), signal);
      else await tab.send("DOM.setFileInputFiles", { files: paths, objectId }, z.unknown(), signal, session);
      const chosen = await tab.callOn(element, FILE_NAMES, [], z.array(z.string()).max(MAX_UPLOADS), signal);
      return { data: { files: chosen.map(wellFormed) } };
    },
    (params) => {
      oneElement(params);
      for (const [index, path] of params.paths.entries()) {
        if (path.includes("\0")) throw invalidArgument(`params.paths.${index}`, "must not contain NUL.");
      }
    },
  );
  return [clickTool, hover, typeTool, key, selectTool, scroll, upload];
}

function wellFormed(given: string): string {
  return given.slice(0, 10_000).toWellFormed();
}
