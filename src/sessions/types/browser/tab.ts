import { z } from "zod";
import { untilAborted, within } from "../../../base/async.ts";
import { Changes } from "./changes.ts";
import type { DevTools, DevToolsRequest } from "./devtools.ts";
import { ToolFailure } from "./failure.ts";
import { shownUrl } from "./urls.ts";

/** A document in a tab: the page itself, or a frame in it. */
export interface Frame {
  /** The DevTools session of the process that renders it. */
  readonly session: string;
  readonly frameId: string;
  /** Changes when the frame shows another document. */
  readonly loaderId: string;
  readonly url: string;
  /** The frame around it. Undefined for the page itself. */
  readonly parentId?: string | undefined;
}

/** The document of a page itself. */
interface Page extends Frame {
  /** The URL that could not be loaded, if the document is the browser's page about that. */
  readonly unreachableUrl: string | undefined;
}

/** An object in a page. */
export interface RemoteObject {
  readonly session: string;
  /** The frame whose document it belongs to. */
  readonly frameId: string;
  readonly objectId: string;
}

/** How far a document has loaded, in the order in which it happens. */
export type LoadState = "DOMContentLoaded" | "load" | "networkIdle";

/**
 * How far a navigation is: nothing shows, as when only a frame in the page navigates; the page loads something; it has
 * moved, to another document or within its own; or it has loaded nothing and stays, as after an answer of the status 204.
 */
export type Progress = "none" | "loads" | "moved" | "stays";

const MAX_FRAMES = 200;
const MAX_EARLIER = 20;
/** How long a frame with its own process may take to answer before it counts as hanging. */
const FRAME_MS = 4_000;
/** Objects that calls create in pages are released as one group. */
const OBJECT_GROUP = "berth";

/** Strings that pages and browsers control are truncated to this many characters. */
const shortText = z.string().transform((text) => text.slice(0, 4_000).toWellFormed());

/** The browser's ids of frames, documents and targets have 32 characters. Berth keeps many of them. */
export const browserId = z.string().max(200);

const frame = z
  .object({
    id: browserId,
    parentId: browserId.optional(),
    loaderId: browserId,
    url: shortText,
    urlFragment: shortText.default(""),
    unreachableUrl: shortText.optional(),
  })
  .transform(({ url, urlFragment, ...rest }) => ({ ...rest, url: url + urlFragment }));
/** Its children are parsed one after another, as far as they are wanted: a page decides how many there are. */
const frameTree = z.object({ frame, childFrames: z.array(z.unknown()).default([]) });

const shown = z.object({ targetInfo: z.object({ url: z.string(), title: z.string() }) });

const remoteObject = z.object({
  type: z.string(),
  subtype: z.string().optional(),
  value: z.unknown().optional(),
  unserializableValue: z.string().optional(),
  description: z.string().optional(),
  objectId: z.string().optional(),
});

const exception = z.object({
  text: z.string(),
  exception: remoteObject.extend({ className: z.string().optional() }).optional(),
});

/** The result of a script. */
export const evaluated = z.object({ result: remoteObject, exceptionDetails: exception.optional() });
export type Evaluated = z.output<typeof evaluated>;

/** A frame with its own process. */
interface InnerFrame {
  readonly frameId: string;
  /** The DevTools session of the page around it. */
  readonly parent: string;
  readonly gone: AbortController;
  /** Whether a request to it has waited too long, and still has no answer. */
  hangs: boolean;
}

/** A tab of the browser. Signals passed to its methods should also abort with {@link Tab.lost}. */
export class Tab {
  readonly #devtools: DevTools;
  /** Out-of-process frames, by DevTools session. */
  readonly #inner = new Map<string, InnerFrame>();
  readonly #lost = new AbortController();
  readonly #changes = new Changes();
  readonly #earlier: string[] = [];
  #isClosed = false;
  #document: { readonly loaderId: string; readonly reached: Set<string>; isCutOff: boolean } = {
    loaderId: "",
    reached: new Set(),
    isCutOff: false,
  };
  readonly id: string;
  readonly targetId: string;
  readonly session: string;
  /** The browser's page about the last URL that could not be opened. On a busy machine it may come late. */
  failedLoaderId: string | undefined;
  /** The document that the page is about to replace, while it loads another one. */
  #replaced: string | undefined;
  /** How often the page began to load something, and moved within its document. */
  #loads = 0;
  #moves = 0;

  constructor(devtools: DevTools, id: string, targetId: string, session: string) {
    this.#devtools = devtools;
    this.id = id;
    this.targetId = targetId;
    this.session = session;
  }

  /** Aborted when the tab is gone, with a {@link ToolFailure} that says why. */
  get lost(): AbortSignal {
    return this.#lost.signal;
  }

  /** Whether it was closed, as opposed to lost in another way. */
  get isClosed(): boolean {
    return this.#isClosed;
  }

  close(): void {
    this.#isClosed ||= !this.lost.aborted;
    this.lose("The tab was closed.");
  }

  lose(why: string): void {
    this.#lost.abort(new ToolFailure(why, { tab_lost: true }));
  }

  /** The DevTools sessions of the tab's processes, the page's own first. */
  get sessions(): readonly string[] {
    return [this.session, ...this.#inner.keys()];
  }

  /** The frame of the page itself. */
  get root(): Pick<Frame, "session" | "frameId"> {
    return { session: this.session, frameId: this.targetId };
  }

  /** The outermost frame of each of the tab's processes, the page's own first. */
  get roots(): readonly Pick<Frame, "session" | "frameId">[] {
    return [this.root, ...[...this.#inner].map(([session, { frameId }]) => ({ session, frameId }))];
  }

  /** The session whose page contains this session's frame. Undefined for the page itself. */
  parentOf(session: string): { readonly frameId: string; readonly parent: string } | undefined {
    return this.#inner.get(session);
  }

  /** Records that a frame got its own process. */
  attached(session: string, frameId: string, parent: string): boolean {
    if (this.#inner.size >= MAX_FRAMES) return false;
    this.#inner.set(session, { frameId, parent, gone: new AbortController(), hangs: false });
    return true;
  }

  detached(session: string): void {
    this.#inner.get(session)?.gone.abort();
    this.#inner.delete(session);
  }

  /** The outermost frame of each process that hangs. */
  get hanging(): readonly Pick<Frame, "session" | "frameId">[] {
    return this.roots.filter(({ session }) => this.#inner.get(session)?.hangs);
  }

  /**
   * Asks the process of a frame. One that hangs keeps a single call waiting: until it has answered, further calls do
   * not wait for it. Returns undefined if it hangs, is gone or fails.
   * @throws the signal's reason.
   */
  async askFrame<T>(
    session: string,
    ask: (signal: AbortSignal) => Promise<T>,
    signal: AbortSignal,
  ): Promise<T | undefined> {
    const frame = this.#inner.get(session);
    if (frame === undefined || frame.hangs) return undefined;
    const stop = new AbortController();
    let answer: T | undefined;
    let hasEnded = false;
    const take = (given?: T): void => {
      answer = given;
      hasEnded = true;
      frame.hangs = false;
    };
    const asked = ask(AbortSignal.any([stop.signal, frame.gone.signal, this.lost])).then(take, () => take());
    try {
      await within(untilAborted(asked, signal), FRAME_MS);
    } catch (error) {
      stop.abort();
      throw error;
    }
    frame.hangs = !hasEnded;
    return answer;
  }

  /** Records that a document of the page itself reached a state. */
  reached(loaderId: string, name: string): void {
    if (this.#document.loaderId !== loaderId) {
      this.#earlier.push(loaderId);
      if (this.#earlier.length > MAX_EARLIER) this.#earlier.shift();
      this.#document = { loaderId, reached: new Set(), isCutOff: false };
    }
    if (this.#document.reached.size < 20) this.#document.reached.add(name);
    this.changed();
  }

  /** Makes waiting calls check their conditions again. */
  changed(): void {
    this.#changes.announce();
  }

  /** Records that the page started to load a document, or no longer loads one. */
  setLoading(isLoading: boolean): void {
    this.#replaced = isLoading ? this.loaderId : undefined;
    if (isLoading) this.#loads++;
    // A page that calls window.stop() before its load event never has that event.
    if (!isLoading && !this.#document.reached.has("load")) this.#document.isCutOff = true;
    this.changed();
  }

  /**
   * Whether its page requests a new document, or has one that is not parsed yet. Resources of a parsed one may load
   * forever.
   */
  get isLoading(): boolean {
    if (this.#replaced === undefined) return false;
    return this.loaderId === this.#replaced || !this.has("DOMContentLoaded");
  }

  /** Records that the page moved to another place of its document. */
  movedWithin(): void {
    this.#moves++;
    this.changed();
  }

  /** Follows a navigation that begins now. Returns a function that says how far it is. */
  follow(): () => Progress {
    const { loaderId } = this;
    const [loads, moves] = [this.#loads, this.#moves];
    return () => {
      if (this.loaderId !== loaderId || this.#moves > moves) return "moved";
      if (this.#loads === loads) return "none";
      return this.#replaced === undefined ? "stays" : "loads";
    };
  }

  /** Whether the page's newest document has reached a state, or stopped loading and will not reach it. */
  has(state: LoadState): boolean {
    return this.#document.reached.has(state) || this.#document.isCutOff;
  }

  get loaderId(): string {
    return this.#document.loaderId;
  }

  /** Whether the page shows or has shown a document. */
  hasSeen(loaderId: string): boolean {
    return this.#earlier.includes(loaderId);
  }

  /** Waits for a condition on the tab's documents. */
  until(holds: () => boolean, signal: AbortSignal): Promise<void> {
    return this.#changes.until(holds, signal);
  }

  /** Like {@link until}, but for at most `ms`. */
  async untilOr(ms: number, holds: () => boolean, signal: AbortSignal): Promise<void> {
    const late = AbortSignal.timeout(ms);
    await this.until(holds, AbortSignal.any([signal, late])).catch((error: unknown) => {
      if (signal.aborted || !late.aborted) throw error;
    });
  }

  /** Waits for the next change of the tab's documents, for at most `ms`. */
  async changes(ms: number, signal: AbortSignal): Promise<void> {
    let checks = 0;
    await this.untilOr(ms, () => checks++ > 0, signal);
  }

  /** Sends a request to the page's process, or to the process of one of its frames. */
  send<S extends z.ZodType>(
    method: string,
    params: object,
    answer: S,
    signal: AbortSignal,
    session = this.session,
  ): Promise<z.output<S>> {
    const request: DevToolsRequest<S> = { method, params, session, answer };
    return this.#devtools.send(request, signal);
  }

  /** See {@link DevTools.fetch}. */
  fetch(method: string, params: object, signal: AbortSignal): Promise<Buffer> {
    return this.#devtools.fetch({ method, params, session: this.session }, signal);
  }

  /** See {@link DevTools.list}. */
  list<S extends z.ZodType>(
    method: string,
    params: object,
    name: string,
    item: S,
    room: { bytes: number },
    signal: AbortSignal,
    session: string,
  ): Promise<z.output<S>[]> {
    return this.#devtools.list({ method, params, session }, name, item, room, signal);
  }

  notify(method: string, params: object = {}, session = this.session): void {
    this.#devtools.notify(method, params, session);
  }

  /** The documents in the tab, the page itself first, without those of processes that hang. */
  async frames(signal: AbortSignal): Promise<Frame[]> {
    const found: Frame[] = [];
    // Counts also those of another form.
    let looked = 0;
    const add = (session: string, { frame, childFrames }: z.output<typeof frameTree>): void => {
      const { id: frameId, parentId, loaderId, url } = frame;
      found.push({ session, frameId, parentId, loaderId, url });
      for (const given of childFrames) {
        if (looked++ >= MAX_FRAMES) return;
        const child = frameTree.safeParse(given);
        if (child.success) add(session, child.data);
      }
    };
    const answer = z.object({ frameTree });
    await Promise.all(
      this.sessions.map(async (session) => {
        const ask = (until: AbortSignal) => this.send("Page.getFrameTree", {}, answer, until, session);
        // A frame may go away at any time; the page itself must answer.
        const tree = await (session === this.session ? ask(signal) : this.askFrame(session, ask, signal));
        if (tree !== undefined && looked++ < MAX_FRAMES) add(session, tree.frameTree);
      }),
    );
    return found.sort((a, b) => Number(a.session !== this.session) - Number(b.session !== this.session));
  }

  /** The document of the page itself. */
  async page(signal: AbortSignal): Promise<Page> {
    const { frameTree: tree } = await this.send("Page.getFrameTree", {}, z.object({ frameTree }), signal);
    const { id: frameId, parentId, loaderId, url, unreachableUrl } = tree.frame;
    return { session: this.session, frameId, parentId, loaderId, url, unreachableUrl };
  }

  /** The URL and title as the browser reports them, independent of the page's scripts. */
  async shown(signal: AbortSignal): Promise<{ readonly url: string; readonly title: string }> {
    const { url, title } = (await this.send("Target.getTargetInfo", {}, shown, signal)).targetInfo;
    return { url: shownUrl(url), title: title.slice(0, 1_000).toWellFormed() };
  }

  /** Calls a function of page-scripts.ts in a frame, isolated from the page's own scripts. */
  async callIn<S extends z.ZodType>(
    { session, frameId }: Pick<Frame, "session" | "frameId">,
    script: string,
    args: readonly unknown[],
    answer: S,
    signal: AbortSignal,
  ): Promise<z.output<S>> {
    const { result } = await this.#call(script, args, await this.#world(session, frameId, signal), signal);
    return parseValue(result, answer);
  }

  /** Like {@link callIn}, for a script that returns an element. Undefined if it returns null. */
  async findIn(
    { session, frameId }: Frame,
    script: string,
    args: readonly unknown[],
    signal: AbortSignal,
  ): Promise<RemoteObject | undefined> {
    const world = await this.#world(session, frameId, signal);
    const { result } = await this.#call(script, args, { ...world, byValue: false }, signal);
    return result.objectId === undefined ? undefined : { session, frameId, objectId: result.objectId };
  }

  /** The document object of the page itself. */
  async document(signal: AbortSignal): Promise<RemoteObject> {
    const found = await this.findIn(await this.page(signal), "function() { return document }", [], signal);
    if (found === undefined) throw new ToolFailure("The page has no document.");
    return found;
  }

  /** Calls a function of page-scripts.ts on an object. */
  async callOn<S extends z.ZodType>(
    { session, objectId }: Pick<RemoteObject, "session" | "objectId">,
    script: string,
    args: readonly unknown[],
    answer: S,
    signal: AbortSignal,
  ): Promise<z.output<S>> {
    const { result } = await this.#call(script, args, { session, target: { objectId } }, signal);
    return parseValue(result, answer);
  }

  /** The element with this backend node id, in the isolated world. */
  async resolve(
    { session, frameId }: Pick<Frame, "session" | "frameId">,
    backendNodeId: number,
    signal: AbortSignal,
  ): Promise<RemoteObject> {
    const { target } = await this.#world(session, frameId, signal);
    const params = { backendNodeId, ...target, objectGroup: OBJECT_GROUP };
    const answer = z.object({ object: remoteObject });
    const { object } = await this.send("DOM.resolveNode", params, answer, signal, session);
    if (object.objectId === undefined) throw new ToolFailure("The element is gone.");
    return { session, frameId, objectId: object.objectId };
  }

  /** Releases the objects that calls created in pages. */
  releaseObjects(): void {
    for (const session of this.sessions) {
      this.notify("Runtime.releaseObjectGroup", { objectGroup: OBJECT_GROUP }, session);
    }
  }

  async #world(session: string, frameId: string, signal: AbortSignal) {
    const answer = z.object({ executionContextId: z.number() });
    const params = { frameId, worldName: "berth" };
    const { executionContextId } = await this.send(
      "Page.createIsolatedWorld",
      params,
      answer,
      signal,
      session,
    );
    return { session, target: { executionContextId } };
  }

  async #call(
    script: string,
    args: readonly unknown[],
    { session, target, byValue = true }: { session: string; target: object; byValue?: boolean },
    signal: AbortSignal,
  ): Promise<Evaluated> {
    const params = {
      functionDeclaration: script,
      arguments: args.map((value) => ({ value })),
      returnByValue: byValue,
      awaitPromise: byValue,
      objectGroup: OBJECT_GROUP,
      ...target,
    };
    const done = await this.send("Runtime.callFunctionOn", params, evaluated, signal, session);
    if (done.exceptionDetails !== undefined) throw new ToolFailure(describeException(done).value);
    return done;
  }
}

/** The name, message and stack of what a script threw. */
export function describeException({ exceptionDetails }: Evaluated): {
  name: string;
  value: string;
  traceback: string;
} {
  const thrown = exceptionDetails?.exception;
  const description = shorten(thrown?.description ?? String(thrown?.value ?? exceptionDetails?.text ?? ""));
  const [first = ""] = description.split("\n", 1);
  const name = thrown?.subtype === "error" || thrown?.className ? (thrown.className ?? "Error") : "thrown";
  const value = first.startsWith(`${name}: `) ? first.slice(name.length + 2) : first;
  return { name: shorten(name), value, traceback: thrown?.subtype === "error" ? description : "" };
}

function shorten(text: string): string {
  return text.slice(0, 4_000).toWellFormed();
}

function parseValue<S extends z.ZodType>({ value }: { value?: unknown }, answer: S): z.output<S> {
  const parsed = answer.safeParse(value);
  if (parsed.success) return parsed.data;
  throw new ToolFailure("The page gave an answer of another form.");
}
