import { z } from "zod";
import { listOf } from "../common.ts";
import type { Hold } from "../held-memory.ts";
import { DevToolsError } from "./devtools.ts";
import { ToolFailure } from "./failure.ts";
import { FIND, IS_CONNECTED, SCROLLED_AROUND } from "./page-scripts.ts";
import type { Frame, RemoteObject, Tab } from "./tab.ts";

/** How a caller names an element: by exactly one of the two. */
export interface ElementName {
  readonly selector?: string | undefined;
  readonly ref?: string | undefined;
}

/** A point in the viewport, in CSS pixels. */
export interface Point {
  readonly x: number;
  readonly y: number;
}

/** A rectangle in the viewport, in CSS pixels. */
export interface Box extends Point {
  readonly width: number;
  readonly height: number;
}

/** Where an element is shown. */
export interface Place {
  /** Its first line if it is text that wraps, otherwise all of it. */
  readonly first: Box;
  readonly whole: Box;
}

interface Referred {
  readonly tab: Tab;
  readonly frame: Pick<Frame, "session" | "frameId" | "loaderId">;
  readonly backendNodeId: number;
}

/** This many of the references that trees showed last are kept, and some older ones. */
const KEPT_REFS = 20_000;
/** What a reference takes, besides its key. */
const REF_BYTES = 150;

/** An element of at most this size in pixels is in view as a whole after it was scrolled into view. */
const SMALL = 60;

/** Four points, each as x and y. Without `abort`, a list would be checked to its end if some are of another length. */
const quad = z.array(z.number()).length(8, { abort: true });
const quads = z.object({ quads: listOf(quad) });
const frameOwner = z.object({ backendNodeId: z.number() });
const done = z.unknown();

/** The references that trees give to elements. An element keeps its reference as long as it exists. */
export class References {
  readonly #byRef = new Map<string, Referred>();
  /** Those shown last come last. */
  readonly #refs = new Map<string, string>();
  readonly #hold: Hold;
  #last = 0;
  #bytes = 0;

  /** @param hold called with the memory that they take, and with what drops them. */
  constructor(hold: Hold = () => {}) {
    this.#hold = hold;
  }

  /** The reference of an element. Creates one if there is none. */
  of(tab: Tab, frame: Frame, backendNodeId: number): string {
    const key = `${tab.id} ${frame.frameId} ${frame.loaderId} ${backendNodeId}`;
    const known = this.#refs.get(key);
    if (known !== undefined) {
      this.#refs.delete(key);
      this.#refs.set(key, known);
      return known;
    }
    const ref = `e${++this.#last}`;
    this.#refs.set(key, ref);
    const { session, frameId, loaderId } = frame;
    // Without the frame's URL, which may be long.
    this.#byRef.set(ref, { tab, frame: { session, frameId, loaderId }, backendNodeId });
    this.#bytes += REF_BYTES + key.length;
    if (this.#refs.size > 2 * KEPT_REFS) this.#forgetOldest();
    this.#hold(this.clear, this.#bytes);
    return ref;
  }

  get(ref: string): Referred | undefined {
    return this.#byRef.get(ref);
  }

  /** Many at once: to find the oldest of a map takes time for all that were deleted before it. */
  #forgetOldest(): void {
    for (const [key, ref] of this.#refs) {
      if (this.#refs.size <= KEPT_REFS) return;
      this.#refs.delete(key);
      this.#byRef.delete(ref);
      this.#bytes -= REF_BYTES + key.length;
    }
  }

  /** Forgets all of them. */
  readonly clear = (): void => {
    this.#refs.clear();
    this.#byRef.clear();
    this.#bytes = 0;
    this.#hold(this.clear, 0);
  };
}

/** The element that a caller names. @throws `ToolFailure` if it does not exist, or no longer exists. */
export async function findElement(
  tab: Tab,
  references: References,
  { selector, ref }: ElementName,
  signal: AbortSignal,
): Promise<RemoteObject> {
  if (ref !== undefined) return byReference(tab, references, ref, signal);
  const found = await bySelector(tab, selector ?? "", signal);
  if (found !== undefined) return found;
  const more = tab.hanging.length === 0 ? "" : " A frame of the page hangs, and was not searched.";
  throw new ToolFailure(
    `No element matches ${JSON.stringify(selector)}. wait_for waits for one; tree shows what there is.${more}`,
  );
}

/** The first element that matches a CSS selector, in the page itself and then in its frames. */
export async function bySelector(
  tab: Tab,
  selector: string,
  signal: AbortSignal,
): Promise<RemoteObject | undefined> {
  for (const frame of await tab.frames(signal)) {
    const isPage = frame.frameId === tab.targetId;
    const found = await tab.findIn(frame, FIND, [selector], signal).catch((error: unknown) => {
      // A frame may go away at any time, so only the page itself can report an invalid selector.
      if (isPage || signal.aborted) throw error;
      return undefined;
    });
    if (found !== undefined) return found;
  }
  return undefined;
}

async function byReference(
  tab: Tab,
  references: References,
  ref: string,
  signal: AbortSignal,
): Promise<RemoteObject> {
  const referred = references.get(ref);
  if (referred === undefined)
    throw new ToolFailure(`There is no reference ${ref}. Call tree for current ones.`);
  if (referred.tab !== tab) {
    throw new ToolFailure(
      `The reference ${ref} is of tab ${referred.tab.id}. Select that tab, or call tree.`,
    );
  }
  const stale = new ToolFailure(`The element of ${ref} is gone. Call tree for current references.`);
  const { frame, backendNodeId } = referred;
  const { frameId, loaderId } = frame;
  const frames = await tab.frames(signal);
  if (tab.hanging.some(({ session }) => session === frame.session))
    throw new ToolFailure(`The frame of ${ref} hangs: it does not answer.`);
  if (!frames.some((now) => now.frameId === frameId && now.loaderId === loaderId)) throw stale;
  try {
    const element = await tab.resolve(frame, backendNodeId, signal);
    if (await tab.callOn(element, IS_CONNECTED, [], z.boolean(), signal)) return element;
  } catch (error) {
    if (!(error instanceof DevToolsError)) throw error;
  }
  throw stale;
}

/** Scrolls an element into view and returns its place. @throws `ToolFailure` if it is not visible. */
export async function placeOf(tab: Tab, element: RemoteObject, signal: AbortSignal): Promise<Place> {
  const { session, objectId } = element;
  // If it has no layout, the next request fails too.
  await tab.send("DOM.scrollIntoViewIfNeeded", { objectId }, done, signal, session).catch(() => {});
  signal.throwIfAborted();
  return visiblePlace(tab, element, signal);
}

async function visiblePlace(
  tab: Tab,
  { session, objectId }: RemoteObject,
  signal: AbortSignal,
): Promise<Place> {
  try {
    const found = await tab.send("DOM.getContentQuads", { objectId }, quads, signal, session);
    const boxes = found.quads.map(boxOfQuad).filter(({ width, height }) => width >= 1 && height >= 1);
    const [first] = boxes;
    if (first !== undefined) {
      const { x, y } = await offsetOf(tab, session, signal);
      const inPage = (box: Box): Box => ({ ...box, x: box.x + x, y: box.y + y });
      return { first: inPage(first), whole: inPage(boxes.reduce(around)) };
    }
  } catch (error) {
    if (!(error instanceof DevToolsError)) throw error;
  }
  throw new ToolFailure("The element is not visible: it is hidden, or has no size.");
}

/**
 * Scrolls a point of an element into view and returns its place in the viewport.
 * @param offset from the element's top left corner. Undefined: its middle.
 * @throws `ToolFailure` if the element is not visible, or does not have that point.
 */
export async function pointOf(
  tab: Tab,
  element: RemoteObject,
  offset: Point | undefined,
  signal: AbortSignal,
): Promise<Point> {
  const { session, objectId } = element;
  let box = (await placeOf(tab, element, signal)).first;
  const { x, y } = offset ?? { x: box.width / 2, y: box.height / 2 };
  if (x > box.width || y > box.height) {
    throw new ToolFailure(`The element has only ${Math.round(box.width)}x${Math.round(box.height)} pixels.`);
  }
  if (box.width > SMALL || box.height > SMALL) {
    // Of an element that does not fit, another part may be in view.
    const rect = { x, y, width: 1, height: 1 };
    await tab.send("DOM.scrollIntoViewIfNeeded", { objectId, rect }, done, signal, session).catch(() => {});
    signal.throwIfAborted();
    box = (await visiblePlace(tab, element, signal)).first;
  }
  return { x: box.x + x, y: box.y + y };
}

/** How far something is scrolled, and its size, in CSS pixels. */
export const scrollState = z.object({ x: z.number(), y: z.number(), width: z.number(), height: z.number() });

/** How far the nearest box or frame around an element that scrolls is scrolled. Null: only the page does. */
export async function scrolledAround(
  tab: Tab,
  element: RemoteObject,
  signal: AbortSignal,
): Promise<z.output<typeof scrollState> | null> {
  for (let at: RemoteObject | undefined = element; at; at = await ownerOf(tab, at, signal)) {
    const scrolled = await tab.callOn(at, SCROLLED_AROUND, [], scrollState.nullable(), signal);
    if (scrolled !== null) return scrolled;
  }
  return null;
}

/** The element that shows the frame of an object. Undefined if that is the page itself. */
async function ownerOf(
  tab: Tab,
  { session, frameId }: RemoteObject,
  signal: AbortSignal,
): Promise<RemoteObject | undefined> {
  const frames = await tab.frames(signal);
  const own = frames.find((frame) => frame.session === session && frame.frameId === frameId);
  const outer = frames.find((frame) => frame.frameId === own?.parentId);
  if (outer === undefined) return undefined;
  const { backendNodeId } = await tab.send(
    "DOM.getFrameOwner",
    { frameId },
    frameOwner,
    signal,
    outer.session,
  );
  return tab.resolve(outer, backendNodeId, signal);
}

/** The position of an out-of-process frame's viewport within the page's. */
async function offsetOf(tab: Tab, session: string, signal: AbortSignal): Promise<Point> {
  const inner = tab.parentOf(session);
  if (inner === undefined) return { x: 0, y: 0 };
  const { frameId, parent } = inner;
  const { backendNodeId } = await tab.send("DOM.getFrameOwner", { frameId }, frameOwner, signal, parent);
  const answer = z.object({ model: z.object({ content: quad }) });
  const { model } = await tab.send("DOM.getBoxModel", { backendNodeId }, answer, signal, parent);
  const [x = 0, y = 0] = model.content;
  const outer = await offsetOf(tab, parent, signal);
  return { x: x + outer.x, y: y + outer.y };
}

function boxOfQuad(quad: readonly number[]): Box {
  const xs = quad.filter((_, index) => index % 2 === 0);
  const ys = quad.filter((_, index) => index % 2 === 1);
  const [x, y] = [Math.min(...xs), Math.min(...ys)];
  return { x, y, width: Math.max(...xs) - x, height: Math.max(...ys) - y };
}

/** The smallest rectangle around two others. */
function around(one: Box, other: Box): Box {
  const [x, y] = [Math.min(one.x, other.x), Math.min(one.y, other.y)];
  const width = Math.max(one.x + one.width, other.x + other.width) - x;
  return { x, y, width, height: Math.max(one.y + one.height, other.y + other.height) - y };
}
