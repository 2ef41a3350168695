import { z } from "zod";
import { invalidArgument } from "../../../base/errors.ts";
import type { FileManager } from "../../../files/manager.ts";
import { resolveWorkingDir } from "../../../processes/shell/job.ts";
import type { Tool } from "../../backend.ts";
import type { Browser } from "./browser.ts";
import {
  browserTool,
  oneElement,
  oneElementAtMost,
  pageTool,
  ref,
  selector,
  waitUntil,
  withAbout,
  withArrival,
} from "./define.ts";
import { download } from "./download.ts";
import { evaluate } from "./evaluate.ts";
import { ToolFailure } from "./failure.ts";
import { arrival, goBy, goTo, LOAD_STATES, reload } from "./navigation.ts";
import { readHtml, readText, waitFor } from "./reading.ts";
import { screenshot } from "./screenshot.ts";
import { readTree } from "./tree.ts";
import { pageUrl } from "./urls.ts";

const MAX_SCRIPT = 1_000_000;
const url = z.string().min(1).max(2_000_000);

const goto = pageTool(
  "goto",
  "Opens a URL in the tab: http, https, data, file (files of the sandbox) or about. Returns url (after redirects), title " +
    "and status (HTTP; null if there is none, or if pages replace each other too fast to tell). Every tool also returns dialogs (those of the page that were answered), " +
    "opened_tabs (ids of tabs that pages opened), tab_restarted (the tab had crashed, and this is a new, empty one) and " +
    "session_restarted (the browser was lost, and this is a new one).",
  z.strictObject({ url: url.describe("The whole URL."), wait_until: waitUntil }),
  async (use, params, browser) => {
    const hasNetwork = browser.place.sandbox.spec.network !== "NONE";
    await goTo(use, params.url, LOAD_STATES[params.wait_until], hasNetwork);
    return { data: await arrival(use) };
  },
  ({ url: given }) => void pageUrl("params.url", given),
);

const back = pageTool(
  "back",
  "Goes back to the previous page. Returns url, title and status.",
  z.strictObject({ wait_until: waitUntil }),
  async (use, params) => {
    await goBy(use, -1, LOAD_STATES[params.wait_until]);
    return { data: await arrival(use) };
  },
);

const forward = pageTool(
  "forward",
  "Goes forward again after back. Returns url, title and status.",
  z.strictObject({ wait_until: waitUntil }),
  async (use, params) => {
    await goBy(use, 1, LOAD_STATES[params.wait_until]);
    return { data: await arrival(use) };
  },
);

const reloadTool = pageTool(
  "reload",
  "Loads the page again. Returns url, title and status.",
  z.strictObject({ wait_until: waitUntil }),
  async (use, params) => {
    await reload(use, LOAD_STATES[params.wait_until]);
    return { data: await arrival(use) };
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

const tree = pageTool(
  "tree",
  "The accessibility tree of the page with its frames and shadow roots, as indented text: a line for each element, with its " +
    "role, name, state, value, and a reference such as [ref=e12] that click, type, select, upload, hover, scroll, content, " +
    "text and screenshot take. A reference stays valid as long as its element exists. " +
    "A frame that does not answer is marked with [hangs], and left out. Returns tree, url, title, truncated.",
  z.strictObject({}),
  async (use) => {
    const { text: lines, truncated } = await readTree(use.tab, use.references, use.signal);
    return withAbout(use, { tree: lines, truncated });
  },
);

const evaluateTool = pageTool(
  "evaluate",
  "Runs JavaScript in the page: an expression, statements whose last value counts, or a function, which is called; await " +
    "and return work. Returns result (JSON; as text where it is too large or deep), truncated, and error ({name, value, " +
    "traceback} of what it threw, or null). A script that exceeds the timeout is stopped.",
  z.strictObject({ script: z.string().min(1).max(MAX_SCRIPT).describe("The JavaScript.") }),
  (use, params) => evaluate(use, params.script),
);

const content = pageTool(
  "content",
  "The HTML of the page as it is now, or of one element. Returns html, length (characters) and truncated (whether there is more; " +
    "then the attachment html has more of it).",
  z.strictObject({ selector, ref }),
  (use, params) => readHtml(use, params),
  oneElementAtMost,
);

const text = pageTool(
  "text",
  "The readable text of the page with its frames, or of one element. Returns text, length (characters), truncated " +
    "(whether there is more; then the attachment text has more of it) and, for the page, hanging_frames (how many frames " +
    "do not answer and are left out).",
  z.strictObject({ selector, ref }),
  (use, params) => readText(use, params),
  oneElementAtMost,
);

const waitForTool = pageTool(
  "wait_for",
  "Waits until all given conditions hold: an element is visible (or, with hidden, is not), the page shows a text, its URL " +
    "contains a text, or it has loaded. Returns url and title.",
  z.strictObject({
    selector,
    hidden: z
      .boolean()
      .default(false)
      .describe("With selector: whether to wait until the element is gone or hidden."),
    text: z.string().min(1).max(10_000).optional(),
    url: z.string().min(1).max(10_000).describe("Part of the URL.").optional(),
    state: z.enum(["dom", "load", "network_idle"]).optional(),
  }),
  async (use, params) => {
    await waitFor(use, { ...params, state: params.state && LOAD_STATES[params.state] });
    return withArrival(use);
  },
  (params) => {
    if ((params.selector ?? params.text ?? params.url ?? params.state) === undefined) {
      throw invalidArgument("params", "give selector, text, url or state.");
    }
    if (params.hidden && params.selector === undefined) {
      throw invalidArgument("params.hidden", "is only for selector.");
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
      .describe("The id of a tab, such as t2; without it, close closes the active one.")
      .optional(),
  }),
  (browser, { action, tab: id }, call) => {
    if (action === "select" && id === undefined) throw invalidArgument("params.tab", "is required.");
    if ((action === "list" || action === "new") && id !== undefined) {
      throw invalidArgument("params.tab", `is not for the action ${action}.`);
    }
    return browser.runOnTabs(call, async (signal) => {
      const { all, active } = browser.tabs;
      const named = id === undefined ? active : all.find((one) => one.id === id);
      if (action === "new") browser.tabs.select(await browser.tabs.open(signal));
      else if (action !== "list" && named === undefined) {
        throw new ToolFailure(`There is no tab ${id}. There are: ${all.map((one) => one.id).join(", ")}.`);
      }
      if (action === "select" && named !== undefined) browser.tabs.select(named);
      if (action === "close" && named !== undefined) await browser.tabs.close(named, signal);
      return { data: { tabs: await browser.tabs.describe(signal) } };
    });
  },
);

function directoryOf(browser: Browser, given: string | undefined): string {
  if (given?.includes("\0")) throw invalidArgument("params.directory", "must not contain NUL.");
  return resolveWorkingDir(browser.place.sandbox.spec.workingDir, given);
}

/** The tools that act on a page as a whole. @param files names what is downloaded. */
export function pageTools(files: FileManager): readonly Tool[] {
  const downloadTool = pageTool(
    "download",
    "Downloads a URL, or what a click on an element downloads, into a directory of the sandbox. A name that is " +
      "taken gets a number: report (1).csv. Returns path, size in bytes and url.",
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
    (use, params, browser) => download(browser, files, use, params, directoryOf(browser, params.directory)),
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
  return [
    ...[goto, back, forward, reloadTool, screenshotTool, tree],
    ...[evaluateTool, content, text, waitForTool, tabs, downloadTool],
  ];
}
