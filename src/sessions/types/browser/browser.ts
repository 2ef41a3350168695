import { z } from "zod";
import { within } from "../../../base/async.ts";
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
import type { HeldMemory } from "../held-memory.ts";
import type { Program, ProgramHost } from "../program.ts";
import { type ChromiumOptions, startChromium, startFailure } from "./chromium.ts";
import { DevTools, DevToolsError } from "./devtools.ts";
import { Dialogs, dialogOpening } from "./dialogs.ts";
import { References } from "./elements.ts";
import { ToolFailure } from "./failure.ts";
import type { Tab } from "./tab.ts";
import { Tabs, type Viewport } from "./tabs.ts";

interface BrowserOptions extends ChromiumOptions {
  /** Whether the browser accepts dialogs that pages open. */
  readonly acceptDialogs: boolean;
}

/** What one run of a tool works with. */
export interface BrowserUse {
  readonly tab: Tab;
  readonly references: References;
  /** Aborted when the run must end. */
  readonly signal: AbortSignal;
  /** The document that the page had when the run began. */
  readonly loaderId: string;
}

/** What a tool returns. */
export type Outcome = { readonly data: JsonObject } & Partial<
  Pick<ToolResult, "attachments" | "programFailed">
>;

/** Long, because on a busy machine Chromium may need many times the second that it takes otherwise. */
const START_TIMEOUT_MS = 90_000;
/** How long a page may take to answer after its script was stopped. It may lack processor time, and has much to lose. */
const RECOVER_MS = 10_000;
const END_MS = 500;
/**
 * A page that opens more dialogs in one call is ended: a script that waits for a dialog cannot be stopped, and one in a
 * loop opens thousands.
 */
const MAX_DIALOGS = 200;

/** Errors that are about a file, not about the call. */
const OWN_FAILURES: ReadonlySet<ErrorReason> = new Set([
  "FILE_NOT_FOUND",
  "FILE_EXISTS",
  "FILE_KIND",
  "FILE_PERMISSION",
  "NO_SPACE",
]);

/** A browser in a sandbox, with its tabs. */
export class Browser implements SessionBackend {
  #acceptDialogs: boolean;
  readonly #program: Program;
  readonly #dialogs = new Dialogs(MAX_DIALOGS);
  readonly references: References;
  readonly devtools: DevTools;
  readonly tabs: Tabs;
  #place: SessionHost;
  #broken: string | undefined;

  private constructor(
    options: BrowserOptions,
    place: SessionHost,
    program: Program,
    devtools: DevTools,
    memory: HeldMemory,
  ) {
    this.#acceptDialogs = options.acceptDialogs;
    this.references = new References((drop, bytes) => memory.hold(this.#place.sandbox.owner, drop, bytes));
    this.#place = place;
    this.#program = program;
    this.devtools = devtools;
    this.tabs = new Tabs(devtools, options);
  }

  /**
   * Starts a browser. Resolves when it has a tab that answers.
   * @throws `SESSION_START_FAILED`, the engine's errors.
   */
  static async start(
    host: ProgramHost,
    place: SessionHost,
    options: BrowserOptions,
    signal: AbortSignal,
  ): Promise<Browser> {
    let program: Program | undefined;
    let browser: Browser | undefined;
    const drop = (): void => devtools.dropUnfinished();
    const devtools = new DevTools(
      {
        write: async (data) => program?.write(data),
        pause: () => program?.pause(),
        resume: () => program?.resume(),
        held: (bytes) => host.memory.hold((browser?.place ?? place).sandbox.owner, drop, bytes),
      },
      (problem) => browser?.break(problem),
    );
    const started = await startChromium(host, place, options, (chunk) => devtools.push(chunk), signal);
    program = started;
    void program.ended.then(() => devtools.close(new ToolFailure("The browser has ended.")));
    browser = new Browser(options, place, program, devtools, host.memory);
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

  get place(): SessionHost {
    return this.#place;
  }

  /** Makes a browser of the warm pool serve a session. */
  serve(
    place: SessionHost,
    { acceptDialogs, ...viewport }: Viewport & { readonly acceptDialogs: boolean },
  ): void {
    this.#place = place;
    this.#program.sessionId = place.sessionId;
    this.#acceptDialogs = acceptDialogs;
    this.tabs.resize(viewport);
  }

  /** Draws a page once, because the first drawing takes longest. */
  async warmUp(signal: AbortSignal): Promise<void> {
    const { tab } = await this.tabs.live(signal);
    await tab.fetch("Page.captureScreenshot", { format: "png", optimizeForSpeed: true }, signal);
  }

  get alive(): boolean {
    return this.#broken === undefined && this.#program.alive;
  }

  async cleanup(sandboxEnds: boolean): Promise<void> {
    this.devtools.close(new ToolFailure("The session is being ended."));
    this.references.clear();
    await this.#program.close(sandboxEnds);
  }

  /** Marks the browser as unusable because it broke the DevTools protocol. */
  break(problem: string): void {
    this.#broken ??= `The browser broke its protocol: ${problem}`;
  }

  /** Runs a tool on the active tab. */
  run(call: ToolCall, work: (use: BrowserUse) => Promise<Outcome>): Promise<ToolResult> {
    return this.#report(call, async (signal) => {
      const { tab, restarted } = await this.tabs.live(signal);
      const own = AbortSignal.any([signal, tab.lost]);
      try {
        const outcome = await work({ tab, references: this.references, signal: own, loaderId: tab.loaderId });
        tab.releaseObjects();
        return { ...outcome, data: { ...outcome.data, tab_restarted: restarted } };
      } catch (error) {
        const reached = error instanceof ToolFailure ? ` ${error.message}` : "";
        if (signal.aborted) throw new Stopped(reached, await this.#stopScripts(tab));
        throw error;
      }
    });
  }

  /** Runs a tool that acts on the tabs themselves. */
  runOnTabs(call: ToolCall, work: (signal: AbortSignal) => Promise<Outcome>): Promise<ToolResult> {
    return this.#report(call, work);
  }

  async #boot(signal: AbortSignal): Promise<void> {
    this.devtools.on(
      "Page.javascriptDialogOpening",
      dialogOpening,
      (dialog, session) => this.#answer(dialog, session),
      () => this.#dismissLarge(),
    );
    const params = { behavior: "deny", eventsEnabled: true };
    const request = { method: "Browser.setDownloadBehavior", params, answer: z.unknown() };
    await Promise.all([this.devtools.send(request, signal), this.tabs.start(signal)]);
  }

  /** Answers a dialog. Its page is blocked until then. */
  #answer(dialog: z.output<typeof dialogOpening>, session: string | undefined): void {
    const tab = session === undefined ? undefined : this.tabs.ownerOf(session);
    if (tab === undefined) return;
    const accept = dialog.type === "beforeunload" || this.#acceptDialogs;
    const isTooMany = this.#dialogs.add(dialog, accept);
    const promptText = dialog.defaultPrompt;
    if (!isTooMany) tab.notify("Page.handleJavaScriptDialog", { accept, promptText }, session);
    else this.tabs.end(tab, `The page opened more than ${MAX_DIALOGS} dialogs, and its tab was ended.`);
  }

  /**
   * Dismisses a dialog of which only its size is known. It is a prompt, whose default text may have any length; its tab is
   * not known. Past the limit it stays, and the next call on its tab ends that.
   */
  #dismissLarge(): void {
    if (this.#dialogs.add({ type: "prompt", message: "" }, false)) return;
    for (const tab of this.tabs.all) tab.notify("Page.handleJavaScriptDialog", { accept: false });
  }

  /** Stops scripts that a call left running in a tab. If the tab still does not answer, it is closed. */
  async #stopScripts(tab: Tab): Promise<string> {
    if (tab.lost.aborted || !this.alive) return "";
    tab.notify("Page.stopLoading");
    for (const session of tab.sessions) tab.notify("Runtime.terminateExecution", {}, session);
    const params = { expression: "0" };
    const late = AbortSignal.timeout(RECOVER_MS);
    try {
      await tab.send("Runtime.evaluate", params, z.unknown(), AbortSignal.any([late, tab.lost]));
    } catch {
      if (tab.lost.aborted || !late.aborted) return "";
      this.tabs.end(tab, "The tab did not answer, and was ended.");
      return " The tab did not answer even then, and was ended: the next call opens another one in its place.";
    }
    return "";
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
        opened_tabs: this.tabs.takeOpened(),
        session_restarted: call.restarted,
      },
    });
    try {
      return result(TOOL_CODE.success, "success", await work(signal));
    } catch (thrown) {
      if (call.signal.aborted) throw abortError(call.signal);
      // Anything that waited for a lost tab was aborted with the reason for the loss.
      const error =
        thrown instanceof BerthError && thrown.cause instanceof ToolFailure ? thrown.cause : thrown;
      if (!this.alive)
        return result(TOOL_CODE.failed, await this.#lossMessage(), { data: { session_lost: true } });
      if (call.timeout.aborted) {
        const { reached, more } = error instanceof Stopped ? error : { reached: "", more: "" };
        const seconds = call.timeoutMs / 1000;
        const message = `The call exceeded its timeout of ${seconds} s, and what it ran was stopped.${reached}${more}`;
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
    return (await this.#program.failure()).message;
  }
}

/** A run was stopped. `reached` says how far it had got, and `more` what happened to its tab. */
class Stopped extends Error {
  readonly reached: string;
  readonly more: string;

  constructor(reached: string, more: string) {
    super("stopped");
    this.reached = reached;
    this.more = more;
  }
}
