import { randomBytes } from "node:crypto";
import { posix } from "node:path";
import { z } from "zod";
import { untilAborted } from "../../../base/async.ts";
import { fromText } from "../../../base/byte-string.ts";
import { BerthError } from "../../../base/errors.ts";
import { shorten } from "../../../base/shorten.ts";
import type { FileManager } from "../../../files/manager.ts";
import type { RequestedPath } from "../../../files/path.ts";
import type { SessionHost } from "../../backend.ts";
import type { Browser, BrowserUse, Outcome } from "./browser.ts";
import type { ElementName } from "./elements.ts";
import { ToolFailure } from "./failure.ts";
import { click } from "./input.ts";
import { navigated } from "./navigation.ts";
import { DOWNLOAD_SELF } from "./page-scripts.ts";
import { browserId, type Tab } from "./tab.ts";
import type { Tabs } from "./tabs.ts";
import { shownUrl } from "./urls.ts";

/** The size limit of a download. */
const MAX_BYTES = 1024 * 1024 * 1024;

/** How many downloads of one name there may be in a directory. */
const MAX_SAME = 100;
const MAX_NAME_BYTES = 200;
/** How long the end of downloads and the removal of what is left may take. */
const REMOVE_MS = 5_000;

const NOT_BEGUN = "No download had started: the server did not answer, or the click downloads nothing.";

const willBegin = z.object({
  guid: z.string().regex(/^[A-Za-z0-9-]{1,100}$/),
  /** The frame that started it. */
  frameId: browserId,
  url: z.string(),
  suggestedFilename: z.string(),
});
const progress = z.object({
  guid: z.string().max(100),
  totalBytes: z.number(),
  receivedBytes: z.number(),
  state: z.enum(["inProgress", "completed", "canceled"]),
});

/**
 * Stores what a URL or a click downloads in a directory of the sandbox. Downloads that pages start at other times are
 * refused. The browser writes to a directory of its own in it, which is removed with what else a page downloads
 * meanwhile.
 */
export async function download(
  browser: Pick<Browser, "devtools" | "tabs"> & { readonly place: Pick<SessionHost, "name"> },
  files: Pick<FileManager, "makeDirectory" | "move" | "remove">,
  use: BrowserUse,
  what: ElementName & { readonly url?: string | undefined },
  directory: string,
): Promise<Outcome> {
  const { devtools, tabs } = browser;
  const { signal } = use;
  const own = posix.join(directory, `.download-${randomBytes(8).toString("hex")}`);
  const answer = z.unknown();
  const behave = (behavior: "allowAndName" | "deny") => ({
    method: "Browser.setDownloadBehavior",
    params: {
      behavior,
      eventsEnabled: behavior !== "deny",
      ...(behavior === "allowAndName" && { downloadPath: own }),
    },
    answer,
  });
  const inSandbox = { sandbox: browser.place.name, user: undefined };
  const ended = Promise.withResolvers<z.output<typeof progress>>();
  // Pages in other tabs may start downloads of their own at the same moment.
  const others = tabs.all.filter((tab) => tab !== use.tab);
  const outside = new Set(others.flatMap((tab) => tab.roots.map(({ frameId }) => frameId)));
  let isWanted = (frameId: string): boolean => what.url === undefined && !outside.has(frameId);
  let first: z.output<typeof willBegin> | undefined;
  let foreign: string | undefined;
  // A tab announces the downloads of all frames in its page's process, each just before the browser does.
  devtools.on("Page.downloadWillBegin", willBegin, ({ guid }, session) => {
    if (others.some((tab) => tab.session === session)) foreign = guid;
  });
  devtools.on("Browser.downloadWillBegin", willBegin, (event) => {
    if (isWanted(event.frameId) && event.guid !== foreign) first ??= event;
    if (event.guid !== first?.guid) devtools.notify("Browser.cancelDownload", { guid: event.guid });
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
    // The browser would create the directories above it for itself alone.
    const make = { ...inSandbox, path: fileAt(own), mode: 0o700, createParents: true };
    await files.makeDirectory(make, signal);
    await devtools.send(behave("allowAndName"), signal);
    if (what.url === undefined) await click(use, what, { button: "left", count: 1, offset: undefined });
    else {
      const tab = await tabs.open(signal);
      isWanted = (frameId) => frameId === tab.targetId;
      await openToDownload(tabs, tab, what.url, () => first !== undefined, signal);
    }
    const { guid, receivedBytes } = await untilAborted(ended.promise, signal);
    const source = fileAt(own, guid);
    const move = (name: string) =>
      files.move(
        { ...inSandbox, overwrite: false, createParents: false, source, target: fileAt(directory, name) },
        signal,
      );
    const name = await giveName(move, first?.suggestedFilename ?? "");
    return {
      data: { path: posix.join(directory, name), size: receivedBytes, url: shownUrl(first?.url ?? "") },
    };
  } catch (error) {
    if (first === undefined && signal.aborted && !use.tab.lost.aborted) throw new ToolFailure(NOT_BEGUN);
    throw error;
  } finally {
    // Whatever is wrong with the browser or the sandbox, the call has its result.
    const late = AbortSignal.timeout(REMOVE_MS);
    // A download may begin until the browser has answered.
    await devtools.send(behave("deny"), late).catch(() => {});
    if (first !== undefined) {
      const cancel = { method: "Browser.cancelDownload", params: { guid: first.guid }, answer };
      await devtools.send(cancel, late).catch(() => {});
    }
    const removal = { ...inSandbox, path: fileAt(own), recursive: true, allowMissing: true };
    await files.remove(removal, late).catch(() => {});
    devtools.off("Page.downloadWillBegin");
    devtools.off("Browser.downloadWillBegin");
    devtools.off("Browser.downloadProgress");
  }
}

function fileAt(...path: string[]): RequestedPath {
  return { field: "directory", bytes: fromText(posix.join(...path)) };
}

/**
 * Moves a download to the name that it asks for. If that is taken, with a number: a page chooses names, and must not
 * overwrite files. Returns the name.
 */
async function giveName(move: (name: string) => Promise<unknown>, wanted: string): Promise<string> {
  const whole = wanted.toWellFormed().replace(/[/\0]/g, "_");
  const { name, ext } = posix.parse(/^\.{0,2}$/.test(whole) ? "download" : whole);
  const end = shorten(ext, MAX_NAME_BYTES / 4);
  for (let count = 0; count < MAX_SAME; count++) {
    const number = count === 0 ? "" : ` (${count})`;
    const free = `${shorten(name, MAX_NAME_BYTES)}${number}${end}`;
    try {
      await move(free);
      return free;
    } catch (error) {
      if (!(error instanceof BerthError && error.reason === "FILE_EXISTS")) throw error;
    }
  }
  throw new ToolFailure(
    `The directory already has ${MAX_SAME} files of the download's name. Choose another directory.`,
  );
}

/**
 * Opens a URL in a tab of its own, which is closed afterwards. If the browser shows the content instead of downloading
 * it, starts a download of the page.
 */
async function openToDownload(
  tabs: Tabs,
  tab: Tab,
  url: string,
  hasBegun: () => boolean,
  signal: AbortSignal,
): Promise<void> {
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
    await tabs.close(tab, AbortSignal.timeout(1_000));
  }
}
