import { expect, test } from "vitest";
import { DevToolsError } from "../../../../../src/sessions/types/browser/devtools.ts";
import { References } from "../../../../../src/sessions/types/browser/elements.ts";
import type { Tab } from "../../../../../src/sessions/types/browser/tab.ts";
import { readTree } from "../../../../../src/sessions/types/browser/tree.ts";
import { processorNowMs } from "../../../../support/measure.ts";

const FRAME = { session: "s", frameId: "page", loaderId: "l", url: "" };

/** A tab whose page has this many buttons and nothing else. */
function tabOf(buttons: number): Tab {
  const numbers = Array.from({ length: buttons }, (_, index) => index + 1);
  const node = (id: number, role: string, childIds: readonly string[], parentId?: string) => ({
    ...{ nodeId: String(id), ignored: false, role: { value: role }, name: { value: `n${id}` }, childIds },
    ...{ backendDOMNodeId: id, parentId },
  });
  const nodes = [
    node(0, "RootWebArea", numbers.map(String)),
    ...numbers.map((id) => node(id, "button", [], "0")),
  ];
  return {
    id: "t1",
    targetId: FRAME.frameId,
    frames: async () => [FRAME],
    list: async () => nodes,
    send: async (method: string) => {
      throw new DevToolsError(method, "the answer is too large", true);
    },
  } as unknown as Tab;
}

test("elements for which a tree has no room are not inspected", async () => {
  const [tab, references] = [tabOf(20_000), new References()];
  const { text, truncated } = await readTree(tab, references, AbortSignal.timeout(20_000));
  expect([text.split("\n").length, truncated]).toEqual([5_000, true]);
  // Each inspected element gets a reference, which replaces an earlier one.
  expect(Number(references.of(tab, FRAME, 100_000).slice(1))).toBeLessThan(5_010);
});

test("a long name is compared once, however often its node is listed", async () => {
  const name = { value: `${" ".repeat(100_000)}x` };
  const node = { ignored: false, name, role: { value: "StaticText" } };
  const nodes = [
    { ...node, nodeId: "1", role: { value: "generic" }, childIds: Array(8_000).fill("2") },
    { ...node, nodeId: "2", parentId: "1" },
  ];
  const tab = { ...tabOf(0), list: async () => nodes } as unknown as Tab;
  const before = processorNowMs();
  await readTree(tab, new References(), AbortSignal.timeout(20_000));
  expect(processorNowMs() - before).toBeLessThan(500);
});

test("of a page with huge frames, some are left out", async () => {
  const frames = Array.from({ length: 200 }, (_, index) => ({ ...FRAME, frameId: `f${index}` }));
  let asked = 0;
  const list = async (...[, , , , room]: Parameters<Tab["list"]>) => {
    asked++;
    await Promise.resolve();
    room.bytes -= 10 * 2 ** 20;
    return [];
  };
  const tab = { ...tabOf(0), frames: async () => frames, list } as unknown as Tab;
  const { truncated } = await readTree(tab, new References(), AbortSignal.timeout(20_000));
  expect([truncated, asked < 10]).toEqual([true, true]);
});
