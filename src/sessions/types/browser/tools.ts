import { posix } from "node:path";
import { z } from "zod";
import { fromText } from "../../../base/byte-string.ts";
import { invalidArgument } from "../../../base/errors.ts";
import type { FileManager } from "../../../files/manager.ts";
import { resolveWorkingDir } from "../../../processes/shell/job.ts";
import { defineTool, type Tool, type ToolCall, type ToolResult } from "../../backend.ts";
import { secondsToMs } from "../common.ts";
import type { Browser, BrowserUse, Outcome } from "./browser.ts";
import { download } from "./download.ts";
import { boxOf, findElement } from "./elements.ts";
import { evaluate } from "./evaluate.ts";
import { ToolFailure } from "./failure.ts";
import { click, press, select, settle, type, wheel } from "./input.ts";
import { parseChord } from "./keys.ts";
import { about, goBy, goTo, LOAD_STATES, reload } from "./navigation.ts";
import { SCROLL_STATE } from "./page-scripts.ts";
import { readHtml, readText, waitFor } from "./reading.ts";
import { screenshot } from "./screenshot.ts";
import { readTree } from "./tree.ts";
import { pageUrl } from "./urls.ts";

const DEFAULT_TIMEOUT_S = 30;
/** Far beyond what a page has. */
const MAX_TEXT = 1_000_000;
const MAX_UPLOADS = 100;
const DIRECTIONS = ["up", "down", "left", "right"] as const;

const timeout = z
  .number()
  .positive()
  .max(24 * 3600)
  .describe(`How long it may take, in seconds. Default: ${DEFAULT_TIMEOUT_S}.`)
  .optional();
const selector = z
  .string()
  .min(1)
  .max(10_000)
  .describe("A CSS selector: the first match in the page, its open shadow roots and its frames.")
  .optional();
const ref = z
  .string()
  .regex(/^e[1-9][0-9]{0,9}$/, "must be a reference from tree, such as e12")
  .describe("A reference from tree, such as e12.")
  .optional();
const waitUntil = z
  .enum(["dom", "load", "network_idle"])
  .default("load")
  .describe("When the page counts as there: parsed, loaded with its parts, or with no request for 0.5 s.");
const url = z.string().min(1).max(2_000_000);

type Named = { readonly selector?: string | undefined; readonly ref?: string | undefined };

/** Defines a tool that acts on the active tab. */
function pageTool<S extends z.ZodObject>(
  name: string,
  description: string,
  params: S,
  run: (use: BrowserUse, params: z.output<S>, browser: Browser) => Promise<Outcome>,
  check: (params: z.output<S>, browser: Browser) => void = () => {},
): Tool {
  return browserTool(name, description, params, async (browser, given, call) => {
    check(given, browser);
    return browser.run(call, (use) => run(use, given, browser));
  });
}

function browserTool<S extends z.ZodObject>(
  name: string,
  description: string,
  params: S,
  run: (browser: Browser, params: z.output<S>, call: ToolCall) => Promise<ToolResult>,
): Tool {
  return defineTool({
    name,
    description,
    params: params.extend({ timeout }),
    timeoutMs: (given) => secondsToMs((given as { timeout?: number }).timeout ?? DEFAULT_TIMEOUT_S),
    run: (browser: Browser, given, call) => run(browser, given as z.output<S>, call),
  });
}

/** Checks that exactly one of the two is given. @throws `INVALID_ARGUMENT`. */
function oneElement({ selector: css, ref: reference }: Named): void {
  if ((css === undefined) === (reference === undefined)) {
    throw invalidArgument("params.selector", "give either selector or ref.");
  }
}

/** Checks that at most one of the two is given. @throws `INVALID_ARGUMENT`. */
function oneElementAtMost({ selector: css, ref: reference }: Named): void {
  if (css !== undefined && reference !== undefined) {
    throw invalidArgument("params.selector", "give selector or ref, not both.");
  }
}

async function withAbout({ tab, signal }: BrowserUse, more: Outcome["data"] = {}): Promise<Outcome> {
  const { url: address, title } = await about(tab, signal);
  return { data: { url: address as string, title: title as string, ...more } };
}

const goto = pageTool(
  "goto",
  "Opens a URL in the tab: http, https, data, file (files of the sandbox) or about. Returns url (after redirects), title " +
    "and status (HTTP; null where there is none). Every tool also returns dialogs (those of the page that were answered), " +
    "opened_tabs (ids of tabs that pages opened), tab_restarted (the tab had crashed, and this is an empty one) and " +
    "session_restarted (the browser was lost, and this is a new one).",
  z.strictObject({ url: url.describe("The whole URL."), wait_until: waitUntil }),
  async (use, params, browser) => {
    const hasNetwork = browser.place.sandbox.spec.network !== "NONE";
    await goTo(use, params.url, LOAD_STATES[params.wait_until], hasNetwork);
    return { data: await about(use.tab, use.signal) };
  },
  ({ url: given }) => void pageUrl("params.url", given),
);

const back = pageTool(
  "back",
  "Goes back to the page before. Returns url, title and status.",
  z.strictObject({ wait_until: waitUntil }),
  async (use, params) => {
    await goBy(use, -1, LOAD_STATES[params.wait_until]);
    return { data: await about(use.tab, use.signal) };
  },
);

const forward = pageTool(
  "forward",
  "Goes forward again after back. Returns url, title and status.",
  z.strictObject({ wait_until: waitUntil }),
  async (use, params) => {
    await goBy(use, 1, LOAD_STATES[params.wait_until]);
    return { data: await about(use.tab, use.signal) };
  },
);

const reloadTool = pageTool(
  "reload",
  "Loads the page again. Returns url, title and status.",
  z.strictObject({ wait_until: waitUntil }),
  async (use, params) => {
    await reload(use, LOAD_STATES[params.wait_until]);
    return { data: await about(use.tab, use.signal) };
  },
);

const screenshotTool = pageTool(
  "screenshot",
  "Takes a picture of what the viewport shows, of the whole page (full_page), or of one element. Returns the attachment " +
    "screenshot (PNG), width and height in pixels, url, title, and truncated (the page is larger than a picture may be).",
  z.strictObject({
    selector,
    ref,
    full_page: z.boolean().default(false).describe("Whether to show the whole page."),
  }),
  (use, params) => screenshot(use, params, params.full_page),
  (params) => {
    oneElementAtMost(params);
    if (params.full_page && (params.selector ?? params.ref) !== undefined) {
      throw invalidArgument("params.full_page", "is for the page, not for an element.");
    }
  },
);

const clickTool = pageTool(
  "click",
  "Scrolls an element into view and clicks on its middle, or at x and y from its top left corner (a place in a canvas). " +
    "Waits for the page that it may open. Returns url and title. A download that it starts is refused: use download.",
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
    return withAbout(use);
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
    return withAbout(use);
  },
  oneElement,
);

const typeTool = pageTool(
  "type",
  "Types text into an element, at the end of what is there, or into what has the focus where none is named. Inputs of " +
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
    return withAbout(use);
  },
  oneElementAtMost,
);

const key = pageTool(
  "key",
  "Presses a key, perhaps with others held: Enter, Tab, Escape, ArrowDown, F5, a, Control+a, Shift+Tab. Returns url and title.",
  z.strictObject({ key: z.string().min(1).max(100).describe("The key, such as Control+Shift+ArrowLeft.") }),
  async (use, params) => {
    await press(use.tab, chordOf(params.key), use.signal);
    return withAbout(use);
  },
  (params) => void chordOf(params.key),
);

function chordOf(text: string) {
  const chord = parseChord(text);
  if (chord !== undefined) return chord;
  throw invalidArgument(
    "params.key",
    `${JSON.stringify(text)} names no key. There are single characters, Enter, Tab, Escape, Backspace, Delete, Insert, Home, End, PageUp, PageDown, ArrowLeft, ArrowUp, ArrowRight, ArrowDown, F1 to F12 and space, with Control+, Alt+, Shift+ or Meta+ before them.`,
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
      .describe("Values or texts of the options; the rest is deselected."),
  }),
  async (use, params) => ({
    data: { values: [...(await select(use, params, params.values))].map(wellFormed) },
  }),
  oneElement,
);

const scroll = pageTool(
  "scroll",
  "Turns the mouse wheel over an element, or over the middle of the page. Returns how far the page is scrolled: x, y, and " +
    "its width and height, in pixels.",
  z.strictObject({
    selector,
    ref,
    direction: z.enum(DIRECTIONS).default("down"),
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
    const box = isNamed
      ? await boxOf(tab, await findElement(tab, references, params, signal), signal)
      : { x: 0, y: 0, width: view.clientWidth, height: view.clientHeight };
    const middle = { x: box.x + box.width / 2, y: box.y + box.height / 2 };
    const [x = 0, y = 0] = by.map((sign) => sign * params.pixels);
    await wheel(tab, middle, { x, y }, signal);
    await settle(tab, signal);
    const state = z.object({ x: z.number(), y: z.number(), width: z.number(), height: z.number() });
    return { data: await tab.callIn(await tab.page(signal), SCROLL_STATE, [], state, signal) };
  },
  oneElementAtMost,
);

const evaluateTool = pageTool(
  "evaluate",
  "Runs JavaScript in the page: an expression, statements whose last value counts, or a function, which is called; await " +
    "and return work. Returns result (JSON; as text where it is too large or deep), truncated, and error ({name, value, " +
    "traceback} of what it threw, or null). A script that exceeds the timeout is stopped.",
  z.strictObject({ script: z.string().min(1).max(MAX_TEXT).describe("The JavaScript.") }),
  (use, params) => evaluate(use, params.script),
);

const content = pageTool(
  "content",
  "The HTML of the page as it is now, or of one element. Returns html, length (characters) and truncated: then more of it " +
    "comes in the attachment html.",
  z.strictObject({ selector, ref }),
  (use, params) => readHtml(use, params),
  oneElementAtMost,
);

const text = pageTool(
  "text",
  "The readable text of the page with its frames, or of one element. Returns text, length (characters) and truncated: then " +
    "more of it comes in the attachment text.",
  z.strictObject({ selector, ref }),
  (use, params) => readText(use, params),
  oneElementAtMost,
);

const tree = pageTool(
  "tree",
  "The accessibility tree of the page with its frames and shadow roots, as indented text: a line for each element, with its " +
    "role, name, state, value, and a reference such as [ref=e12] that click, type, select, upload, hover, scroll, content, " +
    "text and screenshot take. A reference stays valid as long as its element exists. Returns tree, url, title, truncated.",
  z.strictObject({}),
  async (use) => {
    const { text: lines, truncated } = await readTree(use.tab, use.references, use.signal);
    return withAbout(use, { tree: lines, truncated });
  },
);

const waitForTool = pageTool(
  "wait_for",
  "Waits until all that is named holds: an element is visible (or, with hidden, is not), the page shows a text, its URL " +
    "contains a text, or it has loaded. Returns url and title.",
  z.strictObject({
    selector,
    hidden: z.boolean().default(false).describe("Whether to wait until the element is gone or hidden."),
    text: z.string().min(1).max(10_000).optional(),
    url: z.string().min(1).max(10_000).describe("Part of the URL.").optional(),
    state: z.enum(["dom", "load", "network_idle"]).optional(),
  }),
  async (use, params) => {
    await waitFor(use, { ...params, state: params.state && LOAD_STATES[params.state] });
    return withAbout(use);
  },
  (params) => {
    if ((params.selector ?? params.text ?? params.url ?? params.state) === undefined) {
      throw invalidArgument("params", "give selector, text, url or state.");
    }
  },
);

const tabs = browserTool(
  "tabs",
  "The tabs of the browser: list them, open a new one (which becomes the active one), select the one that tools " +
    "act on, or close one. Returns tabs ({id, url, title, active}).",
  z.strictObject({
    action: z.enum(["list", "new", "select", "close"]).default("list"),
    tab: z
      .string()
      .regex(/^t[1-9][0-9]{0,9}$/, "must be the id of a tab, such as t2")
      .describe("The id of a tab, such as t2; close takes the active one without it.")
      .optional(),
  }),
  (browser, { action, tab: id }, call) => {
    if (action === "select" && id === undefined) throw invalidArgument("params.tab", "is required.");
    if ((action === "list" || action === "new") && id !== undefined) {
      throw invalidArgument("params.tab", `is not for the action ${action}.`);
    }
    return browser.runOnTabs(call, async (signal) => {
      const named = id === undefined ? browser.active : browser.tabs.find((one) => one.id === id);
      if (action === "new") browser.select(await browser.open(signal));
      else if (action !== "list" && named === undefined) {
        throw new ToolFailure(
          `There is no tab ${id}. There are: ${browser.tabs.map((one) => one.id).join(", ")}.`,
        );
      }
      if (action === "select" && named !== undefined) browser.select(named);
      if (action === "close" && named !== undefined) await browser.close(named, signal);
      return { data: { tabs: await browser.describeTabs(signal) } };
    });
  },
);

const downloadTool = pageTool(
  "download",
  "Downloads a URL, or what a click on an element downloads, into a directory of the sandbox. Returns path, size in bytes " +
    "and url.",
  z.strictObject({
    url: url.describe("What to download.").optional(),
    selector,
    ref,
    directory: z
      .string()
      .min(1)
      .max(4096)
      .describe("Where to: absolute, or relative to the sandbox's directory, which is the default.")
      .optional(),
  }),
  (use, params, browser) => download(browser, use, params, directoryOf(browser, params.directory)),
  (params, browser) => {
    if (params.url === undefined) oneElement(params);
    else if ((params.selector ?? params.ref) !== undefined) {
      throw invalidArgument("params.url", "give url, selector or ref, one of them.");
    } else if (pageUrl("params.url", params.url).startsWith("file:")) {
      throw invalidArgument("params.url", "is a file of the sandbox already.");
    }
    directoryOf(browser, params.directory);
  },
);

function directoryOf(browser: Browser, given: string | undefined): string {
  if (given?.includes("\0")) throw invalidArgument("params.directory", "must not hold NUL.");
  return resolveWorkingDir(browser.place.sandbox.spec.workingDir, given);
}

/** The tools of a browser. @param files through which uploads are checked. */
export function browserTools(files: FileManager): readonly Tool[] {
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
        if (info.kind !== "REGULAR") throw new ToolFailure(`${JSON.stringify(path)} is no file.`);
      }
      const element = await findElement(tab, references, params, signal);
      const { objectId, session } = element;
      const names = await tab.callOn(element, IS_FILE_INPUT, [paths.length], z.string(), signal);
      if (names !== "") throw new ToolFailure(`The element ${names.slice(0, 200)}.`);
      await tab.send("DOM.setFileInputFiles", { files: paths, objectId }, z.unknown(), signal, session);
      const chosen = await tab.callOn(element, FILE_NAMES, [], z.array(z.string()).max(MAX_UPLOADS), signal);
      return { data: { files: chosen.map(wellFormed) } };
    },
    (params) => {
      oneElement(params);
      for (const [index, path] of params.paths.entries()) {
        if (path.includes("\0")) throw invalidArgument(`params.paths.${index}`, "must not hold NUL.");
      }
    },
  );
  return [
    ...[
      goto,
      back,
      forward,
      reloadTool,
      screenshotTool,
      tree,
      clickTool,
      hover,
      typeTool,
      key,
      selectTool,
      scroll,
    ],
    ...[evaluateTool, content, text, waitForTool, tabs, downloadTool, upload],
  ];
}

/** On an element: what keeps it from taking files; empty: nothing. */
const IS_FILE_INPUT = `function(count) {
  if (!(this instanceof HTMLInputElement && this.type === "file")) return "is no file input";
  if (this.disabled) return "is disabled";
  return count > 1 && !this.multiple ? "takes one file only" : "";
}`;
const FILE_NAMES = "function() { return [...this.files].map(file => file.name) }";

function wellFormed(given: string): string {
  return given.slice(0, 10_000).toWellFormed();
}
