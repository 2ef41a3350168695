import { z } from "zod";
import type { JsonObject } from "../../../base/json.ts";
import { Changes } from "./changes.ts";
import { type DevTools, DevToolsError } from "./devtools.ts";
import { ToolFailure } from "./failure.ts";
import { browserId, Tab } from "./tab.ts";
import { shownUrl } from "./urls.ts";

const MAX_TABS = 20;
/** How long a tab may take to close. */
const CLOSE_MS = 1_000;

const targetInfo = z.object({ targetId: browserId, type: z.string().max(50) });
const IFRAMES_ONLY = [{ type: "iframe", exclude: false }, { exclude: true }];
const PAGES_ONLY = [{ type: "page", exclude: false }, { exclude: true }];

const CRASHES: Readonly<Record<string, string>> = {
  oom: "its page ran out of memory",
  killed: "its process was killed, most likely because the sandbox ran out of memory",
};

/** The size of pages, in pixels. */
export interface Viewport {
  readonly width: number;
  readonly height: number;
}

/** The tabs of a browser, including those that pages open. */
export class Tabs {
  readonly #devtools: DevTools;
  #viewport: Viewport;
  /** In the order in which they were opened, by DevTools session. */
  readonly #tabs = new Map<string, Tab>();
  readonly #changes = new Changes();
  #active: Tab | undefined;
  /** The visible tab. */
  #front: Tab | undefined;
  #opened: string[] = [];
  #last = 0;

  constructor(devtools: DevTools, viewport: Viewport) {
    this.#devtools = devtools;
    this.#viewport = viewport;
  }

  /** Follows the browser's tabs. Resolves when there is one that answers. */
  async start(signal: AbortSignal): Promise<void> {
    this.#listen();
    const autoAttach = { autoAttach: true, waitForDebuggerOnStart: true, flatten: true, filter: PAGES_ONLY };
    const answer = z.unknown();
    const asked = [
      { method: "Target.setDiscoverTargets", params: { discover: true, filter: PAGES_ONLY }, answer },
      { method: "Target.setAutoAttach", params: autoAttach, answer },
    ];
    await Promise.all(asked.map((request) => this.#devtools.send(request, signal)));
    const tab = await this.#tabOf(() => true, signal);
    await tab.page(signal);
    this.#active = tab;
    this.#opened = [];
  }

  /** Resizes every tab, and those opened later. */
  resize(viewport: Viewport): void {
    this.#viewport = viewport;
    for (const tab of this.#tabs.values()) tab.notify("Emulation.setDeviceMetricsOverride", this.#metrics);
  }

  /** The open tabs, in the order in which they were opened. */
  get all(): readonly Tab[] {
    return [...this.#tabs.values()];
  }

  get active(): Tab | undefined {
    return this.#active;
  }

  /** Makes a tab the active one, on which tools act. */
  select(tab: Tab): void {
    this.#active = tab;
  }

  /** What results say about the open tabs. */
  async describe(signal: AbortSignal): Promise<JsonObject[]> {
    const answer = z.object({ targetInfo: z.object({ url: z.string(), title: z.string() }) });
    const described = await Promise.all(
      this.all.map(async (tab) => {
        const request = { method: "Target.getTargetInfo", params: { targetId: tab.targetId }, answer };
        const asked = this.#devtools.send(request, signal).catch((error: unknown) => {
          // The browser has closed it already, and is about to say so.
          if (error instanceof DevToolsError && !error.tooLarge) return undefined;
          throw error;
        });
        const targetInfo = (await asked)?.targetInfo;
        if (targetInfo === undefined) return [];
        const title = targetInfo.title.slice(0, 1_000).toWellFormed();
        return [{ id: tab.id, url: shownUrl(targetInfo.url), title, active: tab === this.#active }];
      }),
    );
    return described.flat();
  }

  /** The ids of tabs that pages opened since the last call, without those that are closed again. */
  takeOpened(): string[] {
    const opened = this.#opened;
    this.#opened = [];
    return opened.filter((id) => this.all.some((tab) => tab.id === id));
  }

  /** Opens a tab without making it active. Resolves when it answers. */
  async open(signal: AbortSignal): Promise<Tab> {
    if (this.#tabs.size >= MAX_TABS) {
      throw new ToolFailure(`The browser has reached its limit of ${MAX_TABS} tabs. Close one.`);
    }
    const params = { url: "about:blank" };
    const answer = z.object({ targetId: browserId });
    const { targetId } = await this.#devtools.send({ method: "Target.createTarget", params, answer }, signal);
    const tab = await this.#tabOf((one) => one.targetId === targetId, signal);
    this.#opened = this.#opened.filter((id) => id !== tab.id);
    // Chromium's renderer may crash if it has to navigate before it has created its first document.
    await tab.page(AbortSignal.any([signal, tab.lost]));
    return tab;
  }

  /** Closes a tab, and makes the newest remaining one active. */
  async close(tab: Tab, signal: AbortSignal): Promise<void> {
    this.#devtools.notify("Target.closeTarget", { targetId: tab.targetId });
    // A tab whose page does not close in time is dropped anyway.
    const late = AbortSignal.timeout(CLOSE_MS);
    await this.#changes
      .until(() => !this.#tabs.has(tab.session), AbortSignal.any([signal, late]))
      .catch(() => {});
    this.#forget(tab);
  }

  /** The active tab, or a replacement if it crashed or was closed. */
  async live(signal: AbortSignal): Promise<{ tab: Tab; restarted: boolean }> {
    const active = this.#active;
    if (active !== undefined && !active.lost.aborted) {
      this.#bringToFront(active);
      return { tab: active, restarted: false };
    }
    // Close the old tab first: a new one could share its process.
    if (active !== undefined) await this.close(active, signal);
    const tab = await this.open(signal);
    this.#active = tab;
    this.#bringToFront(tab);
    return { tab, restarted: active !== undefined };
  }

  /** Closes a tab without asking its page. */
  end(tab: Tab, why: string): void {
    this.#devtools.notify("Target.closeTarget", { targetId: tab.targetId });
    tab.lose(`${why} The next call opens another one in its place.`);
  }

  /** The tab that a DevTools session belongs to: as its own, or as that of a frame in it. */
  ownerOf(session: string): Tab | undefined {
    return this.#tabs.get(session) ?? this.all.find((tab) => tab.sessions.includes(session));
  }

  /** Only the front tab draws. */
  #bringToFront(tab: Tab): void {
    if (this.#front === tab) return;
    this.#front = tab;
    tab.notify("Page.bringToFront");
  }

  #listen(): void {
    const devtools = this.#devtools;
    const attached = z.object({ sessionId: browserId, targetInfo });
    devtools.on("Target.attachedToTarget", attached, (params, session) => this.#attached(params, session));
    devtools.on("Target.detachedFromTarget", z.object({ sessionId: browserId }), ({ sessionId }, session) => {
      const tab = this.#tabs.get(sessionId);
      if (tab !== undefined) this.#forget(tab);
      else if (session !== undefined) this.ownerOf(session)?.detached(sessionId);
    });
    const crashed = z.object({ targetId: browserId, status: z.string().max(50), errorCode: z.number() });
    devtools.on("Target.targetCrashed", crashed, ({ targetId, status, errorCode }) => {
      const tab = this.all.find((one) => one.targetId === targetId);
      if (tab === undefined) return;
      const why = CRASHES[status] ?? `${status}, code ${errorCode}`;
      tab.lose(`The tab crashed (${why}). The next call opens another one in its place.`);
    });
    const lifecycle = z.object({ frameId: browserId, loaderId: browserId, name: z.string().max(50) });
    devtools.on("Page.lifecycleEvent", lifecycle, ({ frameId, loaderId, name }, session) => {
      const tab = this.#tabs.get(session ?? "");
      if (tab?.targetId === frameId) tab.reached(loaderId, name);
    });
    const loading = (isLoading: boolean) => (params: { frameId: string }, session: string | undefined) => {
      const tab = this.#tabs.get(session ?? "");
      if (tab?.targetId === params.frameId) tab.setLoading(isLoading);
    };
    const within = (params: { frameId: string }, session: string | undefined): void => {
      const tab = this.#tabs.get(session ?? "");
      if (tab?.targetId === params.frameId) tab.movedWithin();
    };
    const frameId = z.object({ frameId: browserId });
    devtools.on("Page.navigatedWithinDocument", frameId, within);
    devtools.on("Page.frameStartedLoading", frameId, loading(true));
    devtools.on("Page.frameStoppedLoading", frameId, loading(false));
  }

  #attached(
    {
      sessionId,
      targetInfo: { targetId, type },
    }: { sessionId: string; targetInfo: z.output<typeof targetInfo> },
    parent: string | undefined,
  ): void {
    const notify = (method: string, params?: object): void =>
      this.#devtools.notify(method, params, sessionId);
    if (parent !== undefined) {
      if (this.ownerOf(parent)?.attached(sessionId, targetId, parent)) this.#prepareFrame(notify);
      return;
    }
    if (type !== "page" || this.#tabs.has(sessionId)) return;
    if (this.#tabs.size >= MAX_TABS) {
      this.#devtools.notify("Target.closeTarget", { targetId });
      return;
    }
    const tab = new Tab(this.#devtools, `t${++this.#last}`, targetId, sessionId);
    this.#tabs.set(sessionId, tab);
    if (this.#opened.length < MAX_TABS) this.#opened.push(tab.id);
    this.#front = undefined;
    notify("Page.enable");
    notify("Page.setLifecycleEventsEnabled", { enabled: true });
    notify("Emulation.setDeviceMetricsOverride", this.#metrics);
    notify("Emulation.setFocusEmulationEnabled", { enabled: true });
    this.#prepareFrame(notify);
    this.#changes.announce();
  }

  get #metrics(): object {
    const { width, height } = this.#viewport;
    return { width, height, deviceScaleFactor: 1, mobile: false };
  }

  #prepareFrame(notify: (method: string, params?: object) => void): void {
    const how = { autoAttach: true, waitForDebuggerOnStart: true, flatten: true, filter: IFRAMES_ONLY };
    notify("Target.setAutoAttach", how);
    notify("Runtime.runIfWaitingForDebugger");
  }

  #forget(tab: Tab): void {
    this.#tabs.delete(tab.session);
    if (this.#front === tab) this.#front = undefined;
    // If the active tab was lost, live() replaces it.
    if (this.#active === tab && !tab.lost.aborted) this.#active = this.all.at(-1);
    tab.close();
    this.#changes.announce();
  }

  async #tabOf(matches: (tab: Tab) => boolean, signal: AbortSignal): Promise<Tab> {
    let found: Tab | undefined;
    await this.#changes.until(() => {
      found = this.all.find(matches);
      return found !== undefined;
    }, signal);
    if (found === undefined) throw new ToolFailure("The tab was closed.");
    return found;
  }
}
