import { posix } from "node:path";
import { setImmediate } from "node:timers/promises";
import { expect, test } from "vitest";
import { toText } from "../../../../../src/base/byte-string.ts";
import type { FileManager } from "../../../../../src/files/manager.ts";
import { DevTools } from "../../../../../src/sessions/types/browser/devtools.ts";
import { download } from "../../../../../src/sessions/types/browser/download.ts";
import { References } from "../../../../../src/sessions/types/browser/elements.ts";
import { Tabs } from "../../../../../src/sessions/types/browser/tabs.ts";

const FRAME_TREE = { frame: { id: "page", loaderId: "l", url: "about:blank" } };

/** A browser in which downloads begin just before the answer to a request. Notes what happens, in order. */
function browserWith(downloads: Readonly<Record<string, readonly { guid: string; frameId: string }[]>>) {
  const happened: string[] = [];
  const say = (message: object): void => devtools.push(Buffer.from(`${JSON.stringify(message)}\0`));
  const open = (targetId: string): void => {
    const params = { sessionId: `session ${targetId}`, targetInfo: { targetId, type: "page" } };
    say({ method: "Target.attachedToTarget", params });
  };
  const begin = (download: { guid: string; frameId: string }): void => {
    const params = { ...download, url: `http://host/${download.guid}`, suggestedFilename: download.guid };
    say({ method: "Browser.downloadWillBegin", params });
    const done = { guid: download.guid, totalBytes: 1, receivedBytes: 1, state: "completed" };
    say({ method: "Browser.downloadProgress", params: done });
  };
  const write = async (data: Buffer): Promise<void> => {
    const { id, method, params, sessionId } = JSON.parse(data.subarray(0, -1).toString());
    // It never answers before the request has been sent.
    await setImmediate();
    if (method === "Target.setAutoAttach" && sessionId === undefined) open("first");
    if (method === "Target.createTarget") open("own");
    if (method === "Target.closeTarget") {
      happened.push("close");
      say({ method: "Target.detachedFromTarget", params: { sessionId: "session own" } });
    }
    if (method === "Browser.setDownloadBehavior") happened.push(params.behavior);
    for (const download of downloads[params?.behavior ?? method] ?? []) begin(download);
    if (method === "Browser.cancelDownload") happened.push(`cancel ${params.guid}`);
    say({ id, result: { frameTree: FRAME_TREE, targetId: "own", isDownload: true } });
  };
  const devtools = new DevTools({ write, pause: () => {}, resume: () => {}, held: () => {} }, () => {});
  const tabs = new Tabs(devtools, { width: 800, height: 600 });
  const browser = { devtools, tabs, place: { name: { owner: "o", sandboxId: "s", generation: 0 } } };
  return { browser, happened };
}

/** What a tool of the browser works with, on its first tab. */
async function useOf({ tabs }: { readonly tabs: Tabs }, signal: AbortSignal) {
  await tabs.start(AbortSignal.timeout(20_000));
  const [tab] = tabs.all;
  if (tab === undefined) throw new Error("no tab");
  return { tab, references: new References(), signal, loaderId: tab.loaderId };
}

test("a download that begins after the call has ended is canceled and removed", async () => {
  const late = ["late", "later"].map((guid) => ({ guid, frameId: "own" }));
  const { browser, happened } = browserWith({ deny: late });
  const files = {
    makeDirectory: async () => {},
    move: async () => {
      throw new Error("nothing has been downloaded");
    },
    remove: async () => {
      happened.push("remove");
    },
  } as unknown as FileManager;
  const end = new AbortController();
  const use = await useOf(browser, end.signal);
  const downloaded = download(browser, files, use, { url: "http://host/late" }, "/tmp");
  downloaded.catch(() => {});
  await expect.poll(() => happened).toContain("close");
  end.abort();
  await expect(downloaded).rejects.toThrow("No download had started");
  expect(happened).toEqual(["allowAndName", "close", "deny", "cancel later", "cancel late", "remove"]);
});

test("the page in another tab does not replace what is downloaded from a URL by its own", async () => {
  const { browser, happened } = browserWith({
    allowAndName: [{ guid: "evil", frameId: "first" }],
    "Page.navigate": ["wanted", "more"].map((guid) => ({ guid, frameId: "own" })),
  });
  const files = {
    makeDirectory: async () => {},
    move: async ({ source, target }: Parameters<FileManager["move"]>[0]) => {
      happened.push(`move ${posix.basename(toText(source.bytes))} ${toText(target.bytes)}`);
    },
    remove: async () => {},
  } as unknown as FileManager;
  const use = await useOf(browser, AbortSignal.timeout(20_000));
  const { data } = await download(browser, files, use, { url: "http://host/wanted" }, "/tmp");
  expect(data).toEqual({ path: "/tmp/wanted", size: 1, url: "http://host/wanted" });
  expect(happened).toContain("move wanted /tmp/wanted");
  expect(happened).toEqual(expect.arrayContaining(["cancel evil", "cancel more"]));
});
