import { z } from "zod";
import type { FileManager } from "../../../files/manager.ts";
import type { SessionType } from "../../backend.ts";
import { baseConfig, envConfig } from "../common.ts";
import { desktopSandbox } from "../desktop-sandbox.ts";
import type { ProgramHost } from "../program.ts";
import { Browser } from "./browser.ts";
import { elementTools } from "./element-tools.ts";
import { PAGE_TOOLS } from "./page-tools.ts";

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
    .describe("The language that pages are asked for, such as de-DE.")
    .optional(),
  user_agent: z
    .string()
    .regex(/^[\x20-\x7e]{1,1000}$/, "must be 1-1000 printable ASCII characters")
    .describe("What the browser calls itself.")
    .optional(),
  dialogs: z
    .enum(["accept", "dismiss"])
    .default("accept")
    .describe("How alert, confirm and prompt are answered, which is at once. Results name them."),
  env: envConfig.optional(),
});

/** What browsers are built of. */
export interface BrowserHost extends ProgramHost {
  readonly files: FileManager;
}

/** The type `browser`: Chromium, with pages that stay. */
export function browserType(host: BrowserHost, desktopImage: string): SessionType {
  return {
    name: "browser",
    description: "A web browser that stays: its tabs, pages, cookies and storage.",
    config: browserConfig,
    tools: [...PAGE_TOOLS, ...elementTools(host.files)],
    sandbox: desktopSandbox(desktopImage),
    initialize: (place, given, signal) => {
      const { viewport, locale, user_agent, dialogs, env = {} } = given as z.output<typeof browserConfig>;
      const [width, height] = viewport;
      const options = {
        width,
        height,
        locale,
        userAgent: user_agent,
        env,
        acceptDialogs: dialogs === "accept",
      };
      return Browser.start(host, place, options, signal);
    },
  };
}
