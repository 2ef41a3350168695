import type { Duplex } from "node:stream";
import { BerthError, invalidArgument } from "../../base/errors.ts";
import { Demux } from "./demux.ts";
import { SETUP_MARKERS } from "./setup-script.ts";

/** How much of what a container prints before it is ready is kept. */
const MAX_REPORT_CHARS = 2048;

/** What a container said when it was ready. */
export interface SetupReport {
  /** Its user's numbers as `uid[:[gid]]`; empty: root. */
  readonly owner: string;
  /** All it printed, which tells its ranges of ids. */
  readonly told: string;
}

/**
 * Reads what a container's main process prints, from before its start, until
 * it says that it is ready. A process that ends before, or says nothing in
 * time, fails with what it printed.
 */
export function setupDone(output: Duplex, timeoutMs: number): Promise<SetupReport> {
  const { promise, resolve, reject } = Promise.withResolvers<SetupReport>();
  const text = { stdout: "", stderr: "" };
  const says = (marker: string) => text.stdout.split("\n").includes(marker);
  const owner = () => new RegExp(`^${SETUP_MARKERS.owner}(.*)$`, "m").exec(text.stdout)?.[1] ?? "";
  const report = () => `${text.stderr}\n${text.stdout.replace(/^berth-.*$/gm, "")}`.trim();
  const demux = new Demux((stream, chunk) => {
    text[stream] = (text[stream] + chunk.toString("utf8")).slice(-MAX_REPORT_CHARS);
    if (says(SETUP_MARKERS.ready)) resolve({ owner: owner(), told: text.stdout });
  });
  const timer = setTimeout(
    () => reject(startFailed(`it was not ready within ${timeoutMs / 1000} s`, report())),
    timeoutMs,
  );
  output.on("data", (chunk: Buffer) => demux.push(chunk));
  output.once("error", () => {});
  output.once("close", () => {
    if (says(SETUP_MARKERS.unknownUser))
      reject(invalidArgument("spec.user", "the image has no such user or group"));
    else if (says(SETUP_MARKERS.badWorkingDir)) reject(invalidArgument("spec.working_dir", report()));
    else reject(startFailed("its main process ended at once. The image needs a working /bin/sh", report()));
  });
  return promise.finally(() => clearTimeout(timer));
}

/** Makes the error for a container that does not come up. `report` is what it or Docker said. */
export function startFailed(problem: string, report: string, cause?: unknown): BerthError {
  const said = report === "" ? "." : `: ${report}`;
  return new BerthError("SANDBOX_START_FAILED", `The sandbox did not start: ${problem}${said}`, { cause });
}
