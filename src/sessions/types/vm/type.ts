import { z } from "zod";
import { resolveWorkingDir } from "../../../processes/shell/job.ts";
import type { SessionType } from "../../backend.ts";
import { baseConfig, cwdConfig, envConfig } from "../common.ts";
import type { ProgramHost } from "../program.ts";
import { Desktop } from "./desktop.ts";
import { screenSize } from "./params.ts";
import { DESKTOP_TOOLS } from "./tools.ts";

const MIB = 1024 * 1024;

const vmConfig = baseConfig.extend({
  screen_size: screenSize.default([1920, 1080]),
  dpi: z.number().int().min(48).max(480).describe("Dots per inch. Default: 96.").default(96),
  cwd: cwdConfig.optional(),
  env: envConfig.optional(),
});

/**
 * The type `vm`: a desktop with a screen, a pointer and a keyboard.
 * @param desktopImage the image of its sandboxes, where the engine has images.
 */
export function vmType(host: ProgramHost, desktopImage: string): SessionType {
  return {
    name: "vm",
    description:
      "A desktop: a screen with windows, a pointer, a keyboard, and the programs that are launched on it.",
    config: vmConfig,
    tools: DESKTOP_TOOLS,
    sandbox: { image: desktopImage, memoryBytes: 2048 * MIB, cpuMillis: 2000, pidsLimit: 1024 },
    initialize: ({ sandbox, sessionId }, given, signal) => {
      const { screen_size, dpi, cwd, env } = given as z.output<typeof vmConfig>;
      const [width, height] = screen_size;
      const place = {
        sessionId,
        env: { ...sandbox.spec.env, ...env },
        workingDir: resolveWorkingDir(sandbox.spec.workingDir, cwd),
        width,
        height,
        dpi,
      };
      return Desktop.start(host, sandbox, place, signal);
    },
  };
}
