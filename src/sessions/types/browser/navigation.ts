import { z } from "zod";
import type { JsonObject } from "../../../base/json.ts";
import type { BrowserUse } from "./browser.ts";
import { DevToolsError } from "./devtools.ts";
import { ToolFailure } from "./failure.ts";
import { ABOUT } from "./page-scripts.ts";
import type { LoadState, Tab } from "./tab.ts";
import { shownUrl } from "./urls.ts";

/** When a page counts as there, and what that is to the browser. */
export const LOAD_STATES: Readonly<Record<"dom" | "load" | "network_idle", LoadState>> = {
  dom: "DOMContentLoaded",
  load: "load",
  network_idle: "networkIdle",
};

/** How long a page may go from document to document while something is asked of it. */
const CHANGING_MS = 2_000;

/** What the browser makes of a URL. */
export const navigated = z
  .object({
    loaderId: z.string().optional(),
    errorText: z.string().default(""),
    isDownload: z.boolean().default(false),
  })
  // A server may refuse in the form of a download: nothing is downloaded then. One that begins aborts the navigation.
  .transform(({ isDownload, errorText, ...rest }) => ({
    ...rest,
    errorText,
    isDownload: isDownload && (errorText === "" || errorText === "net::ERR_ABORTED"),
  }));

/** Opens a URL in the tab. @param hasNetwork whether the sandbox has one. */
export async function goTo(
  { tab, signal }: BrowserUse,
  url: string,
  state: LoadState,
  hasNetwork: boolean,
): Promise<void> {
  const { loaderId, errorText, isDownload } = await tab.send("Page.navigate", { url }, navigated, signal);
  if (isDownload) throw new ToolFailure("The URL is a download. Use the tool download.");
  if (errorText !== "") throw new ToolFailure(problemOf(url, errorText, hasNetwork));
  // A place in the same document.
  if (loaderId === undefined) return;
  let isCommitted = tab.hasSeen(loaderId);
  await tab.until(() => {
    isCommitted ||= tab.loaderId === loaderId || tab.hasSeen(loaderId);
    return isCommitted && tab.has(state);
  }, signal);
}

function problemOf(url: string, errorText: string, hasNetwork: boolean): string {
  const problem = `The page could not be loaded: ${errorText.slice(0, 200).toWellFormed()}.`;
  const isWeb = url.startsWith("http:") || url.startsWith("https:");
  if (hasNetwork || !isWeb) return problem;
  return `${problem} The sandbox has no network: only servers inside it can be reached. Create a sandbox with network EGRESS, and the session in it.`;
}

/** Reloads the page. */
export async function reload({ tab, signal }: BrowserUse, state: LoadState): Promise<void> {
  const before = tab.loaderId;
  await tab.send("Page.reload", {}, z.unknown(), signal);
  await tab.until(() => tab.loaderId !== before && tab.has(state), signal);
}

/** Goes back or forward in the tab's history. */
export async function goBy({ tab, signal }: BrowserUse, steps: 1 | -1, state: LoadState): Promise<void> {
  const answer = z.object({ currentIndex: z.number(), entries: z.array(z.object({ id: z.number() })) });
  const ask = () => tab.send("Page.getNavigationHistory", {}, answer, signal);
  const { currentIndex, entries } = await whileChanging(tab, ask, signal);
  const entry = entries[currentIndex + steps];
  if (entry === undefined)
    throw new ToolFailure(`There is no page to go ${steps < 0 ? "back" : "forward"} to.`);
  const before = tab.loaderId;
  await tab.send("Page.navigateToHistoryEntry", { entryId: entry.id }, z.unknown(), signal);
  // A place in the same document loads nothing: there the history alone shows it.
  while (tab.loaderId === before && !(await isAt(tab, currentIndex + steps, signal)))
    await tab.changes(50, signal);
  await tab.until(() => tab.has(state), signal);
}

/** Whether the tab has come to a place of its history; it does not say while it changes documents. */
async function isAt(tab: Tab, index: number, signal: AbortSignal): Promise<boolean> {
  const answer = z.object({ currentIndex: z.number() });
  try {
    return (await tab.send("Page.getNavigationHistory", {}, answer, signal)).currentIndex === index;
  } catch (error) {
    if (error instanceof DevToolsError) return false;
    throw error;
  }
}

/** Asks a page again where it changed its document meanwhile: what was asked of the one before gets no answer. */
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

type About = JsonObject & { readonly status: number | null };

/** What every tool that moves the page returns. What the tool did has happened, so a page that moves on does not fail it. */
export async function about(tab: Tab, signal: AbortSignal): Promise<About> {
  try {
    return await whileChanging(tab, () => aboutDocument(tab, signal), signal);
  } catch (error) {
    if (!(error instanceof DevToolsError)) throw error;
    const { url, title } = await tab.shown(signal);
    return { url, title, status: null };
  }
}

async function aboutDocument(tab: Tab, signal: AbortSignal): Promise<About> {
  const page = await tab.page(signal);
  const answer = z.object({ title: z.string(), status: z.number().int().min(0).max(999) });
  const { title, status } = await tab.callIn(page, ABOUT, [], answer, signal);
  // Pages of other schemes have the status of a success.
  const isWeb = /^https?:/.test(page.url);
  return {
    url: shownUrl(page.url),
    title: title.toWellFormed(),
    status: isWeb && status !== 0 ? status : null,
  };
}
