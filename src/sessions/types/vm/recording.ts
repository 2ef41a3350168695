import { posix } from "node:path";
import { z } from "zod";
import { type BerthError, invalidArgument } from "../../../base/errors.ts";
import type { Json, JsonObject } from "../../../base/json.ts";
import { TOOL_CODE, type Tool, type ToolResult } from "../../backend.ts";
import type { Desktop } from "./desktop.ts";

/** Larger params are shortened in a timeline. */
const MAX_PARAMS_BYTES = 16 * 1024;
const MAX_TEXT = 1_000;
const MAX_ITEMS = 10;
/** Length of a directory's name. The end of a session's id is unique. */
const MAX_NAME = 200;

/** Whether a desktop is recorded. */
export const recordConfig = z
  .boolean()
  .describe(
    "Whether to leave a recording in recordings/<session id>/ of its directory, or of the workspace where that is elsewhere: " +
      "video.webm, and timeline.jsonl with a line and a picture for each call. It holds what is on the screen, and " +
      "the params of calls: text that is typed or put into the clipboard, too. Default: false.",
  )
  .default(false);

/** The error for a session whose files are not kept. */
export function nowhereToRecord(): BerthError {
  return invalidArgument(
    "config.record",
    "needs a place that outlives the session: give it a workspace (workspace_id), or a sandbox of your own (sandbox_id).",
  );
}

/** The directory for a session's recording. @param keptDir see `SessionHome`. */
export function recordingDir(workingDir: string, keptDir: string, sessionId: string): string {
  const isKept = keptDir === "/" || workingDir === keptDir || workingDir.startsWith(`${keptDir}/`);
  // An id contains the name of a worker, which may have any characters.
  const name = sessionId.replace(/[^A-Za-z0-9._-]/g, "_").slice(-MAX_NAME);
  return posix.join(isKept ? workingDir : keptDir, "recordings", name);
}

/** Makes a tool record its calls if its desktop is recorded. */
export function recorded(tool: Tool): Tool {
  return {
    ...tool,
    run: async (backend, params, call) => {
      // Tools of a desktop always get one.
      const desktop = backend as Desktop;
      if (!desktop.isRecorded) return tool.run(desktop, params, call);
      const startedAt = performance.now();
      const note = (code: number | null, message: string): void =>
        desktop.note({
          tool: tool.name,
          params: shortened(params as JsonObject),
          code,
          message: message.slice(0, MAX_TEXT),
          duration_ms: Math.round(performance.now() - startedAt),
          session_restarted: call.restarted,
        });
      try {
        const result = await tool.run(desktop, params, call);
        note(result.code, result.message);
        return withRecording(result, desktop.recordingStopped);
      } catch (error) {
        const hasTimedOut = call.timeout.aborted && !call.signal.aborted;
        if (hasTimedOut) note(TOOL_CODE.timeout, `It exceeded its timeout of ${call.timeoutMs} ms.`);
        else note(null, error instanceof Error ? error.message : String(error));
        throw error;
      }
    },
  };
}

/** Adds a note to a result if the recording has stopped. */
function withRecording(result: ToolResult, stopped: string | undefined): ToolResult {
  const { data } = result;
  if (stopped === undefined || typeof data !== "object" || data === null || Array.isArray(data))
    return result;
  return { ...result, data: { ...data, recording: "stopped", recording_error: stopped } };
}

function shortened(params: JsonObject): Json {
  if (Buffer.byteLength(JSON.stringify(params)) <= MAX_PARAMS_BYTES) return params;
  return Object.fromEntries(Object.entries(params).map(([name, value]) => [name, shortenedValue(value)]));
}

function shortenedValue(value: Json | undefined): Json {
  if (typeof value === "string") return value.length > MAX_TEXT ? `${value.slice(0, MAX_TEXT)}…` : value;
  if (Array.isArray(value)) return value.slice(0, MAX_ITEMS).map(shortenedValue);
  return value ?? null;
}
