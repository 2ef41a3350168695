import { z } from "zod";
import { invalidArgument } from "../../../base/errors.ts";
import type { Json, JsonObject } from "../../../base/json.ts";
import {
  defineTool,
  succeeded,
  TOOL_CODE,
  type Tool,
  type ToolCall,
  type ToolResult,
} from "../../backend.ts";
import { type Desktop, DesktopFailure, type DriverAnswer } from "./desktop.ts";
import { type NamedKey, namedKeys, splitKeys } from "./keys.ts";
import { button, clipboardText, command, corner, keyParam, place, seconds, typedText } from "./params.ts";
import { recorded } from "./recording.ts";

/** How long a tool may take that does not wait for something that its caller chose. */
const CALL_MS = 30_000;
const CLICKS = 100;
const DRAG_SECONDS = 0.3;

const nothing = z.strictObject({});
const at = z.strictObject({ ...place, button });
const atPlace = z.strictObject(place);

/** Runs an operation of the driver, and converts its answer to a result. */
async function act(
  desktop: Desktop,
  call: ToolCall,
  operation: string,
  params: Readonly<Record<string, unknown>> = {},
  more: (answer: DriverAnswer) => Partial<ToolResult> = () => ({}),
): Promise<ToolResult> {
  const restarted = { session_restarted: call.restarted };
  try {
    const answer = await desktop.request(operation, params, call);
    return succeeded({ ...objectOf(answer.data), ...restarted }, more(answer));
  } catch (error) {
    if (!(error instanceof DesktopFailure)) throw error;
    return succeeded(restarted, { code: TOOL_CODE.failed, message: error.message });
  }
}

function objectOf(data: Json): JsonObject {
  return typeof data === "object" && data !== null && !Array.isArray(data) ? (data as JsonObject) : {};
}

const screenshot = defineTool({
  name: "screenshot",
  description:
    "Takes a picture of the whole screen: a PNG attachment named screenshot, of exactly the screen's size, without the pointer. " +
    "Returns width, height, cursor ({x, y}), accessibility_tree (nodes of role, name, bounds [x, y, width, height] in pixels of the " +
    "screen, and possibly value, description, states and children) and tree_truncated (whether programs did not answer in time, " +
    "or the tree is larger than what is returned).",
  params: z.strictObject({
    tree: z.boolean().describe("Whether to return the accessibility tree. Default: true.").default(true),
  }),
  defaultTimeoutMs: () => CALL_MS,
  run: (desktop: Desktop, { tree }, call) =>
    act(desktop, call, "screenshot", { tree }, ({ payload }) => ({
      attachments: [{ name: "screenshot", mediaType: "image/png", content: payload }],
    })),
});

const click = defineTool({
  name: "click",
  description: "Clicks at a place, or where the pointer is. Returns x, y and button.",
  params: at,
  defaultTimeoutMs: () => CALL_MS,
  run: (desktop: Desktop, params, call) => act(desktop, call, "click", params),
});

const doubleClick = defineTool({
  name: "double_click",
  description: "Clicks twice at a place, or where the pointer is. Returns x, y and button.",
  params: at,
  defaultTimeoutMs: () => CALL_MS,
  run: (desktop: Desktop, params, call) => act(desktop, call, "click", { ...params, count: 2 }),
});

const rightClick = defineTool({
  name: "right_click",
  description: "Clicks the right button at a place, or where the pointer is. Returns x, y and button.",
  params: atPlace,
  defaultTimeoutMs: () => CALL_MS,
  run: (desktop: Desktop, params, call) => act(desktop, call, "click", { ...params, button: "right" }),
});

const move = defineTool({
  name: "move",
  description: "Moves the pointer. Returns x and y.",
  params: atPlace,
  defaultTimeoutMs: () => CALL_MS,
  run: (desktop: Desktop, params, call) => act(desktop, call, "move", params),
});

function pointerButton(name: string, down: boolean, description: string): Tool {
  return defineTool({
    name,
    description,
    params: at,
    defaultTimeoutMs: () => CALL_MS,
    run: (desktop: Desktop, params, call) => act(desktop, call, "button", { ...params, down }),
  });
}

const drag = defineTool({
  name: "drag",
  description:
    "Presses a button at one place, moves the pointer to another in a straight line, and releases it there. Returns its parameters.",
  params: z.strictObject({
    start_x: corner("Where to begin, from the left"),
    start_y: corner("Where to begin, from the top"),
    end_x: corner("Where to end, from the left"),
    end_y: corner("Where to end, from the top"),
    button,
    duration: seconds
      .describe(`How long the movement takes, in seconds. Default: ${DRAG_SECONDS}.`)
      .default(DRAG_SECONDS),
  }),
  defaultTimeoutMs: ({ duration }) => duration * 1000 + CALL_MS,
  run: (desktop: Desktop, params, call) => act(desktop, call, "drag", params),
});

const scroll = defineTool({
  name: "scroll",
  description:
    "Turns the wheel at a place, or where the pointer is: up if clicks is positive, down if it is negative. Returns x, y, clicks and horizontal.",
  params: z.strictObject({
    ...place,
    clicks: z
      .number()
      .int()
      .min(-CLICKS)
      .max(CLICKS)
      .describe("Steps of the wheel: positive up, negative down."),
    horizontal: z
      .number()
      .int()
      .min(-CLICKS)
      .max(CLICKS)
      .describe("Steps to the side: positive to the right, negative to the left. Default: 0.")
      .default(0),
  }),
  defaultTimeoutMs: () => CALL_MS,
  run: (desktop: Desktop, params, call) => act(desktop, call, "scroll", params),
});

const type = defineTool({
  name: "type",
  description:
    "Types text in any script into whatever has the focus. Keys that key_down holds stay held. Returns characters (how many were typed).",
  params: z.strictObject({
    text: typedText,
    interval: z.number().min(0).max(10).describe("Seconds between two characters. Default: 0.").default(0),
  }),
  defaultTimeoutMs: ({ text, interval }) => interval * text.length * 1000 + 2 * CALL_MS,
  run: (desktop: Desktop, params, call) => act(desktop, call, "type", params),
});

const KEY_HELP =
  "A character, a name such as enter, esc, tab, pageup, ctrl or f5, or the name of an X keysym; several at once as ctrl+shift+t.";

function keys(name: string, description: string, operation: string, more: object = {}): Tool {
  return defineTool({
    name,
    description,
    params: z.strictObject({ key: keyParam.describe(KEY_HELP) }),
    defaultTimeoutMs: () => CALL_MS,
    run: (desktop: Desktop, { key }, call) =>
      act(desktop, call, operation, { keys: splitKeys("key", key), ...more }),
  });
}

const hotkey = defineTool({
  name: "hotkey",
  description: "Presses keys together, in their order, and releases them: for example ctrl and c.",
  params: z.strictObject({
    keys: z
      .union([keyParam, z.array(keyParam).max(16)])
      .describe("A list of keys, or text such as ctrl+c. Letters are keys: for a capital, add shift."),
  }),
  defaultTimeoutMs: () => CALL_MS,
  run: (desktop: Desktop, params, call) => act(desktop, call, "keys", { keys: hotkeyOf(params.keys) }),
});

function hotkeyOf(given: string | readonly string[]): readonly NamedKey[] {
  if (typeof given === "string") return splitKeys("keys", given);
  // A list with one item may be a combination: ["ctrl+c"].
  const [only] = given;
  return given.length === 1 && only !== undefined ? splitKeys("keys[0]", only) : namedKeys("keys", given);
}

const wait = defineTool({
  name: "wait",
  description: "Waits.",
  params: z.strictObject({ seconds: seconds.describe("How long, in seconds. Default: 1.").default(1) }),
  defaultTimeoutMs: (params) => params.seconds * 1000 + CALL_MS,
  run: (desktop: Desktop, params, call) => act(desktop, call, "wait", params),
});

const done = defineTool({
  name: "done",
  description: "Says that the task is done. Returns status: done.",
  params: nothing,
  run: async (_desktop: Desktop, _params, call) =>
    succeeded({ status: "done", session_restarted: call.restarted }),
});

const fail = defineTool({
  name: "fail",
  description:
    "Says that the task cannot be done. Returns status: fail, and reason. The call itself succeeds, with code 0.",
  params: z.strictObject({ reason: z.string().max(10_000).describe("Why. Default: none.").default("") }),
  run: async (_desktop: Desktop, { reason }, call) =>
    succeeded({ status: "fail", reason, session_restarted: call.restarted }),
});

const launch = defineTool({
  name: "launch",
  description:
    "Starts a program on the desktop without waiting for it; it ends with the session. Its output is dropped. Returns pid. Fails if there is no such program. Find its window with the tool windows.",
  params: z.strictObject({ command }),
  defaultTimeoutMs: () => CALL_MS,
  run: (desktop: Desktop, params, call) => {
    const argv = typeof params.command === "string" ? ["/bin/sh", "-c", params.command] : params.command;
    return act(desktop, call, "launch", { argv });
  },
});

const windows = defineTool({
  name: "windows",
  description:
    "Lists the windows from the lowest to the topmost: id, title, class, pid, bounds ([x, y, width, height] of what is inside its frame), active and minimized. " +
    "Returns windows and window_manager (openbox; none if the sandbox has none; lost if it ended too often, until it starts again within a minute).",
  params: nothing,
  defaultTimeoutMs: () => CALL_MS,
  run: (desktop: Desktop, _params, call) => act(desktop, call, "windows"),
});

const clipboard = defineTool({
  name: "clipboard",
  description:
    "Reads or sets the clipboard's text. Returns text (empty if there is none) and truncated (whether there was more than 1 MiB).",
  params: z.strictObject({
    action: z.enum(["get", "set"]).describe("get or set."),
    text: clipboardText.optional(),
  }),
  defaultTimeoutMs: () => CALL_MS,
  run: async (desktop: Desktop, { action, text }, call) => {
    if (action === "set" && text === undefined)
      throw invalidArgument("params.text", "must be given to set it.");
    if (action === "get" && text !== undefined) throw invalidArgument("params.text", "is only for set.");
    return act(desktop, call, "clipboard", { text }, ({ data, payload }) => ({
      data: { ...objectOf(data), text: payload.toString(), session_restarted: call.restarted },
    }));
  },
});

const TOOLS: readonly Tool[] = [
  screenshot,
  click,
  doubleClick,
  rightClick,
  type,
  keys("key", "Presses and releases a key, or several at once.", "keys"),
  keys("key_down", "Presses a key and holds it, until key_up.", "hold_keys", { down: true }),
  keys("key_up", "Releases a key that key_down holds.", "hold_keys", { down: false }),
  hotkey,
  scroll,
  drag,
  move,
  pointerButton(
    "mouse_down",
    true,
    "Presses a button and holds it, until mouse_up. Returns x, y and button.",
  ),
  pointerButton("mouse_up", false, "Releases a button that mouse_down holds. Returns x, y and button."),
  wait,
  done,
  fail,
  launch,
  windows,
  clipboard,
];

/** The tools of a desktop. */
export const DESKTOP_TOOLS: readonly Tool[] = TOOLS.map(recorded);
