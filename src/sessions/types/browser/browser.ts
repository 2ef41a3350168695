import { z } from "zod";
import { untilAborted, within } from "../../../base/async.ts";
import { abortError, BerthError, type ErrorReason } from "../../../base/errors.ts";
import type { JsonObject } from "../../../base/json.ts";
import {
  type SessionBackend,
  type SessionHost,
  TOOL_CODE,
  type ToolCall,
  type ToolCode,
  type ToolResult,
} from "../../backend.ts";
import type { ProgramHost } from "../program.ts";
import { type Chromium, type ChromiumOptions, startChromium, startFailure } from "./chromium.ts";
import { DevTools, DevToolsError } from "./devtools.ts";
import { Dialogs, dialogOpening } from "./dialogs.ts";
import { References } from "./elements.ts";
import { ToolFailure } from "./failure.ts";
import { Tab } from "./tab.ts";
import { shownUrl } from "./urls.ts";

/** How a browser is set up. */
export interface BrowserOptions extends ChromiumOptions {
  /** Whether dialogs of pages are accepted. */
  readonly acceptDialogs: boolean;
}

/** What a tool's run uses. */
export interface BrowserUse {
  readonly tab: Tab;
  readonly references: References;
  /** Aborted when the run has to end. */
  readonly signal: AbortSignal;
}

/** What a tool's run comes to. */
export type Outcome = { readonly data: JsonObject } & Partial<
  Pick<ToolResult, "attachments" | "programFailed">
>;

const START_TIMEOUT_MS = 30_000;
/** How long a page may take to answer once its script was stopped. */
const RECOVER_MS = 1_000;
const END_MS = 500;
/** How long a tab may take to close. */
const CLOSE_MS = 1_000;
const MAX_TABS = 20;
/**
 * A page that opens more dialogs in one call is ended: a script cannot be
 * stopped while it waits for one, and one that never stops opens thousands.
 */
const MAX_DIALOGS = 200;

const targetInfo = z.object({ targetId: z.string(), type: z.string() });
const IFRAMES_ONLY = [{ type: "iframe", exclude: false }, { exclude: true }];
const PAGES_ONLY = [{ type: "page", exclude: false }, { exclude: true }];

const CRASHES: Readonly<Record<string, string>> = {
  oom: "its page ran out of memory",
  killed: "its process was killed, most likely because the sandbox ran out of memory",
};

/** What is wrong with a file, and not with the call. */
const OWN_FAILURES: ReadonlySet<ErrorReason> = new Set([
  "FILE_NOT_FOUND",
  "FILE_EXISTS",
  "FILE_KIND",
  "FILE_PERMISSION",
  "NO_SPACE",
]);

/** A browser in a sandbox, with its tabs. */
export class Browser implements SessionBackend {
  readonly #options: BrowserOptions;
  readonly #chromium: Chromium;
  readonly #dialogs = new Dialogs(MAX_DIALOGS);
  /** In the order in which they were opened, by their session. */
  readonly #tabs = new Map<string, Tab>();
  readonly references = new References();
  readonly place: SessionHost;
  readonly devtools: DevTools;
  #active: Tab | undefined;
  /** The one in front of the others. */
  #front: Tab | undefined;
  readonly #opened: string[] = [];
  #lastTab = 0;
  #broken: string | undefined;
  readonly #onTabs = new Set<() => void>();

  private constructor(options: BrowserOptions, place: SessionHost, chromium: Chromium, devtools: DevTools) {
    this.#options = options;
    this.place = place;
    this.#chromium = chromium;
    this.devtools = devtools;
  }

  /**
   * Starts one; resolves when it has a tab that answers.
   * @throws `SESSION_START_FAILED`, the engine's errors.
   */
  static async start(
    host: ProgramHost,
    place: SessionHost,
    options: BrowserOptions,
    signal: AbortSignal,
  ): Promise<Browser> {
    let chromium: Chromium | undefined;
    let browser: Browser | undefined;
    const devtools = new DevTools(
      {
        write: async (data) => chromium?.program.write(data),
        pause: () => chromium?.program.pause(),
        resume: () => chromium?.program.resume(),
      },
      (problem) => browser?.break(problem),
    );
    chromium = await startChromium(host, place, options, (chunk) => devtools.push(chunk), signal);
    const { program } = chromium;
    void program.ended.then(() => devtools.close(new ToolFailure("The browser has ended.")));
    browser = new Browser(options, place, chromium, devtools);
    const late = AbortSignal.timeout(START_TIMEOUT_MS);
    try {
      await browser.#boot(AbortSignal.any([signal, late]));
      return browser;
    } catch (error) {
      await within(program.ended, END_MS);
      const hasEnded = !program.alive;
      await browser.cleanup(false);
      if (hasEnded) throw startFailure(program);
      if (signal.aborted) throw abortError(signal);
      const why = late.aborted ? `it did not answer within ${START_TIMEOUT_MS / 1000} s` : String(error);
      throw new BerthError("SESSION_START_FAILED", `Chromium did not start: ${why}`, { cause: error });
    }
  }

  get alive(): boolean {
    return this.#broken === undefined && this.#chromium.program.alive;
  }

  async cleanup(sandboxEnds: boolean): Promise<void> {
    this.devtools.close(new ToolFailure("The session is being ended."));
    await this.#chromium.close(sandboxEnds);
  }

  /** The browser does not keep to its protocol: it is of no further use. */
  break(problem: string): void {
    this.#broken ??= `The browser broke its protocol: ${problem}`;
  }

  /** The tabs that are open, in the order in which they were opened. */
  get tabs(): readonly Tab[] {
    return [...this.#tabs.values()];
  }

  get active(): Tab | undefined {
    return this.#active;
  }

  /** Makes a tab the one that tools act on. */
  select(tab: Tab): void {
    this.#active = tab;
  }

  /** What there is to say about the tabs that are open. */
  describeTabs(signal: AbortSignal): Promise<JsonObject[]> {
    const answer = z.object({ targetInfo: z.object({ url: z.string(), title: z.string() }) });
    return Promise.all(
      this.tabs.map(async (tab) => {
        const request = { method: "Target.getTargetInfo", params: { targetId: tab.targetId }, answer };
        const { targetInfo } = await this.devtools.send(request, signal);
        const title = targetInfo.title.slice(0, 1_000).toWellFormed();
        return { id: tab.id, url: shownUrl(targetInfo.url), title, active: tab === this.#active };
      }),
    );
  }

  /** Runs a tool on the active tab. */
  run(call: ToolCall, work: (use: BrowserUse) => Promise<Outcome>): Promise<ToolResult> {
    return this.#report(call, async (signal) => {
      const { tab, restarted } = await this.#liveTab(signal);
      if (this.#front !== tab) {
        this.#front = tab;
        tab.notify("Page.bringToFront");
      }
      const own = AbortSignal.any([signal, tab.lost]);
      try {
        const outcome = await work({ tab, references: this.references, signal: own });
        tab.releaseObjects();
        return { ...outcome, data: { ...outcome.data, tab_restarted: restarted } };
      } catch (error) {
        if (signal.aborted) throw new Stopped(await this.#stopScripts(tab));
        throw error;
      }
    });
  }

  /** Runs something that is about the tabs themselves. */
  runOnTabs(call: ToolCall, work: (signal: AbortSignal) => Promise<Outcome>): Promise<ToolResult> {
    return this.#report(call, work);
  }

  /** Opens a tab, which tools do not act on yet. */
  async open(signal: AbortSignal): Promise<Tab> {
    if (this.#tabs.size >= MAX_TABS) {
      throw new ToolFailure(`The browser has reached its limit of ${MAX_TABS} tabs. Close one.`);
    }
    const params = { url: "about:blank" };
    const answer = z.object({ targetId: z.string() });
    const { targetId } = await this.devtools.send({ method: "Target.createTarget", params, answer }, signal);
    const tab = await this.#tabOf((one) => one.targetId === targetId, signal);
    const place = this.#opened.indexOf(tab.id);
    if (place !== -1) this.#opened.splice(place, 1);
    return tab;
  }

  /** Closes a tab, and selects the newest of the others. */
  async close(tab: Tab, signal: AbortSignal): Promise<void> {
    this.devtools.notify("Target.closeTarget", { targetId: tab.targetId });
    // One whose page does not let go is forgotten all the same.
    const late = AbortSignal.timeout(CLOSE_MS);
    await this.#untilTabs(() => !this.#tabs.has(tab.session), AbortSignal.any([signal, late])).catch(
      () => {},
    );
    this.#forget(tab, "The tab was closed.");
  }

  async #boot(signal: AbortSignal): Promise<void> {
    this.#listen();
    const autoAttach = { autoAttach: true, waitForDebuggerOnStart: true, flatten: true, filter: PAGES_ONLY };
    const answer = z.unknown();
    const asked = [
      { method: "Target.setDiscoverTargets", params: { discover: true, filter: PAGES_ONLY }, answer },
      { method: "Target.setAutoAttach", params: autoAttach, answer },
      { method: "Browser.setDownloadBehavior", params: { behavior: "deny", eventsEnabled: true }, answer },
    ];
    await Promise.all(asked.map((request) => this.devtools.send(request, signal)));
    const tab = await this.#tabOf(() => true, signal);
    await tab.page(signal);
    this.#active = tab;
    this.#opened.length = 0;
  }

  #listen(): void {
    const { devtools } = this;
    const attached = z.object({ sessionId: z.string(), targetInfo });
    devtools.on("Target.attachedToTarget", attached, (params, session) => this.#attached(params, session));
    devtools.on(
      "Target.detachedFromTarget",
      z.object({ sessionId: z.string() }),
      ({ sessionId }, session) => {
        const tab = this.#tabs.get(sessionId);
        if (tab !== undefined) this.#forget(tab, "The tab was closed.");
        else if (session !== undefined) this.#ownerOf(session)?.detached(sessionId);
      },
    );
    const crashed = z.object({ targetId: z.string(), status: z.string().max(50), errorCode: z.number() });
    devtools.on("Target.targetCrashed", crashed, ({ targetId, status, errorCode }) => {
      const tab = this.tabs.find((one) => one.targetId === targetId);
      if (tab === undefined) return;
      const why = CRASHES[status] ?? `${status}, code ${errorCode}`;
      tab.lose(`The tab crashed (${why}). The next call opens another one in its place.`);
    });
    devtools.on("Page.javascriptDialogOpening", dialogOpening, (dialog, session) => {
      const tab = session === undefined ? undefined : this.#ownerOf(session);
      if (tab === undefined || session === undefined) return;
      const accept = dialog.type === "beforeunload" || this.#options.acceptDialogs;
      const isTooMany = this.#dialogs.add(dialog, accept);
      const promptText = dialog.defaultPrompt;
      if (isTooMany) {
        this.#end(tab, `The page opened more than ${MAX_DIALOGS} dialogs, and its tab was ended.`);
      } else tab.notify("Page.handleJavaScriptDialog", { accept, promptText }, session);
    });
    const lifecycle = z.object({ frameId: z.string(), loaderId: z.string(), name: z.string().max(50) });
    devtools.on("Page.lifecycleEvent", lifecycle, ({ frameId, loaderId, name }, session) => {
      const tab = this.#tabs.get(session ?? "");
      if (tab?.targetId === frameId) tab.reached(loaderId, name);
    });
    const loading = (isLoading: boolean) => (params: { frameId: string }, session: string | undefined) => {
      const tab = this.#tabs.get(session ?? "");
      if (tab?.targetId !== params.frameId) return;
      tab.isLoading = isLoading;
      tab.changed();
    };
    const frameId = z.object({ frameId: z.string() });
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
    const notify = (method: string, params?: object): void => this.devtools.notify(method, params, sessionId);
    if (parent !== undefined) {
      if (this.#ownerOf(parent)?.attached(sessionId, targetId, parent)) this.#prepareFrame(notify);
      return;
    }
    if (type !== "page" || this.#tabs.has(sessionId)) return;
    if (this.#tabs.size >= MAX_TABS) {
      this.devtools.notify("Target.closeTarget", { targetId });
      return;
    }
    const tab = new Tab(this.devtools, `t${++this.#lastTab}`, targetId, sessionId);
    this.#tabs.set(sessionId, tab);
    this.#opened.push(tab.id);
    this.#front = undefined;
    const { width, height } = this.#options;
    notify("Page.enable");
    notify("Page.setLifecycleEventsEnabled", { enabled: true });
    notify("Emulation.setDeviceMetricsOverride", { width, height, deviceScaleFactor: 1, mobile: false });
    notify("Emulation.setFocusEmulationEnabled", { enabled: true });
    this.#prepareFrame(notify);
    for (const wake of this.#onTabs) wake();
  }

  #prepareFrame(notify: (method: string, params?: object) => void): void {
    const how = { autoAttach: true, waitForDebuggerOnStart: true, flatten: true, filter: IFRAMES_ONLY };
    notify("Target.setAutoAttach", how);
    notify("Runtime.runIfWaitingForDebugger");
  }

  #ownerOf(session: string): Tab | undefined {
    return this.#tabs.get(session) ?? this.tabs.find((tab) => tab.sessions.includes(session));
  }

  #forget(tab: Tab, why: string): void {
    this.#tabs.delete(tab.session);
    if (this.#front === tab) this.#front = undefined;
    // One that was lost gets another in its place.
    if (this.#active === tab && !tab.lost.aborted) this.#active = this.tabs.at(-1);
    tab.lose(why);
    for (const wake of this.#onTabs) wake();
  }

  /** Waits until something holds about the tabs that are open. */
  async #untilTabs(holds: () => boolean, signal: AbortSignal): Promise<void> {
    const done = Promise.withResolvers<void>();
    const check = (): void => {
      if (holds()) done.resolve();
    };
    this.#onTabs.add(check);
    try {
      check();
      await untilAborted(done.promise, signal);
    } finally {
      this.#onTabs.delete(check);
    }
  }

  async #tabOf(matches: (tab: Tab) => boolean, signal: AbortSignal): Promise<Tab> {
    let found: Tab | undefined;
    await this.#untilTabs(() => {
      found = this.tabs.find(matches);
      return found !== undefined;
    }, signal);
    if (found === undefined) throw new ToolFailure("The tab was closed.");
    return found;
  }

  /** The active tab; where it has crashed or was closed, another one in its place. */
  async #liveTab(signal: AbortSignal): Promise<{ tab: Tab; restarted: boolean }> {
    const active = this.#active;
    if (active !== undefined && !active.lost.aborted) return { tab: active, restarted: false };
    // A new tab could share the process of the one that ends.
    if (active !== undefined) await this.close(active, signal);
    const tab = await this.open(signal);
    this.#active = tab;
    return { tab, restarted: true };
  }

  /** Stops what runs in a tab that a call leaves. A tab that does not answer even then is given up. */
  async #stopScripts(tab: Tab): Promise<string> {
    if (tab.lost.aborted || !this.alive) return "";
    tab.notify("Page.stopLoading");
    for (const session of tab.sessions) tab.notify("Runtime.terminateExecution", {}, session);
    const params = { expression: "0" };
    const limit = AbortSignal.timeout(RECOVER_MS);
    try {
      await tab.send("Runtime.evaluate", params, z.unknown(), limit);
    } catch {
      if (!limit.aborted) return "";
      this.#end(tab, "The tab did not answer, and was ended.");
      return " The tab did not answer even then, and was ended: the next call opens another one in its place.";
    }
    return "";
  }

  /** Ends a tab without asking its page. */
  #end(tab: Tab, why: string): void {
    this.devtools.notify("Target.closeTarget", { targetId: tab.targetId });
    tab.lose(`${why} The next call opens another one in its place.`);
  }

  async #report(call: ToolCall, work: (signal: AbortSignal) => Promise<Outcome>): Promise<ToolResult> {
    const signal = AbortSignal.any([call.signal, call.timeout]);
    const result = (code: ToolCode, message: string, { data, ...more }: Outcome): ToolResult => ({
      code,
      message,
      attachments: [],
      programFailed: false,
      ...more,
      data: {
        ...data,
        dialogs: this.#dialogs.take(),
        opened_tabs: this.#opened.splice(0),
        session_restarted: call.restarted,
      },
    });
    try {
      return result(TOOL_CODE.success, "success", await work(signal));
    } catch (thrown) {
      if (call.signal.aborted) throw abortError(call.signal);
      // What waited for a tab that is gone was aborted with the reason for that.
      const error =
        thrown instanceof BerthError && thrown.cause instanceof ToolFailure ? thrown.cause : thrown;
      if (!this.alive)
        return result(TOOL_CODE.failed, await this.#lossMessage(), { data: { session_lost: true } });
      if (call.timeout.aborted) {
        const more = error instanceof Stopped ? error.more : "";
        const seconds = call.timeoutMs / 1000;
        const message = `The call exceeded its timeout of ${seconds} s, and what it ran was stopped.${more}`;
        return result(TOOL_CODE.timeout, message, { data: { timed_out: true, tab_lost: more !== "" } });
      }
      if (error instanceof ToolFailure) return result(TOOL_CODE.failed, error.message, { data: error.data });
      if (error instanceof DevToolsError) {
        return result(TOOL_CODE.failed, `The browser could not do it: ${error.message}.`, { data: {} });
      }
      if (error instanceof BerthError && OWN_FAILURES.has(error.reason)) {
        return result(TOOL_CODE.failed, error.message, { data: {} });
      }
      throw error;
    }
  }

  async #lossMessage(): Promise<string> {
    if (this.#broken !== undefined) return `${this.#broken}. The next call starts another one.`;
    return (await this.#chromium.program.failure()).message;
  }
}

/** A run was stopped; with what there is to say about its tab. */
class Stopped extends Error {
  readonly more: string;

  constructor(more: string) {
    super("stopped");
    this.more = more;
  }
}
