import type { RequestedSpec } from "../../sandboxes/spec.ts";

const MIB = 1024 * 1024;

/** The sandbox of a session with a screen or a browser. @param image has the programs, for engines that use images. */
export function desktopSandbox(image: string): RequestedSpec {
  return { image, memoryBytes: 2048 * MIB, cpuMillis: 2000, pidsLimit: 1024 };
}
