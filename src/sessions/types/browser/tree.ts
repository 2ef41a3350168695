import { z } from "zod";
import { forEachConcurrently } from "../../../base/async.ts";
import { listOf } from "../common.ts";
import { Pace } from "../pace.ts";
import { DevToolsError } from "./devtools.ts";
import type { References } from "./elements.ts";
import type { Frame, Tab } from "./tab.ts";

const MAX_LINES = 5_000;
const MAX_NAME = 200;
/** Levels of nodes, including nodes that are not shown. */
const MAX_LEVELS = 1_000;
const MAX_CANVASES = 50;
/** How much the browser may answer about all frames together, and how many it is asked about at once. */
const MAX_ANSWER_BYTES = 32 * 1024 * 1024;
const FRAMES_AT_ONCE = 4;
/** How many elements of a huge page are queried one by one. */
const MAX_ASKED = 300;

const value = z.object({ value: z.unknown().optional() }).optional();
const axNode = z.object({
  nodeId: z.string(),
  parentId: z.string().optional(),
  ignored: z.boolean(),
  role: value,
  name: value,
  value: value,
  properties: listOf(z.object({ name: z.string(), value })).optional(),
  childIds: listOf(z.string()).optional(),
  backendDOMNodeId: z.number().optional(),
});
type AxNode = z.output<typeof axNode>;

/** What the accessibility tree lacks. */
interface DomFacts {
  /** The frame that each iframe shows. */
  readonly frames: ReadonlyMap<number, string>;
  readonly fileInputs: ReadonlySet<number>;
  /** Canvases, each with its ancestors, innermost first. */
  readonly canvases: readonly { readonly id: number; readonly around: readonly number[] }[];
}

/** Its children are parsed one after another: a page may have a hundred thousand. */
const domNode = z.object({
  backendNodeId: z.number(),
  nodeName: z.string(),
  attributes: listOf(z.string()).optional(),
  frameId: z.string().optional(),
  children: z.array(z.unknown()).default([]),
  shadowRoots: z.array(z.unknown()).default([]),
  contentDocument: z.object({ frameId: z.string().optional() }).optional(),
});

/** A tab's tree as text. */
interface TreeText {
  readonly text: string;
  /** Whether parts of the page are left out. */
  readonly truncated: boolean;
}

interface FrameTree {
  readonly frame: Frame;
  readonly nodes: ReadonlyMap<string, AxNode>;
  readonly root: AxNode | undefined;
  readonly facts: DomFacts;
  readonly boxes: ReadonlyMap<number, string>;
}

/** Roles that a person acts on; the others are only read. */
const INTERACTIVE: ReadonlySet<string> = new Set(
  (
    "button canvas checkbox ColorWell combobox ComboBoxMenuButton Date DateTime DisclosureTriangle gridcell " +
    "InputTime link listbox menuitem menuitemcheckbox menuitemradio option PopUpButton radio " +
    "searchbox slider spinbutton switch tab textbox treeitem file"
  ).split(" "),
);
/** Roles that add nothing to their children unless they have a name. */
const TRANSPARENT: ReadonlySet<string> = new Set([
  "generic",
  "none",
  "LabelText",
  "MenuListPopup",
  "Legend",
  "paragraph",
]);
const SHOWN_STATES: ReadonlySet<string> = new Set(
  "checked disabled expanded invalid level multiselectable pressed readonly required selected".split(" "),
);

/** The accessibility tree of a tab and its frames, with references to elements. */
export async function readTree(tab: Tab, references: References, signal: AbortSignal): Promise<TreeText> {
  const frames = await tab.frames(signal);
  const trees = new Map<string, FrameTree>();
  const room = { bytes: MAX_ANSWER_BYTES };
  const readInto = async (frame: Frame): Promise<void> => {
    const tree = await readFrame(tab, frame, room, signal);
    trees.set(frame.frameId, tree);
  };
  const isPage = ({ frameId }: Frame): boolean => frameId === tab.targetId;
  // First the page, which must answer, so that no frame takes its room.
  for (const page of frames.filter(isPage)) await readInto(page);
  await forEachConcurrently(
    frames.filter((frame) => !isPage(frame)),
    async (frame) => {
      // A frame may go away at any time.
      if (room.bytes >= 0) await readInto(frame).catch(() => {});
      signal.throwIfAborted();
    },
    FRAMES_AT_ONCE,
  );
  const writer = new TreeWriter(tab, references, trees, new Pace(signal));
  await writer.frame(tab.targetId, { depth: 0, level: 0 });
  const { text, truncated } = writer.result();
  return { text, truncated: truncated || room.bytes < 0 };
}

async function readFrame(
  tab: Tab,
  frame: Frame,
  room: { bytes: number },
  signal: AbortSignal,
): Promise<FrameTree> {
  const { session, frameId } = frame;
  const params = { frameId };
  const nodes = await tab.list("Accessibility.getFullAXTree", params, "nodes", axNode, room, signal, session);
  const byId = new Map(nodes.map((node) => [node.nodeId, node]));
  const root = nodes.find(({ parentId }) => parentId === undefined);
  const facts = await readFacts(tab, session, root?.backendDOMNodeId, signal).catch((error: unknown) => {
    // If the page is huge, or nested too deep for the browser's answer, query single elements.
    if (error instanceof DevToolsError) return readFewFacts(tab, session, nodes, signal);
    throw error;
  });
  const boxes = new Map<number, string>();
  await Promise.all(
    facts.canvases.map(async ({ id }) => {
      const answer = z.object({ model: z.object({ width: z.number(), height: z.number() }) });
      const asked = tab.send("DOM.getBoxModel", { backendNodeId: id }, answer, signal, session);
      const found = await asked.catch(() => undefined);
      if (found !== undefined) boxes.set(id, `${found.model.width}x${found.model.height}`);
    }),
  );
  return { frame, nodes: byId, root, facts, boxes };
}

async function readFacts(
  tab: Tab,
  session: string,
  backendNodeId: number | undefined,
  signal: AbortSignal,
): Promise<DomFacts> {
  const frames = new Map<number, string>();
  const fileInputs = new Set<number>();
  const canvases: { id: number; around: number[] }[] = [];
  if (backendNodeId === undefined) return { frames, fileInputs, canvases };
  const params = { backendNodeId, depth: -1, pierce: true };
  const answer = z.object({ node: z.unknown() });
  const { node } = await tab.send("DOM.describeNode", params, answer, signal, session);
  const outer = new Map<number, number>();
  const aroundOf = (id: number): number[] => {
    const around: number[] = [];
    for (let at = outer.get(id); at !== undefined && around.length < MAX_LEVELS; at = outer.get(at))
      around.push(at);
    return around;
  };
  const pace = new Pace(signal);
  // In the order of the document, from the end.
  const left: { readonly given: unknown; readonly parent: number | undefined }[] = [
    { given: node, parent: undefined },
  ];
  for (let next = left.pop(); next !== undefined; next = left.pop()) {
    await pace.next();
    const { success, data } = domNode.safeParse(next.given);
    if (!success) continue;
    const { backendNodeId: id, nodeName, contentDocument, children, shadowRoots } = data;
    if (next.parent !== undefined) outer.set(id, next.parent);
    // The documents of frames are read separately.
    if (contentDocument !== undefined || nodeName === "IFRAME") {
      const frameId = data.frameId ?? contentDocument?.frameId;
      if (frameId !== undefined) frames.set(id, frameId);
      continue;
    }
    if (isFileInput(data)) fileInputs.add(id);
    if (nodeName === "CANVAS" && canvases.length < MAX_CANVASES) canvases.push({ id, around: aroundOf(id) });
    for (const given of [...shadowRoots, ...children].reverse()) left.push({ given, parent: id });
  }
  return { frames, fileInputs, canvases };
}

/** The facts about those elements that look like frames or file inputs. */
async function readFewFacts(
  tab: Tab,
  session: string,
  nodes: readonly AxNode[],
  signal: AbortSignal,
): Promise<DomFacts> {
  const frames = new Map<number, string>();
  const fileInputs = new Set<number>();
  const ids = nodes
    .filter(({ role }) => textOf(role) === "Iframe" || textOf(role) === "button")
    .flatMap(({ backendDOMNodeId }) => backendDOMNodeId ?? [])
    .slice(0, MAX_ASKED);
  await Promise.all(
    ids.map(async (backendNodeId) => {
      const answer = z.object({ node: domNode });
      const asked = tab.send("DOM.describeNode", { backendNodeId, depth: 0 }, answer, signal, session);
      const node = (await asked.catch(() => undefined))?.node;
      if (node?.frameId !== undefined) frames.set(backendNodeId, node.frameId);
      if (node !== undefined && isFileInput(node)) fileInputs.add(backendNodeId);
    }),
  );
  signal.throwIfAborted();
  return { frames, fileInputs, canvases: [] };
}

function isFileInput({ nodeName, attributes = [] }: z.output<typeof domNode>): boolean {
  // The list alternates names and values.
  const type = attributes.findIndex((name, index) => index % 2 === 0 && name === "type");
  return nodeName === "INPUT" && type !== -1 && attributes[type + 1]?.toLowerCase() === "file";
}

/** Where a node stands in the text, and in the tree. */
interface Place {
  readonly depth: number;
  readonly level: number;
}

/** Writes one line per node, indented by depth. */
class TreeWriter {
  readonly #tab: Tab;
  readonly #references: References;
  readonly #trees: ReadonlyMap<string, FrameTree>;
  readonly #pace: Pace;
  readonly #lines: string[] = [];
  readonly #written = new Set<string>();
  #truncated = false;

  constructor(tab: Tab, references: References, trees: ReadonlyMap<string, FrameTree>, pace: Pace) {
    this.#tab = tab;
    this.#references = references;
    this.#trees = trees;
    this.#pace = pace;
  }

  result(): TreeText {
    return { text: this.#lines.join("\n").toWellFormed(), truncated: this.#truncated };
  }

  async frame(frameId: string, place: Place): Promise<void> {
    const tree = this.#trees.get(frameId);
    if (tree?.root === undefined || this.#written.has(frameId)) return;
    this.#written.add(frameId);
    const canvasesIn = new Map<number, number[]>();
    const shown = new Set([...tree.nodes.values()].map(({ backendDOMNodeId }) => backendDOMNodeId));
    for (const { id, around } of tree.facts.canvases) {
      const outer = around.find((one) => shown.has(one));
      if (outer !== undefined && !shown.has(id) && tree.boxes.has(id)) {
        canvasesIn.set(outer, [...(canvasesIn.get(outer) ?? []), id]);
      }
    }
    await this.#node(tree, tree.root, place, canvasesIn, new Set());
  }

  async #node(
    tree: FrameTree,
    node: AxNode,
    { depth, level }: Place,
    canvasesIn: ReadonlyMap<number, readonly number[]>,
    seen: Set<string>,
  ): Promise<void> {
    // The page may have a hundred thousand more nodes.
    if (this.#truncated) return;
    // A node that claims to be its own ancestor would never end.
    if (seen.has(node.nodeId)) return;
    seen.add(node.nodeId);
    const role = textOf(node.role);
    if (role === "InlineTextBox") return;
    const line = node.ignored ? undefined : this.#lineOf(tree, node, role);
    if (line !== undefined && !this.#write(line, depth)) return;
    const inner = line === undefined ? depth : depth + 1;
    const id = node.backendDOMNodeId;
    const frameId = id === undefined ? undefined : tree.facts.frames.get(id);
    if (frameId !== undefined) {
      await this.frame(frameId, { depth: inner, level: level + 1 });
      return;
    }
    const isLeaf = (id !== undefined && tree.facts.fileInputs.has(id)) || VALUE_ROLES.has(role);
    if (!isLeaf && level < MAX_LEVELS) {
      const name = textOf(node.name).trim();
      for (const childId of node.childIds ?? []) {
        if (this.#truncated) return;
        await this.#pace.next();
        const child = tree.nodes.get(childId);
        // Names may be long, so each is compared once.
        if (child === undefined || seen.has(childId)) continue;
        if (textOf(child.role) === "StaticText" && textOf(child.name).trim() === name) {
          seen.add(childId);
          continue;
        }
        await this.#node(tree, child, { depth: inner, level: level + 1 }, canvasesIn, seen);
      }
    }
    for (const canvas of canvasesIn.get(id ?? -1) ?? []) {
      const ref = this.#references.of(this.#tab, tree.frame, canvas);
      this.#write(`canvas [ref=${ref}] [size=${tree.boxes.get(canvas)}]`, inner);
    }
  }

  #lineOf(tree: FrameTree, node: AxNode, axRole: string): string | undefined {
    const id = node.backendDOMNodeId;
    const isFile = id !== undefined && tree.facts.fileInputs.has(id);
    const name = textOf(node.name);
    const properties = new Map(
      (node.properties ?? []).map((property) => [property.name, property.value?.value]),
    );
    // Only for what gets a line: the rest must not displace it.
    const reference = () =>
      id === undefined ? "" : `[ref=${this.#references.of(this.#tab, tree.frame, id)}]`;
    if (axRole === "StaticText")
      return name.trim() === "" ? undefined : `text ${quoted(name.trim())} ${reference()}`;
    const isEditor =
      properties.has("editable") && properties.get("focusable") === true && axRole === "generic";
    const role = isFile ? "file" : isEditor ? "textbox" : (ROLE_NAMES[axRole] ?? axRole);
    const canAct =
      INTERACTIVE.has(axRole) || isFile || properties.get("focusable") === true || properties.has("editable");
    if (!canAct && name === "" && TRANSPARENT.has(axRole)) return undefined;
    if (axRole === "generic" && !properties.get("focusable") && name === "") return undefined;
    const parts = [role];
    if (name !== "") parts.push(quoted(name));
    if (id !== undefined && axRole !== "RootWebArea") parts.push(reference());
    for (const [property, given] of properties) {
      if (!SHOWN_STATES.has(property) || given === false || given === "false") continue;
      const shown =
        given === true || given === "true" ? property : `${property}=${String(given).slice(0, 20)}`;
      parts.push(`[${shown}]`);
    }
    const frameId = id === undefined ? undefined : tree.facts.frames.get(id);
    if (frameId !== undefined && this.#tab.hanging.some((frame) => frame.frameId === frameId))
      parts.push("[hangs]");
    const box = id === undefined ? undefined : tree.boxes.get(id);
    if (box !== undefined) parts.push(`[size=${box}]`);
    const text = textOf(node.value);
    if (text !== "") parts.push(`value=${quoted(text)}`);
    return parts.join(" ");
  }

  #write(line: string, depth: number): boolean {
    if (this.#lines.length >= MAX_LINES) {
      this.#truncated = true;
      return false;
    }
    this.#lines.push(`${"  ".repeat(depth)}- ${line}`);
    return true;
  }
}

/** The children of these only repeat their value. */
const VALUE_ROLES: ReadonlySet<string> = new Set([
  "textbox",
  "searchbox",
  "Date",
  "DateTime",
  "InputTime",
  "ColorWell",
]);
const ROLE_NAMES: Readonly<Record<string, string>> = {
  RootWebArea: "document",
  Iframe: "iframe",
  Canvas: "canvas",
  Date: "date",
  DateTime: "datetime",
  InputTime: "time",
  ColorWell: "color",
};

function textOf(given: { value?: unknown } | undefined): string {
  const text = given?.value;
  return typeof text === "string" || typeof text === "number" ? String(text) : "";
}

function quoted(text: string): string {
  return JSON.stringify(text.length > MAX_NAME ? `${text.slice(0, MAX_NAME)}…` : text);
}
