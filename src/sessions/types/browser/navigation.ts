import { z } from "zod";
import { invalidArgument } from "../../../base/errors.ts";
import type { JsonObject } from "../../../base/json.ts";
import type { BrowserUse } from "./browser.ts";
import { ToolFailure } from "./failure.ts";
import { ABOUT } from "./page-scripts.ts";
import type { LoadState, Tab } from "./tab.ts";

/** When a page counts as there, and what that is to the browser. */
export const LOAD_STATES: Readonly<Record<"dom" | "load" | "network_idle", LoadState>> = {
  dom: "DOMContentLoaded",
  load: "load",
  network_idle: "networkIdle",
};

const MAX_URL = 4_000;
const MAX_DATA_URL = 200;
const SCHEMES: ReadonlySet<string> = new Set(["http:", "https:", "data:", "file:", "about:"]);

/** Parses the URL of a page. @throws `INVALID_ARGUMENT` for one that is none, or of a scheme that pages do not have. */
export function pageUrl(field: string, text: string): string {
  if (!URL.canParse(text)) {
    throw invalidArgument(
      field,
      "is no URL. Give it whole, for instance https://example.org/ or file:///workspace/page.html.",
    );
  }
  const { protocol } = new URL(text);
  if (SCHEMES.has(protocol)) return text;
  throw invalidArgument(
    field,
    `has the scheme ${JSON.stringify(protocol)}. There are http, https, data, file and about.`,
  );
}

const navigated = z.object({
  loaderId: z.string().optional(),
  errorText: z.string().optional(),
  isDownload: z.boolean().optional(),
});

/** Opens a URL in the tab. @param hasNetwork whether the sandbox has one. */
export async function goTo(
  { tab, signal }: BrowserUse,
  url: string,
  state: LoadState,
  hasNetwork: boolean,
): Promise<void> {
  const { loaderId, errorText, isDownload } = await tab.send("Page.navigate", { url }, navigated, signal);
  if (isDownload === true) throw new ToolFailure("The URL is a download. Use the tool download.");
  if (errorText !== undefined && errorText !== "")
    throw new ToolFailure(problemOf(url, errorText, hasNetwork));
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
  const { currentIndex, entries } = await tab.send("Page.getNavigationHistory", {}, answer, signal);
  const entry = entries[currentIndex + steps];
  if (entry === undefined)
    throw new ToolFailure(`There is no page to go ${steps < 0 ? "back" : "forward"} to.`);
  await tab.send("Page.navigateToHistoryEntry", { entryId: entry.id }, z.unknown(), signal);
  // A place in the same document loads nothing: the history alone tells.
  const isThere = async (): Promise<boolean> => {
    const now = await tab.send(
      "Page.getNavigationHistory",
      {},
      z.object({ currentIndex: z.number() }),
      signal,
    );
    return now.currentIndex === currentIndex + steps;
  };
  while (!(await isThere())) await tab.changes(50, signal);
  await tab.until(() => !tab.isLoading || tab.has(state), signal);
}

/** What every tool that moves the page returns. */
export async function about(
  tab: Tab,
  signal: AbortSignal,
): Promise<JsonObject & { readonly status: number | null }> {
  const page = await tab.page(signal);
  const answer = z.object({ title: z.string(), status: z.number().int().min(0).max(999) });
  const { title, status } = await tab.callIn(page, ABOUT, [], answer, signal);
  // Pages of other schemes have the status of a success.
  const isWeb = /^https?:/.test(page.url);
  return { url: shownUrl(page.url), title: title.toWellFormed(), status: isWeb && status !== 0 ? status : null };
}

/** A URL as results have it: what is very long, as a page in its own URL is, is cut. */
export function shownUrl(url: string): string {
  const max = url.startsWith("data:") ? MAX_DATA_URL : MAX_URL;
  return (url.length > max ? `${url.slice(0, max)}…` : url).toWellFormed();
}
