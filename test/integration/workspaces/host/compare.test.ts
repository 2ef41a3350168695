import { chmod, mkdir, mkdtemp, rm, symlink, truncate, writeFile } from "node:fs/promises";
import path from "node:path";
import fc from "fast-check";
import { afterAll, beforeAll, expect, test } from "vitest";
import { SORTED_FILES } from "../../../../src/files/tar/restate.ts";
import { compareTrees, type TreeChange } from "../../../../src/workspaces/compare.ts";
import { Tools } from "../../../../src/workspaces/host/tools.ts";
import { archiveDirectory } from "../../../../src/workspaces/host/trees.ts";
import { TreeEntries } from "../../../../src/workspaces/tree-entries.ts";
import { scaled } from "../../../support/scale.ts";
import { newDataDir } from "../../../support/settings.ts";

/** Where a file has data. The rest are holes. */
interface Extent {
  readonly block: number;
  readonly byte: number;
}

/** An entry of a tree. */
type Node =
  | { readonly kind: "file"; readonly text: string; readonly mode: number }
  | { readonly kind: "sparse"; readonly blocks: number; readonly extents: readonly Extent[] }
  | { readonly kind: "link"; readonly to: string }
  | { readonly kind: "directory"; readonly mode: number; readonly holds: Readonly<Record<string, Node>> };

const BLOCK = 4096;
/** Some sort differently if "/" counts as a byte, and some are not text. */
const name = fc.constantFrom("a", "a.b", "a b", "a\n", "-x", "b", "ab", "\xff", "\xe9", "~");
const sparse: fc.Arbitrary<Node> = fc.record({
  kind: fc.constant("sparse" as const),
  blocks: fc.constantFrom(40, 40, 40, 41),
  extents: fc.array(fc.record({ block: fc.constantFrom(0, 1, 20, 39), byte: fc.constantFrom(0, 1) }), {
    maxLength: 3,
  }),
});
const leaf: fc.Arbitrary<Node> = fc.oneof(
  fc.record({
    kind: fc.constant("file" as const),
    text: fc.constantFrom("", "x", "y", "zz"),
    mode: fc.constantFrom(0o644, 0o4755),
  }),
  sparse,
  fc.record({ kind: fc.constant("link" as const), to: fc.constantFrom("a", "/etc/passwd") }),
);

/** The entries of two trees with the same name. */
type Pair =
  | { readonly left?: Node; readonly right?: Node }
  | { readonly modes: readonly [number, number]; readonly holds: Readonly<Record<string, Pair>> };

const directoryMode = fc.constantFrom(0o755, 0o755, 0o700);
const { pairs } = fc.letrec<{ pairs: Readonly<Record<string, Pair>>; pair: Pair; node: Node }>((tie) => ({
  pairs: fc.dictionary(name, tie("pair"), { maxKeys: 5, noNullPrototype: true }),
  pair: fc.oneof(
    { maxDepth: 3, depthSize: "small" },
    fc.record({ left: leaf, right: leaf }),
    fc.record({ left: sparse, right: sparse }),
    leaf.map((both) => ({ left: both, right: both })),
    fc.record({ left: tie("node") }),
    fc.record({ right: tie("node") }),
    fc.record({ left: tie("node"), right: leaf }),
    fc.record({ modes: fc.tuple(directoryMode, directoryMode), holds: tie("pairs") }),
  ),
  node: fc.oneof(
    { maxDepth: 3, depthSize: "small" },
    leaf,
    fc.record({
      kind: fc.constant("directory" as const),
      mode: directoryMode,
      holds: fc.dictionary(name, tie("node"), { maxKeys: 3, noNullPrototype: true }),
    }),
  ),
}));

/** The same content, with the data of one starting where that of the other ends. */
const HALF_HOLE: Readonly<Record<string, Pair>> = {
  half: {
    left: {
      ...{ kind: "sparse", blocks: 40 },
      extents: [
        { block: 0, byte: 0 },
        { block: 1, byte: 1 },
      ],
    },
    right: { kind: "sparse", blocks: 40, extents: [{ block: 1, byte: 1 }] },
  },
};

/** One of the two trees. */
function sideOf(both: Readonly<Record<string, Pair>>, side: "left" | "right"): Record<string, Node> {
  const nodes: Record<string, Node> = {};
  for (const [each, pair] of Object.entries(both)) {
    if ("holds" in pair) {
      const mode = pair.modes[side === "left" ? 0 : 1];
      nodes[each] = { kind: "directory", mode, holds: sideOf(pair.holds, side) };
    } else {
      const node = pair[side];
      if (node !== undefined) nodes[each] = node;
    }
  }
  return nodes;
}

async function make(directory: Buffer, nodes: Readonly<Record<string, Node>>): Promise<void> {
  for (const [each, node] of Object.entries(nodes)) {
    const place = Buffer.concat([directory, Buffer.from(`/${each}`, "latin1")]);
    if (node.kind === "link") await symlink(node.to, place);
    else if (node.kind === "directory") {
      await mkdir(place);
      await make(place, node.holds);
      await chmod(place, node.mode);
    } else if (node.kind === "file") {
      await writeFile(place, node.text);
      await chmod(place, node.mode);
    } else {
      await writeFile(place, "");
      for (const { block, byte } of node.extents) {
        await truncate(place, block * BLOCK);
        await writeFile(place, Buffer.alloc(BLOCK, byte), { flag: "a" });
      }
      await truncate(place, node.blocks * BLOCK);
    }
  }
}

/** The content of a tree, by path: the kind, and then what is compared. */
function told(nodes: Readonly<Record<string, Node>>, above = ""): Map<string, readonly string[]> {
  const all = new Map<string, readonly string[]>();
  for (const [each, node] of Object.entries(nodes)) {
    const where = above + each;
    if (node.kind === "link") all.set(where, ["SYMLINK", "", "", node.to]);
    else if (node.kind === "file")
      all.set(where, ["REGULAR", hex(Buffer.from(node.text)), String(node.mode), ""]);
    else if (node.kind === "directory") {
      all.set(where, ["DIRECTORY", "", String(node.mode), ""]);
      for (const [below, of] of told(node.holds, `${where}/`)) all.set(below, of);
    } else {
      const content = Buffer.alloc(node.blocks * BLOCK);
      // In the order of the writes; data beyond a truncation is gone.
      for (const { block, byte } of node.extents)
        content.fill(0, block * BLOCK).fill(byte, block * BLOCK, (block + 1) * BLOCK);
      all.set(where, ["REGULAR", hex(content), String(0o644), ""]);
    }
  }
  return all;
}

function hex(content: Buffer): string {
  return content.toString("hex");
}

/** The answer of a simple model: two maps, and the names of a path compared one by one. */
function expected(one: Readonly<Record<string, Node>>, other: Readonly<Record<string, Node>>): string[] {
  const [base, now] = [told(one), told(other)];
  const paths = [...new Set([...base.keys(), ...now.keys()])].sort((left, right) => {
    const [lefts, rights] = [left.split("/"), right.split("/")];
    const at = lefts.findIndex((each, index) => each !== rights[index]);
    const [mine = "", theirs = ""] = at < 0 ? ["", "more"] : [lefts[at], rights[at]];
    return mine < theirs ? -1 : 1;
  });
  return paths.flatMap((where) => {
    const [before, after] = [base.get(where), now.get(where)];
    if (before === undefined || after === undefined) return `${before ? "REMOVED" : "ADDED"} ${where}`;
    if (before[0] !== after[0]) return `MODIFIED KIND ${where}`;
    const words = ["", "CONTENT ", "MODE ", "LINK_TARGET "].filter((_, at) => before[at] !== after[at]);
    return words.length > 0 ? `MODIFIED ${words.join("")}${where}` : [];
  });
}

function line(change: TreeChange): string {
  const words = change.type === "MODIFIED" ? change.differences.map((each) => `${each} `).join("") : "";
  return `${change.type} ${words}${change.path}`;
}

const top = newDataDir();
const tools = Tools.find();
const signal = new AbortController().signal;
beforeAll(() => mkdir(top, { recursive: true }));
afterAll(() => rm(top, { recursive: true, force: true }));

function read(directory: string): TreeEntries {
  const tar = archiveDirectory(tools, directory, signal, SORTED_FILES);
  return new TreeEntries(tar, () => false);
}

test("the differences of any two trees are those of a simple model", async () => {
  await fc.assert(
    fc.asyncProperty(pairs, async (both) => {
      const [one, other] = [sideOf(both, "left"), sideOf(both, "right")];
      const [left, right] = [await mkdtemp(path.join(top, "one-")), await mkdtemp(path.join(top, "other-"))];
      try {
        await make(Buffer.from(left), one);
        await make(Buffer.from(right), other);
        const found: string[] = [];
        for await (const change of compareTrees(read(left), read(right))) found.push(line(change));
        expect(found).toEqual(expected(one, other));
      } finally {
        for (const each of [left, right]) await rm(each, { recursive: true });
      }
    }),
    { numRuns: scaled(2_000, 150), examples: [[HALF_HOLE]] },
  );
});
