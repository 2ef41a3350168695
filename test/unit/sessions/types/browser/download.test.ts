import { setImmediate } from "node:timers/promises";
import { expect, test } from "vitest";
import { DevTools } from "../../../../../src/sessions/types/browser/devtools.ts";
import { download } from "../../../../../src/sessions/types/browser/download.ts";
import { References } from "../../../../../src/sessions/types/browser/elements.ts";
import { Tabs } from "../../../../../src/sessions/types/browser/tabs.ts";

const FRAME_TREE = { frame: { id: "page", loaderId: "l", url: "about:blank" } };

/** A browser in which downloads begin just before it learns that it must refuse them. Notes what happens, in order. */
function lateBrowser() {
  const happened: string[] = [];
  const say = (message: object): void => devtools.push(Buffer.from(`${JSON.stringify(message)}\0`));
  const open = (targetId: string): void => {
    const params = { sessionId: `session ${targetId}`, targetInfo: { targetId, type: "page" } };
    say({ method: "Target.attachedToTarget", params });
  };
  const begin = (guid: string): void =>
    say({
      method: "Browser.downloadWillBegin",
      params: { guid, url: "http://host/late", suggestedFilename: "late" },
    });
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
    if (method === "Browser.setDownloadBehavior" && params.behavior === "deny")
      for (const guid of ["late", "later"]) begin(guid);
    if (method === "Browser.cancelDownload") happened.push(`cancel ${params.guid}`);
    say({ id, result: { frameTree: FRAME_TREE, targetId: "own", isDownload: true } });
  };
  const devtools = new DevTools({ write, pause: () => {}, resume: () => {}, held: () => {} }, () => {});
  const tabs = new Tabs(devtools, { width: 800, height: 600 });
  const browser = { devtools, tabs, place: { name: { owner: "o", sandboxId: "s", generation: 0 } } };
  return { browser, happened };
}

test("a download that begins after the call has ended is canceled and removed", async () => {
  const { browser, happened } = lateBrowser();
  const { tabs } = browser;
  await tabs.start(AbortSignal.timeout(20_000));
  const files = {
    move: async () => {
      throw new Error("nothing has been downloaded");
    },
    remove: async () => {
      happened.push("remove");
    },
  };
  const end = new AbortController();
  const [tab] = tabs.all;
  if (tab === undefined) throw new Error("no tab");
  const use = { tab, references: new References(), signal: end.signal, loaderId: tab.loaderId };
  const downloaded = download(browser, files, use, { url: "http://host/late" }, "/tmp");
  downloaded.catch(() => {});
  await expect.poll(() => happened).toContain("close");
  end.abort();
  await expect(downloaded).rejects.toThrow("No download had started");
  expect(happened).toEqual(["allowAndName", "close", "deny", "cancel later", "cancel late", "remove"]);
});
