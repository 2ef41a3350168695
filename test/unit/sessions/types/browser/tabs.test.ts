import { expect, test } from "vitest";
import { DevTools } from "../../../../../src/sessions/types/browser/devtools.ts";
import { Tabs } from "../../../../../src/sessions/types/browser/tabs.ts";

const signal = AbortSignal.timeout(20_000);

/** A browser with pages of these target ids. It no longer knows those that are `gone`, but has not said so yet. */
function tabsOf(targetIds: readonly string[], gone: ReadonlySet<string> = new Set(), loaderId = "l") {
  const frameTree = { frame: { id: "page", loaderId, url: "about:blank" } };
  const say = (message: object): void => devtools.push(Buffer.from(`${JSON.stringify(message)}\0`));
  const open = (targetId: string): void => {
    const targetInfo = { targetId, type: "page" };
    say({ method: "Target.attachedToTarget", params: { sessionId: `session ${targetId}`, targetInfo } });
  };
  const close = (targetId: string): void =>
    say({ method: "Target.detachedFromTarget", params: { sessionId: `session ${targetId}` } });
  const write = async (data: Buffer): Promise<void> => {
    const { id, method, params, sessionId } = JSON.parse(data.subarray(0, -1).toString());
    if (method === "Target.setAutoAttach" && sessionId === undefined) targetIds.forEach(open);
    if (method !== "Target.getTargetInfo") return say({ id, result: { frameTree } });
    if (gone.has(params.targetId)) say({ id, error: { message: "No target with given id found" } });
    else say({ id, result: { targetInfo: { url: "about:blank", title: params.targetId } } });
  };
  const devtools = new DevTools({ write, pause: () => {}, resume: () => {}, held: () => {} }, () => {});
  return { tabs: new Tabs(devtools, { width: 800, height: 600 }), open, close };
}

test("a tab that closes while tabs are listed is left out", async () => {
  const gone = new Set<string>();
  const { tabs } = tabsOf(["one", "two", "three"], gone);
  await tabs.start(signal);
  await expect(tabs.describe(signal)).resolves.toMatchObject([{ id: "t1" }, { id: "t2" }, { id: "t3" }]);
  gone.add("two");
  await expect(tabs.describe(signal)).resolves.toMatchObject([{ id: "t1" }, { id: "t3" }]);
});

test("tabs that pages opened are reported once, and those that are closed again not at all", async () => {
  const { tabs, open, close } = tabsOf(["one"]);
  await tabs.start(signal);
  open("two");
  open("three");
  close("two");
  await expect.poll(() => tabs.all.map(({ id }) => id)).toEqual(["t1", "t3"]);
  expect(tabs.takeOpened()).toEqual(["t3"]);
  expect(tabs.takeOpened()).toEqual([]);
});

test("a browser whose ids are long is refused", async () => {
  const { tabs } = tabsOf(["one"], new Set(), "l".repeat(1_000));
  await expect(tabs.start(signal)).rejects.toThrow("another form");
});
