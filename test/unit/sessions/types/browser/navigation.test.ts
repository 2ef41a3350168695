import { expect, test } from "vitest";
import type { BrowserUse } from "../../../../../src/sessions/types/browser/browser.ts";
import type { DevTools, DevToolsRequest } from "../../../../../src/sessions/types/browser/devtools.ts";
import { reload } from "../../../../../src/sessions/types/browser/navigation.ts";
import { Tab } from "../../../../../src/sessions/types/browser/tab.ts";

const FRAME_TREE = { frame: { id: "page", loaderId: "old", url: "" } };

/** What a tool works with, on a tab whose page stops to load. @param asked called when the page is asked something then */
function useOf(asked: (tab: Tab) => void): BrowserUse {
  const send = async ({ method, answer }: DevToolsRequest<never>) => {
    if (method === "Page.getFrameTree") asked(tab);
    if (method === "Page.reload") {
      tab.setLoading(true);
      tab.setLoading(false);
    }
    return (answer as { parse(given: unknown): unknown }).parse({ frameTree: FRAME_TREE });
  };
  const tab = new Tab({ send } as unknown as DevTools, "t1", "page", "session");
  tab.reached("old", "load");
  return { tab, signal: AbortSignal.timeout(20_000) } as unknown as BrowserUse;
}

test("a page that stops to load and stays was not reloaded", async () => {
  await expect(
    reload(
      useOf(() => {}),
      "load",
    ),
  ).rejects.toThrow("The server sent no page");
});

test("a page that stops to load just before it shows another document was reloaded", async () => {
  // Its own scripts navigate it at the same time.
  const use = useOf((tab) => tab.reached("new", "load"));
  await expect(reload(use, "load")).resolves.toBeUndefined();
  expect(use.tab.loaderId).toBe("new");
});
