import { isDeepStrictEqual } from "node:util";
import { z } from "zod";
import { resolveWorkingDir } from "../../../processes/shell/job.ts";
import type { SessionHost, SessionType } from "../../backend.ts";
import { baseConfig, cwdConfig, desktopSandbox, envConfig } from "../common.ts";
import type { ProgramHost } from "../program.ts";
import { Desktop } from "./desktop.ts";
import { screenSize } from "./params.ts";
import { nowhereToRecord, recordConfig, recordingDir } from "./recording.ts";
import { DESKTOP_TOOLS } from "./tools.ts";

const vmConfig = baseConfig.extend({
  screen_size: screenSize.default([1920, 1080]),
  dpi: z.number().int().min(48).max(480).describe("Dots per inch. Default: 96.").default(96),
  cwd: cwdConfig.optional(),
  env: envConfig.optional(),
  record: recordConfig,
});
type VmConfig = z.output<typeof vmConfig>;

/** How long a desktop of the warm pool may take to change its size. */
const RESIZE_MS = 5_000;
const WARM_UP_MS = 30_000;

/**
 * The type `vm`: a desktop with a screen, a pointer and a keyboard.
 * @param desktopImage the image of its sandboxes, for engines that use images.
 */
export function vmType(host: ProgramHost, desktopImage: string): SessionType {
  const start = (
    { sandbox, sessionId, keptDir }: Pick<SessionHost, "sandbox" | "sessionId" | "keptDir">,
    config: VmConfig,
    signal: AbortSignal,
  ) => {
    const { screen_size, dpi, cwd, env } = config;
    const [width, height] = screen_size;
    const workingDir = resolveWorkingDir(sandbox.spec.workingDir, cwd);
    const place = {
      sessionId,
      env: env ?? {},
      workingDir,
      record:
        config.record && keptDir !== undefined ? recordingDir(workingDir, keptDir, sessionId) : undefined,
      width,
      height,
      dpi,
    };
    return Desktop.start(host, sandbox, place, signal);
  };
  return {
    name: "vm",
    description:
      "A desktop: a screen with windows, a pointer, a keyboard, and the programs that are launched on it.",
    config: vmConfig,
    tools: DESKTOP_TOOLS,
    sandbox: desktopSandbox(desktopImage),
    check: (config, { keptDir }) => {
      if ((config as VmConfig).record && keptDir === undefined) throw nowhereToRecord();
    },
    initialize: (home, config, signal) => start(home, config as VmConfig, signal),
    prestart: async (sandbox, signal) => {
      const desktop = await start(
        { sandbox, sessionId: "warm pool", keptDir: undefined },
        vmConfig.parse({}),
        signal,
      );
      // The first screenshot takes longest.
      const bounds = { signal, timeout: AbortSignal.timeout(WARM_UP_MS) };
      await desktop.request("screenshot", { tree: true }, bounds).catch(async (error: unknown) => {
        await desktop.cleanup(false);
        throw error;
      });
      return desktop;
    },
    // The screen's size can still change; everything else is fixed.
    adopt: async (desktop: Desktop, host, config, signal) => {
      const { screen_size, custom_name, ...fixed } = config as VmConfig;
      const { screen_size: size, ...defaults } = vmConfig.parse({});
      if (!isDeepStrictEqual(fixed, defaults)) return false;
      desktop.serve(host);
      if (isDeepStrictEqual(screen_size, size)) return true;
      const [width, height] = screen_size;
      return desktop.resize({ width, height }, { signal, timeout: AbortSignal.timeout(RESIZE_MS) });
    },
  };
}
