import { z } from "zod";
import { listOf } from "../common.ts";
import type { BrowserUse } from "./browser.ts";
import { DevToolsError } from "./devtools.ts";
import { ToolFailure } from "./failure.ts";
import { ABOUT } from "./page-scripts.ts";
import { browserId, type LoadState, type Progress, type Tab } from "./tab.ts";
import { shownUrl } from "./urls.ts";

/** The states to wait for, and the browser's names for them. */
export const LOAD_STATES: Readonly<Record<"dom" | "load" | "network_idle", LoadState>> = {
  dom: "DOMContentLoaded",
  load: "load",
  network_idle: "networkIdle",
};

/** How long a request may be repeated because the page keeps changing its document. */
const CHANGING_MS = 2_000;

/** How long the page about an error may take. For an error that has none, the browser soon stops loading. */
const ERROR_PAGE_MS = 10_000;

/** The browser's answer to a navigation. */
export const navigated = z
  .object({
    loaderId: browserId.optional(),
    errorText: z.string().default(""),
    isDownload: z.boolean().default(false),
  })
  // An error response may be marked as a download although nothing is downloaded. A real download aborts the
  // navigation.
  .transform(({ isDownload, errorText, ...rest }) => ({
    ...rest,
    errorText,
    isDownload: isDownload && (errorText === "" || errorText === "net::ERR_ABORTED"),
  }));

/** Opens a URL in the tab. @param hasNetwork whether the sandbox has network access. */
export async function goTo(
  { tab, signal }: BrowserUse,
  url: string,
  state: LoadState,
  hasNetwork: boolean,
): Promise<void> {
  const { loaderId, errorText, isDownload } = await tab.send("Page.navigate", { url }, navigated, signal);
  if (isDownload) throw new ToolFailure("The URL is a download. Use the tool download.");
  if (errorText !== "") {
    // The browser's page about the error comes later. It must not look like the result of the next action.
    tab.failedLoaderId = loaderId;
    await tab.untilOr(ERROR_PAGE_MS, () => tab.loaderId === loaderId || !tab.isLoading, signal);
    throw new ToolFailure(problemOf(url, errorText, hasNetwork));
  }
  // The URL was a fragment of the same document.
  if (loaderId === undefined) return;
  let isCommitted = tab.hasSeen(loaderId);
  await tab.until(() => {
    isCommitted ||= tab.loaderId === loaderId || tab.hasSeen(loaderId);
    return isCommitted && tab.has(state);
  }, signal);
}

const NO_PAGE = "The server sent no page, as with the status 204 or a download, or the page was stopped.";
/** Errors for servers that answered, and what they mean. */
const REPLIES: Readonly<Record<string, string>> = {
  "net::ERR_ABORTED": NO_PAGE,
  "net::ERR_HTTP_RESPONSE_CODE_FAILURE": "The server answered with an error status and no page.",
  "net::ERR_INVALID_AUTH_CREDENTIALS":
    "The server asks for a name and a password. Put them into the URL: http://name:password@host/.",
};
/** Errors of a network that is not there, or of a server. */
const UNREACHABLE =
  /^net::ERR_(NAME|INTERNET|ADDRESS|NETWORK|DNS|TIMED_OUT|CONNECTION_(REFUSED|TIMED_OUT|FAILED))/;

function problemOf(url: string, errorText: string, hasNetwork: boolean): string {
  const problem = `The page could not be loaded: ${errorText.slice(0, 200).toWellFormed()}.`;
  const reply = REPLIES[errorText];
  if (reply !== undefined) return `${problem} ${reply}`;
  const isWeb = url.startsWith("http:") || url.startsWith("https:");
  if (hasNetwork || !isWeb || !UNREACHABLE.test(errorText)) return problem;
  return `${problem} The sandbox has no network: only servers inside it can be reached. Create a sandbox with network EGRESS, and the session in it.`;
}

/** Reloads the page. */
export async function reload({ tab, signal }: BrowserUse, state: LoadState): Promise<void> {
  const before = tab.loaderId;
  const progress = tab.follow();
  await tab.send("Page.reload", {}, z.unknown(), signal);
  await moved(tab, progress, async () => tab.loaderId !== before, signal);
  await tab.until(() => tab.has(state), signal);
}

export async function goBy({ tab, signal }: BrowserUse, steps: 1 | -1, state: LoadState): Promise<void> {
  const answer = z.object({ currentIndex: z.number(), entries: listOf(z.object({ id: z.number() })) });
  const ask = () => tab.send("Page.getNavigationHistory", {}, answer, signal);
  const { currentIndex, entries } = await whileChanging(tab, ask, signal);
  const entry = entries[currentIndex + steps];
  if (entry === undefined)
    throw new ToolFailure(`There is no page to go ${steps < 0 ? "back" : "forward"} to.`);
  const progress = tab.follow();
  await tab.send("Page.navigateToHistoryEntry", { entryId: entry.id }, z.unknown(), signal);
  // Only the history shows that a frame in the page has moved. While the page itself loads, the history is ahead of it.
  const hasMoved = async (): Promise<boolean> =>
    progress() === "moved" || (progress() === "none" && (await isAt(tab, currentIndex + steps, signal)));
  await moved(tab, progress, hasMoved, signal);
  await tab.until(() => tab.has(state), signal);
}

/** Waits until a navigation has moved the page. @throws ToolFailure if it does not, because there is no page to show */
async function moved(
  tab: Tab,
  progress: () => Progress,
  hasMoved: () => Promise<boolean>,
  signal: AbortSignal,
): Promise<void> {
  while (!(await hasMoved())) {
    // The page's own scripts may navigate it too: then it may stop to load one document just before it shows another.
    if (progress() === "stays" && (await isAtRest(tab, signal)) && progress() === "stays")
      throw new ToolFailure(`The page was not loaded. ${NO_PAGE}`);
    await tab.changes(50, signal);
  }
}

/** Whether a page answers. The browser holds back requests to a page that it is about to replace. */
async function isAtRest(tab: Tab, signal: AbortSignal): Promise<boolean> {
  try {
    await tab.page(signal);
    return true;
  } catch (error) {
    if (error instanceof DevToolsError) return false;
    throw error;
  }
}

/** Whether the tab is at an entry of its history. False while it changes documents. */
async function isAt(tab: Tab, index: number, signal: AbortSignal): Promise<boolean> {
  const answer = z.object({ currentIndex: z.number() });
  try {
    return (await tab.send("Page.getNavigationHistory", {}, answer, signal)).currentIndex === index;
  } catch (error) {
    if (error instanceof DevToolsError) return false;
    throw error;
  }
}

/** Repeats a request if the page changed its document meanwhile: a request to the old document gets no answer. */
async function whileChanging<T>(tab: Tab, ask: () => Promise<T>, signal: AbortSignal): Promise<T> {
  const end = performance.now() + CHANGING_MS;
  while (performance.now() < end) {
    try {
      return await ask();
    } catch (error) {
      if (!(error instanceof DevToolsError)) throw error;
      await tab.changes(50, signal);
    }
  }
  return ask();
}

/** The status is null if there is none, or if the page moved on too often for its document to be asked. */
type About = {
  readonly url: string;
  readonly title: string;
  readonly status: number | null;
};

/**
 * What every tool that moves the page returns. The tool has already done its work, so it does not fail if the page
 * moves on.
 */
export async function about(tab: Tab, signal: AbortSignal): Promise<About> {
  try {
    return await whileChanging(tab, () => aboutDocument(tab, signal), signal);
  } catch (error) {
    if (!(error instanceof DevToolsError)) throw error;
    const { url, title } = await tab.shown(signal);
    return { url, title, status: null };
  }
}

/**
 * Describes the page after what may have opened another one.
 * @param before the document from which the tool may have moved on. It may be the browser's page about an earlier error.
 * @throws ToolFailure if it moved on to a URL that could not be loaded
 */
export async function arrival({ tab, signal }: BrowserUse, before?: string): Promise<About> {
  const page = await whileChanging(tab, () => tab.page(signal), signal).catch((error: unknown) => {
    if (error instanceof DevToolsError) return undefined;
    throw error;
  });
  const isEarlier = page?.loaderId === before || page?.loaderId === tab.failedLoaderId;
  if (page?.unreachableUrl === undefined || isEarlier) return about(tab, signal);
  throw new ToolFailure(`The page moved on to ${shownUrl(page.unreachableUrl)}, which could not be loaded.`);
}

async function aboutDocument(tab: Tab, signal: AbortSignal): Promise<About> {
  const answer = z.object({ url: z.string(), title: z.string(), status: z.number().int().min(0).max(999) });
  const { url, title, status } = await tab.callIn(tab.root, ABOUT, [], answer, signal);
  // The browser's own page about an error has another address than the one that it is about.
  const { unreachableUrl } = url.startsWith("chrome-error:") ? await tab.page(signal) : {};
  // For other schemes, report the status of a success.
  const isWeb = /^https?:/.test(url);
  return {
    url: shownUrl(unreachableUrl ?? url),
    title: title.toWellFormed(),
    status: isWeb && status !== 0 ? status : null,
  };
}
