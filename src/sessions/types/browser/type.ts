import { isDeepStrictEqual } from "node:util";
import { z } from "zod";
import type { FileManager } from "../../../files/manager.ts";
import type { SessionHost, SessionType } from "../../backend.ts";
import { baseConfig, desktopSandbox, envConfig } from "../common.ts";
import type { ProgramHost } from "../program.ts";
import { Browser } from "./browser.ts";
import { elementTools } from "./element-tools.ts";
import { pageTools } from "./page-tools.ts";

const MIN_SIDE = 64;
const MAX_SIDE = 4_096;

const side = z.number().int().min(MIN_SIDE).max(MAX_SIDE);

const browserConfig = baseConfig.extend({
  viewport: z
    .tuple([side, side])
    .default([1280, 800])
    .describe("Width and height of the page, in pixels: what a screenshot shows."),
  locale: z
    .string()
    .regex(/^[A-Za-z]{2,3}(-[A-Za-z0-9]{2,8}){0,3}$/, "must be a language tag, such as de-DE")
    .describe("The preferred language of pages, such as de-DE.")
    .optional(),
  user_agent: z
    .string()
    .regex(/^[\x20-\x7e]{1,1000}$/, "must be 1-1000 printable ASCII characters")
    .describe("The User-Agent that the browser sends.")
    .optional(),
  dialogs: z
    .enum(["accept", "dismiss"])
    .default("accept")
    .describe("How to answer alert, confirm and prompt, which happens at once. Results list them."),
  env: envConfig.optional(),
});

type BrowserConfig = z.output<typeof browserConfig>;

/** How long a browser may take to draw its first picture. */
const WARM_UP_MS = 30_000;

/** The type `browser`: Chromium, whose pages stay between calls. */
export function browserType(
  host: ProgramHost & { readonly files: FileManager },
  desktopImage: string,
): SessionType {
  const start = (place: SessionHost, config: BrowserConfig, signal: AbortSignal) => {
    const { locale, user_agent: userAgent, env = {} } = config;
    return Browser.start(host, place, { ...changeable(config), locale, userAgent, env }, signal);
  };
  return {
    name: "browser",
    description: "A web browser that stays: its tabs, pages, cookies and storage.",
    config: browserConfig,
    tools: [...pageTools(host.files), ...elementTools(host.files)],
    sandbox: desktopSandbox(desktopImage),
    initialize: (place, config, signal) => start(place, config as BrowserConfig, signal),
    prestart: async (sandbox, signal) => {
      const { owner, sandboxId, generation } = sandbox;
      const name = { owner, sandboxId, generation };
      const place = {
        ...{ workerId: "", sessionId: "warm pool", sandbox, name },
        ...{ keptDir: undefined, secrets: undefined },
      };
      const browser = await start(place, browserConfig.parse({}), signal);
      const within = AbortSignal.any([signal, AbortSignal.timeout(WARM_UP_MS)]);
      await browser.warmUp(within).catch(async (error: unknown) => {
        await browser.cleanup(false);
        throw error;
      });
      return browser;
    },
    // The size of pages and the answer to dialogs can still change; everything else is fixed.
    adopt: async (browser: Browser, host, config) => {
      const given = config as BrowserConfig;
      const { viewport, dialogs, custom_name, ...fixed } = given;
      const { viewport: _size, dialogs: _answer, ...defaults } = browserConfig.parse({});
      if (!isDeepStrictEqual(fixed, defaults)) return false;
      browser.serve(host, changeable(given));
      return true;
    },
  };
}

function changeable({ viewport: [width, height], dialogs }: BrowserConfig) {
  return { width, height, acceptDialogs: dialogs === "accept" };
}
