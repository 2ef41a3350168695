import { expect, test } from "vitest";
import { DevToolsError } from "../../../../../src/sessions/types/browser/devtools.ts";
import { References } from "../../../../../src/sessions/types/browser/elements.ts";
import type { Tab } from "../../../../../src/sessions/types/browser/tab.ts";
import { readTree } from "../../../../../src/sessions/types/browser/tree.ts";
import { HeldMemory } from "../../../../../src/sessions/types/held-memory.ts";
import { keptBytes } from "../../../../support/kept-bytes.ts";
import { processorNowMs } from "../../../../support/measure.ts";
import { followTurns } from "../../../../support/turns.ts";

const MIB = 2 ** 20;
const FRAME = { session: "s", frameId: "page", loaderId: "l", url: "" };

/** A tab whose page has this many elements of a role, by default buttons, and nothing else. */
function tabOf(elements: number, role = "button", nameOf = (id: number) => `n${id}`): Tab {
  const numbers = Array.from({ length: elements }, (_, index) => index + 1);
  const node = (id: number, role: string, childIds: readonly string[], parentId?: string) => ({
    ...{ nodeId: String(id), ignored: false, role: { value: role }, name: { value: nameOf(id) }, childIds },
    ...{ backendDOMNodeId: id, parentId },
  });
  const nodes = [
    node(0, "RootWebArea", numbers.map(String)),
    ...numbers.map((id) => node(id, role, [], "0")),
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

/** How much of the work was done in one turn. Not milliseconds, of which a busy machine takes several times as many. */
function largestShare(turns: readonly number[]): number {
  return Math.max(...turns) / turns.reduce((sum, turn) => sum + turn);
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

test("elements without a line neither hold up the service nor displace references", async () => {
  const references = new References();
  const { text } = await readTree(tabOf(1), references, AbortSignal.timeout(60_000));
  const [, ref = ""] = /- button "n1" \[ref=(e\d+)\]$/.exec(text) ?? [];
  const tab = tabOf(120_000, "generic", () => "");
  const turns = followTurns();
  const blank = await readTree(tab, references, AbortSignal.timeout(60_000));
  expect(largestShare(turns())).toBeLessThan(0.5);
  expect(blank).toEqual({ text: "- document", truncated: false });
  expect(references.get(ref)).toMatchObject({ backendNodeId: 1 });
});

test("the elements of a page are looked at in parts, however many there are", async () => {
  const children = Array.from({ length: 300_000 }, (_, index) => ({
    backendNodeId: index + 2,
    nodeName: "DIV",
  }));
  const file = { backendNodeId: 1, nodeName: "INPUT", attributes: ["type", "file"] };
  const page = { backendNodeId: 400_000, nodeName: "HTML", children: [...children, file] };
  const send: Tab["send"] = async (_method, _params, answer) => answer.parse({ node: page });
  const turns = followTurns();
  const { text } = await readTree(
    { ...tabOf(1), send } as Tab,
    new References(),
    AbortSignal.timeout(60_000),
  );
  expect(largestShare(turns())).toBeLessThan(0.5);
  expect(text).toContain("- file");
});

test("references share memory, beyond which those of the owner with most are forgotten, oldest first", async () => {
  const memory = new HeldMemory(2 * MIB);
  const open = (owner: string) => new References((drop, bytes) => memory.hold(owner, drop, bytes));
  const show = (references: References) => {
    const [tab, loaderId] = [tabOf(0), "l".repeat(200)];
    for (let element = 0; element < 2_000; element++) references.of(tab, { ...FRAME, loaderId }, element);
  };
  const before = await keptBytes();
  const modest = open("modest");
  modest.of(tabOf(0), FRAME, 1);
  const browsers = Array.from({ length: 16 }, () => open("greedy"));
  for (const references of browsers) {
    show(references);
    await Promise.resolve();
  }
  // They would take 10 MiB together.
  expect((await keptBytes()) - before).toBeLessThan(5 * MIB);
  const kept = browsers.map((references) => references.get("e1") !== undefined);
  expect([kept[0], kept.at(-1), modest.get("e1") !== undefined]).toEqual([false, true, true]);
  for (const references of [modest, ...browsers]) references.clear();
  expect(browsers.at(-1)?.get("e1")).toBeUndefined();
});

test("references that a tree shows stay, and later ones take no longer", () => {
  const [tab, references] = [tabOf(0), new References()];
  const before = processorNowMs();
  let last = 1;
  for (let tree = 0; tree < 20; tree++) {
    // What the page keeps, such as its menu, and what is new in it.
    expect(references.of(tab, FRAME, 1)).toBe("e1");
    for (let element = 0; element < 5_000; element++) references.of(tab, FRAME, ++last);
    expect(references.get("e1")).toMatchObject({ backendNodeId: 1 });
  }
  expect(references.get("e2")).toBeUndefined();
  expect(processorNowMs() - before).toBeLessThan(700);
});
