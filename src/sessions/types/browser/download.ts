import { z } from "zod";
import { untilAborted } from "../../../base/async.ts";
import type { Browser, BrowserUse, Outcome } from "./browser.ts";
import type { ElementName } from "./elements.ts";
import { ToolFailure } from "./failure.ts";
import { click } from "./input.ts";
import { navigated } from "./navigation.ts";
import { DOWNLOAD_SELF } from "./page-scripts.ts";
import { shownUrl } from "./urls.ts";

/** The size limit of a download. */
const MAX_BYTES = 1024 * 1024 * 1024;

const willBegin = z.object({ guid: z.string().max(100), url: z.string(), suggestedFilename: z.string() });
const progress = z.object({
  guid: z.string().max(100),
  totalBytes: z.number(),
  receivedBytes: z.number(),
  state: z.enum(["inProgress", "completed", "canceled"]),
  filePath: z.string().optional(),
});

/**
 * Stores what a URL or a click downloads in a directory of the sandbox. Downloads that pages start at other times are
 * refused.
 */
export async function download(
  browser: Browser,
  use: BrowserUse,
  what: ElementName & { readonly url?: string | undefined },
  directory: string,
): Promise<Outcome> {
  const { devtools } = browser;
  const { signal } = use;
  const answer = z.unknown();
  const behave = (behavior: "allow" | "deny") => ({
    method: "Browser.setDownloadBehavior",
    params: { behavior, eventsEnabled: true, ...(behavior === "allow" && { downloadPath: directory }) },
    answer,
  });
  const ended = Promise.withResolvers<z.output<typeof progress>>();
  let first: z.output<typeof willBegin> | undefined;
  devtools.on("Browser.downloadWillBegin", willBegin, (event) => {
    first ??= event;
  });
  devtools.on("Browser.downloadProgress", progress, (event) => {
    if (event.guid !== first?.guid) return;
    if (event.receivedBytes > MAX_BYTES || event.totalBytes > MAX_BYTES) {
      ended.reject(new ToolFailure(`The download has more than ${MAX_BYTES} bytes, and was canceled.`));
    } else if (event.state === "completed") ended.resolve(event);
    else if (event.state === "canceled")
      ended.reject(new ToolFailure("The download was canceled, or failed."));
  });
  ended.promise.catch(() => {});
  try {
    await devtools.send(behave("allow"), signal);
    if (what.url === undefined) await click(use, what, { button: "left", count: 1, offset: undefined });
    else await openToDownload(browser, what.url, () => first !== undefined, signal);
    const { filePath, receivedBytes } = await untilAborted(ended.promise, signal);
    const name = first?.suggestedFilename ?? "";
    const path = filePath ?? `${directory === "/" ? "" : directory}/${name}`;
    const data = {
      path: path.slice(0, 4_096).toWellFormed(),
      size: receivedBytes,
      url: shownUrl(first?.url ?? ""),
    };
    return { data };
  } catch (error) {
    if (first !== undefined) devtools.notify("Browser.cancelDownload", { guid: first.guid });
    throw error;
  } finally {
    devtools.off("Browser.downloadWillBegin");
    devtools.off("Browser.downloadProgress");
    devtools.notify("Browser.setDownloadBehavior", { behavior: "deny", eventsEnabled: false });
  }
}

/**
 * Opens a URL in its own tab. If the browser shows the content instead of downloading it, starts a download of the
 * page.
 */
async function openToDownload(
  browser: Browser,
  url: string,
  hasBegun: () => boolean,
  signal: AbortSignal,
): Promise<void> {
  const tab = await browser.tabs.open(signal);
  const own = AbortSignal.any([signal, tab.lost]);
  try {
    const { errorText, isDownload } = await tab.send("Page.navigate", { url }, navigated, own);
    if (isDownload || hasBegun()) return;
    if (errorText !== "")
      throw new ToolFailure(`The URL could not be loaded: ${errorText.slice(0, 200).toWellFormed()}.`);
    await tab.callIn(await tab.page(own), DOWNLOAD_SELF, [], z.unknown(), own);
    // Closing the tab too early would cancel the download.
    while (!hasBegun()) await tab.changes(20, own);
  } catch (error) {
    // The browser itself closes a tab that was only opened for a download.
    if (signal.aborted || !tab.isClosed) throw error;
  } finally {
    await browser.tabs.close(tab, AbortSignal.timeout(1_000));
  }
}
