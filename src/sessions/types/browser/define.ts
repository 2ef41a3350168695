import { z } from "zod";
import { invalidArgument } from "../../../base/errors.ts";
import { defineTool, type Tool, type ToolCall, type ToolResult } from "../../backend.ts";
import { secondsToMs } from "../common.ts";
import type { Browser, BrowserUse, Outcome } from "./browser.ts";
import type { ElementName } from "./elements.ts";
import { about, arrival } from "./navigation.ts";

const DEFAULT_TIMEOUT_MS = 30_000;

const timeout = z
  .number()
  .positive()
  .max(24 * 3600)
  .describe(
    `How long it may take, in seconds. Default: the call's timeout, else ${DEFAULT_TIMEOUT_MS / 1000}.`,
  )
  .optional();
/** Params by which a caller names an element. */
export const selector = z
  .string()
  .min(1)
  .max(10_000)
  .describe("A CSS selector: the first match in the page, its open shadow roots and its frames.")
  .optional();
export const ref = z
  .string()
  .regex(/^e[1-9][0-9]{0,9}$/, "must be a reference from tree, such as e12")
  .describe("A reference from tree, such as e12.")
  .optional();
/** The state that a page must reach. */
export const waitUntil = z
  .enum(["dom", "load", "network_idle"])
  .default("load")
  .describe("When the page counts as loaded: parsed, loaded with its parts, or with no request for 0.5 s.");
/** Defines a tool that acts on the active tab. @param check refuses params before the tool does anything. */
export function pageTool<S extends z.ZodObject>(
  name: string,
  description: string,
  params: S,
  run: (use: BrowserUse, params: z.output<S>, browser: Browser) => Promise<Outcome>,
  check: (params: z.output<S>, browser: Browser) => void = () => {},
): Tool {
  return browserTool(name, description, params, async (browser, given, call) => {
    check(given, browser);
    return browser.run(call, (use) => run(use, given, browser));
  });
}

/** Defines a browser tool with its timeout as a param. */
export function browserTool<S extends z.ZodObject>(
  name: string,
  description: string,
  params: S,
  run: (browser: Browser, params: z.output<S>, call: ToolCall) => Promise<ToolResult>,
): Tool {
  return defineTool({
    name,
    description,
    params: params.extend({ timeout }),
    timeoutMs: (given) => secondsToMs((given as { timeout?: number }).timeout),
    defaultTimeoutMs: () => DEFAULT_TIMEOUT_MS,
    run: (browser: Browser, given, call) => run(browser, given as z.output<S>, call),
  });
}

/** Checks that exactly one of selector and ref is set. @throws `INVALID_ARGUMENT`. */
export function oneElement({ selector: css, ref: reference }: ElementName): void {
  if ((css === undefined) === (reference === undefined)) {
    throw invalidArgument("params.selector", "give either selector or ref.");
  }
}

/** Checks that at most one of selector and ref is set. @throws `INVALID_ARGUMENT`. */
export function oneElementAtMost({ selector: css, ref: reference }: ElementName): void {
  if (css !== undefined && reference !== undefined) {
    throw invalidArgument("params.selector", "give selector or ref, not both.");
  }
}

/** Adds the URL and title of the page to a result. */
export async function withAbout({ tab, signal }: BrowserUse, more: Outcome["data"] = {}): Promise<Outcome> {
  const { url: address, title } = await about(tab, signal);
  return { data: { url: address, title, ...more } };
}

/** The URL and title of the page after an action. @throws ToolFailure if it opened a page that cannot be loaded. */
export async function withArrival(use: BrowserUse): Promise<Outcome> {
  const { url: address, title } = await arrival(use, use.loaderId);
  return { data: { url: address, title } };
}
